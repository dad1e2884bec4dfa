"""The user's PATH, FILE:LINE and PATTERN arguments as files of the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clover_patcher.errors import UsageError
from clover_patcher.repository.treecopy import is_other_source, is_python
from clover_patcher.types import Diagnostic

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+)(?::(?P<rule>[^:\s]+))?", re.DOTALL)


def resolve_paths(root: Path, cwd: Path, paths: Sequence[str]) -> list[str]:
    """The user's PATH arguments relative to the repository ("" is all of it).

    Raises `UsageError` for a path that is missing, outside the repository, or no source file.
    """
    return [_resolve(root, cwd, path) for path in paths]


def resolve_only(root: Path, cwd: Path, text: str) -> Diagnostic:
    """The user's FILE:LINE[:RULE] as a diagnostic without a message.

    Raises `UsageError` for another form, and as `resolve_paths` does.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not FILE:LINE or FILE:LINE:RULE, such as prog.py:3:F401")
    path = _resolve(root, cwd, match["path"])
    if (root / path).is_dir():
        raise UsageError(f"{match['path']} is a folder: name a file and a line, such as x.py:3")
    return Diagnostic(path, int(match["line"]), "", match["rule"] or "")


def named_files(check_words: Sequence[str], cwd: str = "") -> set[str]:
    """The words of a check command, run in `cwd`, as paths from the repository's top."""
    words = (posixpath.join(cwd, word.split("::")[0]) for word in check_words)
    return {posixpath.normpath(word) for word in words}


def matching(files: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    """Source files that match a pattern of the `.gitignore` syntax, from the repository's top.

    Raises `UsageError` for a pattern that is none, or that no file matches.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            matched = set(_spec(pattern).match_files(files))
        except ValueError as exc:
            raise UsageError(f"{pattern!r} is not a pattern as in .gitignore: {exc}") from exc
        if not matched:
            raise UsageError(f"{pattern!r} matches no source file: start at the repository's top")
        found |= matched
    return frozenset(found)


def _spec(pattern: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # slow to import, and few runs need it

    return GitIgnoreSpec.from_lines([pattern])


def _resolve(root: Path, cwd: Path, path: str) -> str:
    full = (cwd / path).resolve()
    if not full.exists():
        raise UsageError(f"{path} does not exist: PATH names files or folders that may be patched")
    if not full.is_relative_to(root):
        raise UsageError(f"{path} is outside the repository {root}")
    if full.is_file() and not _is_source(full):
        raise UsageError(f"{path} is not a source file: only source code is patched")
    relative = full.relative_to(root).as_posix()
    return "" if relative == "." else relative


def _is_source(path: Path) -> bool:
    with path.open("rb") as file:
        return is_other_source(path.name) or is_python(path.name, file.read(100))


def below(name: str, folder: str) -> bool:
    """Whether a file is the folder's, or the file itself; "" is the whole repository."""
    return not folder or name == folder or name.startswith(folder + "/")
