"""What of a working tree is copied, and whether it has changed since.

What git ignores is copied where it is small (generated modules, built extensions, data, logs,
metadata of installed packages, `.env`). The rest is left out of the copies and named: environments,
large folders and files, other repositories inside of this one. Runs see it copy-on-write where
the system can do that; elsewhere it is copied on demand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISSOCK

from clover_patcher.edits import sha256
from clover_patcher.repository.treecopy import Stamp

_NEVER_COPIED = frozenset({"__pycache__"})
Mark = tuple[int, int, int]
"""A file's size, modification time in nanoseconds, and inode."""
_IGNORED_FILES, _IGNORED_BYTES = 2_000, 32 << 20
"""So much of what is ignored is copied at once."""
_DEMANDED_FILES, _DEMANDED_BYTES = 50_000, 1 << 30
"""So much is copied when a check turns out to need it."""


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


def worth_copying(root: Path, ignored: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ignored files to copy, and paths to leave out: files, and folders as a whole.

    Names of empty folders end with "/".
    """
    copied: list[str] = []
    left_out: list[str] = []
    left = _IGNORED_BYTES
    for name in ignored:
        path = name.rstrip("/")
        if path.rpartition("/")[2] in _NEVER_COPIED or path.endswith(".pyc"):
            continue
        inside = walked(root, path, _IGNORED_FILES)
        size = total_size(root, inside) if inside is not None else 0
        if inside is None or size > left or len(copied) + len(inside) > _IGNORED_FILES:
            left_out.append(path)
        else:
            left -= size
            copied += inside
    return copied, left_out


def sockets(root: Path, files: Sequence[str]) -> list[str]:
    """Sockets in the folders that hold files; git does not list them."""
    folders = {""} | {name.rpartition("/")[0] for name in files}
    found = []
    for folder in folders:
        with suppress(OSError), os.scandir(root / folder) as entries:
            for entry in entries:
                plain = entry.is_file(follow_symlinks=False) or entry.is_symlink()
                if not plain and not entry.is_dir() and S_ISSOCK(entry.stat().st_mode):
                    found.append(f"{folder}/{entry.name}".lstrip("/"))
    return found


def bounded(root: Path, names: Sequence[str]) -> list[str] | None:
    """All files at or below some paths; None where copying them several times is too much."""
    found: list[str] = []
    for name in names:
        inside = walked(root, name, _DEMANDED_FILES)
        if inside is None:
            return None
        found += inside
    fits = len(found) <= _DEMANDED_FILES and total_size(root, found) <= _DEMANDED_BYTES
    return found if fits else None


def below(name: str, folder: str) -> bool:
    """Whether a path is the folder or inside of it."""
    return name == folder or name.startswith(f"{folder.rstrip('/')}/")


def walked(root: Path, name: str, most: int) -> list[str] | None:
    """A file, or all files and empty folders below a folder; None where there are more than `most`.

    Bytecode caches are left out: the copies are edited faster than their time stamps tell.
    """
    top = root / name
    if top.is_symlink() or not top.is_dir():
        return [name]
    found: list[str] = []
    for at, folders, names in os.walk(top):
        place = os.path.relpath(at, root)
        links = [folder for folder in folders if os.path.islink(f"{at}/{folder}")]
        folders[:] = [f for f in folders if f not in _NEVER_COPIED and f not in links]
        found += (f"{place}/{one}" for one in (*names, *links))
        if not names and not folders and not links:
            found.append(f"{place}/")
        if len(found) > most:
            return None
    return found


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
