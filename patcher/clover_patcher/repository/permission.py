"""Which files a patch may change: the one place that decides, and says why not.

Frozen are the files from which the verdict of the check comes (tests, what belongs to them, files
that the check names), and files of CI and of tools. Everything else asks a `Permission`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from clover_patcher.errors import UsageError
from clover_patcher.repository.scope import below, matching, named_files
from clover_patcher.repository.treecopy import is_other_source

_TOP_TEST_FOLDERS = frozenset({"test", "testing"})
_FROZEN_NAMES = frozenset(
    {"conftest.py", "noxfile.py", "setup.py", "sitecustomize.py", "usercustomize.py", "tests.py"}
)
_OTHER_TESTS = re.compile(
    r"(?:^|/)(?:__tests__|spec|specs|test|e2e)/|(?:[._-](?:test|tests|spec|cy)|Tests?|IT)\.\w+$"
    r"|(?:^|/)tests?\.\w+$|\.config\.\w+$|(?:^|/)(?:build\.rs|Gruntfile\.js|Gulpfile\.js)$"
)
"""Tests, and configuration of tools, in languages other than Python."""
_NAMED = "the check names it"
_UNFREEZE = "frozen; --allow PATTERN lets a patch change them"


@dataclass(frozen=True, slots=True)
class Permission:
    """The source files that a patch may change, and why it must leave others alone."""

    free: frozenset[str]
    frozen: Mapping[str, str] = field(default_factory=dict)
    """Files that are left alone, with the reason in words."""
    paths: tuple[str, ...] = ()
    """Files and folders that the user named; none: the whole repository."""
    unfrozen: frozenset[str] = frozenset()
    """Files that the user freed."""
    checks: frozenset[str] = frozenset()
    """Files that the check command names: that they ran says nothing about the program."""

    @classmethod
    def of(
        cls,
        files: Sequence[str],
        paths: Sequence[str] = (),
        check_words: Sequence[str] = (),
        cwd: str = "",
        allow: Sequence[str] = (),
        others: Sequence[str] = (),
    ) -> Permission:
        """What is known before the check ran.

        Free are Python files at or below `paths` (all where there are none) that are not frozen
        by their names. `others`, sources in other languages, are where a path names them, or
        where no Python file is free. Files that the check command, run in `cwd`, names are tests
        too, unless a path names them explicitly or nothing else could be patched. `allow` has
        patterns of frozen files that may be changed all the same. Raises `UsageError` where the
        paths leave nothing to patch, and as `matching` does.
        """
        unfrozen, everything = matching([*files, *others], allow), frozenset(files)
        chosen = [name for name in files if not paths or any(below(name, p) for p in paths)]
        more = [name for name in others if not paths or any(below(name, p) for p in paths)]
        chosen += more if paths else ()
        frozen = _frozen_by_name(chosen, unfrozen, everything)
        free = [name for name in chosen if name not in frozen]
        if not free and more:
            chosen, frozen = more, frozen | _frozen_by_name(more, unfrozen, everything)
            free = [name for name in chosen if name not in frozen]
        if not free:
            where = ", ".join(path or "." for path in paths) or "this repository"
            tests = f"tests and their configuration are {_UNFREEZE}"
            why = tests if chosen else "no source file is there"
            raise UsageError(f"nothing to patch in {where}: {why}")
        checks = frozenset(named_files(check_words, cwd))
        named = {name: _NAMED for name in free if name in checks}
        known = cls(frozenset(free), frozen, tuple(paths), unfrozen, checks)
        return known._freezing({n: why for n, why in named.items() if not known._kept(n)})

    @property
    def named(self) -> frozenset[str]:
        """Files that are frozen for no other reason than that the check names them."""
        return frozenset(path for path, why in self.frozen.items() if why == _NAMED)

    def allows(self, path: str) -> bool:
        """Whether a patch may change the file."""
        return path in self.free

    def why_not(self, path: str) -> str:
        """Why a patch must leave the file alone, in a sentence without its full stop."""
        if why := self.frozen.get(path):
            return f"{path} may not be patched: {why}, so it is {_UNFREEZE}"
        return f"{path} may not be patched: it is not among the files named, or {_UNFREEZE}"

    def settled(self, oracle: Mapping[str, str], freed: Set[str] = frozenset()) -> Permission:
        """What is known once the check ran: files of the `oracle` are frozen, with the reason.

        `freed` are files that the check names and that are the program nevertheless. Files that
        the user named or freed stay free. Where nothing else could be patched, a file that is
        test and program in one may be.
        """
        back = self.named & freed
        kept = {n: why for n, why in self.frozen.items() if n not in back}
        known = replace(self, free=self.free | back, frozen=kept)
        more = {n: why for n, why in oracle.items() if n in known.free and not known._kept(n)}
        return known._freezing(more)

    def without_read_only(self, root: Path, paths: Iterable[str]) -> Permission:
        """Freezes those of `paths` that cannot be written in the user's tree.

        Raises `UsageError` where that is all of them: better now than when a patch has been found.
        """
        wanted = list(dict.fromkeys(paths))
        locked = {path: "it is read-only" for path in wanted if _is_read_only(root / path)}
        if wanted and len(locked) == len(wanted):
            path = wanted[0]
            raise UsageError(f"{path} is read-only: make it writable with `chmod u+w {path}`")
        return replace(self, free=self.free - locked.keys(), frozen={**self.frozen, **locked})

    def _kept(self, path: str) -> bool:
        """Whether the user named or freed that very file."""
        return path in self.paths or path in self.unfrozen

    def _freezing(self, more: Mapping[str, str]) -> Permission:
        """With more frozen files, unless nothing would be left to patch."""
        left = self.free - more.keys()
        return replace(self, free=left, frozen={**self.frozen, **more}) if left else self


def is_frozen(path: str) -> bool:
    """Whether patches must leave a file alone: tests and their configuration, CI, hidden.

    `path` is relative to the repository, with posix separators.
    """
    *folders, name = path.split("/")
    return (
        name in _FROZEN_NAMES
        or name.startswith(("test_", "."))
        or name.endswith(("_test.py", "_tests.py"))
        or (is_other_source(name) and bool(_OTHER_TESTS.search(path)))
        or any(folder == "tests" or folder.startswith(".") for folder in folders)
        or bool(folders and folders[0] in _TOP_TEST_FOLDERS)
    )


def _frozen_by_name(
    chosen: Sequence[str], unfrozen: Set[str], everything: Set[str]
) -> dict[str, str]:
    return {
        name: "by its name it is a test, or configuration of tests or CI"
        for name in chosen
        if name not in unfrozen and is_frozen(name) and not _is_product(name, everything)
    }


def _is_product(path: str, files: Set[str]) -> bool:
    """Whether only the name `testing` of a package at the top speaks for tests."""
    inside = path.partition("/")[2]
    package = path.startswith("testing/") and "testing/__init__.py" in files
    return package and not is_frozen(inside)


def all_frozen(paths: Set[str]) -> bool:
    """Whether all files are frozen by their names."""
    return all(is_frozen(path) for path in paths)


def _is_read_only(file: Path) -> bool:
    return file.exists() and not file.stat().st_mode & 0o222
