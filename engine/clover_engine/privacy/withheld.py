"""May a document or file be read? One answer for the language server and every command."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clover_engine.privacy.gitconfig import GitIgnoreConfig, read_git_config
from clover_engine.privacy.ignore import IgnoreRules, first_folder
from clover_engine.privacy.names import secret_file, unfit_file
from clover_engine.privacy.uris import paths_in

MAX_AGE_S = 10.0
"""Ignore files are read again after so long, where nobody says that one changed."""


class Withheld:
    """Why a file may not be read, by every name that it has. Any thread.

    A file is looked at by the path that is given and by its real path; in each root that holds
    one of the two, and in its own repository (or below the home folder), so that files without a
    root are bound by the ignore files around them.
    """

    def __init__(
        self,
        roots: Sequence[Path] = (),
        exclude: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`roots`: folders of the workspace. `exclude`: patterns as in `.gitignore`, for each of
        them and for files outside."""
        self._roots = tuple(dict.fromkeys(each for root in roots for each in _names(root)))
        self._exclude, self._clock = tuple(exclude), clock
        self._rules: dict[Path, tuple[float, IgnoreRules]] = {}
        self._config: dict[Path, GitIgnoreConfig] = {}
        self._verdicts: dict[str, tuple[float, str]] = {}

    def of_uri(self, uri: str) -> str:
        """Why nothing of this document may be read, in words; "" if it may."""
        known = self._verdicts.get(uri)
        now = self._clock()
        if known is None or now - known[0] > MAX_AGE_S:
            known = self._verdicts[uri] = (now, self._of_paths(paths_in(uri)))
        return known[1]

    def of_path(self, path: Path) -> str:
        """The same for a file."""
        return self._of_paths((str(path.absolute()),))

    def forget(self) -> None:
        """Files changed: a name may stand for another file now, rules may differ."""
        self._rules, self._config, self._verdicts = {}, {}, {}

    def _of_paths(self, paths: Sequence[str]) -> str:
        for path in paths:
            if reason := _by_name(path):
                return reason
        for path in paths:
            absolute = os.path.isabs(path)
            for full in (Path(path),) if absolute else [root / path for root in self._roots]:
                try:
                    if reason := self._of_file(full):
                        return reason
                except (OSError, ValueError):  # a name that no file can have
                    return f"{path.rpartition('/')[2][:80]!r} cannot be looked up"
        return ""

    def _of_file(self, full: Path) -> str:
        for named in _names(full):
            if reason := _by_name(named.as_posix()) or self._by_rules(named):
                return reason
        return ""

    def _by_rules(self, named: Path) -> str:
        own = first_folder(named.parent)
        for folder in dict.fromkeys((*self._roots, own)):
            if named != folder and named.is_relative_to(folder):
                inside = named.relative_to(folder).as_posix()
                if reason := self._rules_of(folder).reason(inside):
                    return reason
        return ""

    def _rules_of(self, folder: Path) -> IgnoreRules:
        known = self._rules.get(folder)
        now = self._clock()
        if known is None or now - known[0] > MAX_AGE_S:
            config = self._config.get(folder)
            if config is None:
                config = self._config[folder] = read_git_config(folder)
            known = self._rules[folder] = (now, IgnoreRules(folder, self._exclude, config))
        return known[1]


def _names(path: Path) -> tuple[Path, ...]:
    """The path without `.` and `..`, and the one with its links resolved."""
    return tuple(dict.fromkeys((Path(os.path.abspath(path)), Path(os.path.realpath(path)))))


def _by_name(path: str) -> str:
    name = path.rpartition("/")[2]
    if secret_file(path):
        return f"{name} is a file for secrets"
    return f"{name} is a lock file or generated" if unfit_file(name) else ""
