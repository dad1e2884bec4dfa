"""What of a working tree is copied, and whether it has changed since.

What git ignores is copied where it is small and may matter to a check (generated modules, built
extensions, `.env`), but never whole environments or caches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from clover_patcher.edits import sha256
from clover_patcher.repository.treecopy import Stamp

_NEVER_COPIED = frozenset(
    {"__pycache__", "node_modules", "site-packages", "venv", ".venv", "env", "virtualenv"}
    | {"build", "dist", "htmlcov", ".tox", ".nox"}
)
Mark = tuple[int, int, int]
"""A file's size, modification time in nanoseconds, and inode."""
_IGNORED_FILES, _IGNORED_BYTES = 2_000, 32 << 20


def total_size(root: Path, names: Iterable[str]) -> int:
    """Bytes of all files together, as far as they are there."""
    return sum(_size(f"{root}/{name}") for name in names)


def marks(root: Path, names: Iterable[str]) -> dict[str, Mark]:
    """By which it can be told whether files have changed; those that are not there have none."""
    found = {}
    for name in names:
        try:
            info = os.lstat(f"{root}/{name}")
        except OSError:
            continue
        found[name] = (info.st_size, info.st_mtime_ns, info.st_ino)
    return found


def unchanged(path: str, stamp: Stamp) -> bool:
    """Whether the file still has the stamp's content; `path` has no links in it then."""
    try:
        info = os.lstat(path)
        if (info.st_size, info.st_mtime_ns, info.st_ino) == stamp[:3]:
            return True
        with open(path, "rb") as file:
            return os.path.realpath(path) == path and sha256(file.read()) == stamp.sha256
    except OSError:
        return False


def worth_copying(root: Path, ignored: Sequence[str]) -> list[str]:
    """Ignored files that a check may need: small ones outside of environments and caches."""
    found: list[str] = []
    left = _IGNORED_BYTES
    for name in ignored:
        inside = _walk(root, name) if name.endswith("/") else [name]
        sizes = {path: _size(os.path.join(root, path)) for path in inside if _welcome(path)}
        if sum(sizes.values()) <= left and len(found) + len(sizes) <= _IGNORED_FILES:
            left -= sum(sizes.values())
            found += sizes
    return found


def _walk(root: Path, folder: str) -> list[str]:
    """Files of an ignored folder, up to the limit; none where it is an environment or cache."""
    found: list[str] = []
    if not _welcome(folder.rstrip("/")):
        return found
    for at, folders, names in os.walk(root / folder):
        if "pyvenv.cfg" in names or ".git" in folders + names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if _welcome(name)]
        found += (os.path.relpath(os.path.join(at, name), root) for name in names)
        if len(found) > _IGNORED_FILES:
            return []
    return found


def _welcome(path: str) -> bool:
    folders = path.split("/")
    return not path.endswith((".pyc", ".log")) and not any(
        name in _NEVER_COPIED or name.endswith(("_cache", ".egg-info")) for name in folders
    )


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
