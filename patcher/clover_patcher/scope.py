"""Where patches may go: the user's PATH arguments, and files that are frozen for every patch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from .errors import UsageError
from .types import Diagnostic

_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+)(?::(?P<rule>[^:\s]+))?", re.DOTALL)
_TOP_TEST_FOLDERS = frozenset({"test", "testing"})
_FROZEN_NAMES = frozenset({"conftest.py", "noxfile.py", "setup.py", "sitecustomize.py"})


def is_frozen(path: str) -> bool:
    """Whether patches must leave a file alone: tests, their configuration, CI, hidden folders.

    `path` is relative to the repository, with posix separators.
    """
    *folders, name = PurePosixPath(path).parts
    return (
        name in _FROZEN_NAMES
        or name.startswith("test_")
        or name.endswith("_test.py")
        or name == "tests.py"
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
) -> list[str]:
    """Python files at or below `paths` (all where there are none) that patches may change.

    Files that the check command, run in `cwd`, names are tests too, unless a path names them
    explicitly or nothing else could be patched. Raises `UsageError` where the paths leave nothing
    to patch.
    """
    chosen = [name for name in python_files if not paths or any(_below(name, p) for p in paths)]
    free = [name for name in chosen if not is_frozen(name)]
    if not free:
        where = ", ".join(path or "." for path in paths) or "this repository"
        why = "tests and their configuration are frozen" if chosen else "no Python file is there"
        raise UsageError(f"nothing to patch in {where}: {why}")
    words = (posixpath.join(cwd, word.split("::")[0]) for word in check_words)
    named = {posixpath.normpath(word) for word in words} - set(paths)
    return [name for name in free if name not in named] or free


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
