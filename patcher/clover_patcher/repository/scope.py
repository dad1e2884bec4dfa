"""Where patches may go: the user's PATH arguments, and files that are frozen for every patch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from clover_patcher.errors import UsageError
from clover_patcher.types import Diagnostic, Location

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+)(?::(?P<rule>[^:\s]+))?", re.DOTALL)
_TOP_TEST_FOLDERS = frozenset({"test", "testing"})
_FROZEN_NAMES = frozenset(
    {"conftest.py", "noxfile.py", "setup.py", "sitecustomize.py", "usercustomize.py", "tests.py"}
)
FROZEN = "frozen; --allow PATTERN lets a patch change them"
"""What to say of files that `is_frozen` names."""


def is_frozen(path: str) -> bool:
    """Whether patches must leave a Python file alone: tests and their configuration, CI, hidden.

    `path` is relative to the repository, with posix separators.
    """
    *folders, name = path.split("/")
    return (
        name in _FROZEN_NAMES
        or name.startswith(("test_", "."))
        or name.endswith(("_test.py", "_tests.py"))
        or any(folder == "tests" or folder.startswith(".") for folder in folders)
        or bool(folders and folders[0] in _TOP_TEST_FOLDERS)
    )


def resolve_paths(root: Path, cwd: Path, paths: Sequence[str]) -> list[str]:
    """The user's PATH arguments relative to the repository ("" is all of it).

    Raises `UsageError` for a path that is missing, outside the repository, or no Python file.
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
    if not path.endswith(".py"):
        raise UsageError(f"{match['path']} is a folder: name a file and a line, such as x.py:3")
    return Diagnostic(path, int(match["line"]), "", match["rule"] or "")


def select_files(
    python_files: Sequence[str],
    paths: Sequence[str],
    check_words: Sequence[str] = (),
    cwd: str = "",
    unfrozen: Set[str] = frozenset(),
) -> list[str]:
    """Python files at or below `paths` (all where there are none) that patches may change.

    Files that the check command, run in `cwd`, names are tests too, unless a path names them
    explicitly or nothing else could be patched. `unfrozen` are tests that may be changed all the
    same. Raises `UsageError` where the paths leave nothing to patch.
    """
    chosen = [name for name in python_files if not paths or any(_below(name, p) for p in paths)]
    free = [name for name in chosen if name in unfrozen or not is_frozen(name)]
    if not free:
        where = ", ".join(path or "." for path in paths) or "this repository"
        why = f"tests and their configuration are {FROZEN}" if chosen else "no Python file is there"
        raise UsageError(f"nothing to patch in {where}: {why}")
    named = named_files(check_words, cwd) - set(paths) - unfrozen
    return [name for name in free if name not in named] or free


def named_files(check_words: Sequence[str], cwd: str = "") -> set[str]:
    """The words of a check command, run in `cwd`, as paths from the repository's top."""
    words = (posixpath.join(cwd, word.split("::")[0]) for word in check_words)
    return {posixpath.normpath(word) for word in words}


def without_tests(
    allowed: Sequence[str], nodeids: Iterable[str], kept: Set[str] = frozenset()
) -> list[str]:
    """Files that hold none of these pytest tests, whatever they are called; all where all do.

    Doctests are about the file they stand in. `kept` are files that may be changed all the same.
    """
    places = {_test_file(nodeid) for nodeid in nodeids} - {""}
    free = [
        name
        for name in allowed
        if name in kept or not any(name == place or name.endswith(f"/{place}") for place in places)
    ]
    return free or list(allowed)


def _test_file(nodeid: str) -> str:
    """The file of a test, "" for a doctest and for what is no test of a file."""
    path, _, name = nodeid.partition("::")
    doctest = PurePosixPath(path).stem in name.split("::")[0].split("[")[0].split(".")
    return "" if doctest or not name else path


def writable(root: Path, locations: Sequence[Location]) -> list[Location]:
    """Places in files that are not read-only.

    Raises `UsageError` where there are none: better now than when a patch has been found.
    """
    read_only = {
        path
        for path in {at.path for at in locations}
        if (file := root / path).exists() and not file.stat().st_mode & 0o222
    }
    if found := [at for at in locations if at.path not in read_only]:
        return found
    path = locations[0].path
    raise UsageError(f"{path} is read-only: make it writable with `chmod u+w {path}`")


def matching(python_files: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    """Python files that match a pattern of the `.gitignore` syntax, from the repository's top.

    Raises `UsageError` for a pattern that is none, or that no file matches.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            matched = set(_spec(pattern).match_files(python_files))
        except ValueError as exc:
            raise UsageError(f"{pattern!r} is not a pattern as in .gitignore: {exc}") from exc
        if not matched:
            raise UsageError(f"{pattern!r} matches no Python file: start at the repository's top")
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
    if full.is_file() and full.suffix != ".py":
        raise UsageError(f"{path} is not a Python file: only Python files are patched")
    relative = full.relative_to(root).as_posix()
    return "" if relative == "." else relative


def _below(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(folder + "/")
