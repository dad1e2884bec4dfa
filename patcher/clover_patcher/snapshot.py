"""Copying a working tree as it stands: bytes, modes and links, and a stamp for each Python file.

What git ignores is copied where it is small and may matter to a check (generated modules, built
extensions, `.env`), but never whole environments or caches.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .edits import sha256

_NEVER_COPIED = frozenset(
    {"__pycache__", "node_modules", "site-packages", "venv", ".venv", "env", "virtualenv"}
    | {"build", "dist", "htmlcov", ".tox", ".nox"}
)
_IGNORED_FILES, _IGNORED_BYTES = 2_000, 32 << 20
_IN_MEMORY = 1 << 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """A Python file of the snapshot. Equal size, time and inode mean equal content."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str


def copy_files(source: Path, names: Iterable[str], target: Path) -> dict[str, Stamp]:
    """Copies files and links, and returns a stamp for each Python file.

    Links into the source tree are turned into links within the target, and names of one file into
    names of one copy. What is neither file nor link, or not there, or not readable, is left out;
    so is compiled Python that has a source beside it, which could be older than it looks.
    """
    stamps: dict[str, Stamp] = {}
    made: set[str] = set()
    linked: dict[tuple[int, int, bool], str] = {}
    for name in names:
        if name.endswith(".pyc") and "__pycache__" in name.split("/"):
            continue
        old, new = os.path.join(source, name), os.path.join(target, name)
        parent = os.path.dirname(new)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        try:
            info = os.lstat(old)
            if stat.S_ISREG(info.st_mode):
                first = _first_name(linked, info, name)
                if first is not None:  # one file here, one file there
                    os.link(os.path.join(target, first), new)
                    stamp = stamps.get(first)
                else:
                    stamp = _copy_file(old, new, info)
                if stamp is not None:
                    stamps[name] = stamp
            elif stat.S_ISLNK(info.st_mode):
                os.symlink(_relinked(os.readlink(old), source, target), new)
        except (FileNotFoundError, NotADirectoryError, PermissionError, FileExistsError):
            continue
    return stamps


def total_size(root: Path, names: Iterable[str]) -> int:
    """Bytes of all files together, as far as they are there."""
    return sum(_size(os.path.join(root, name)) for name in names)


def _first_name(
    linked: dict[tuple[int, int, bool], str], info: os.stat_result, name: str
) -> str | None:
    """Another name of the same file that was met before; Python files have stamps of their own."""
    if info.st_nlink == 1:
        return None
    key = (info.st_dev, info.st_ino, name.endswith(".py"))
    return linked[key] if linked.setdefault(key, name) != name else None


def _copy_file(old: str, new: str, info: os.stat_result) -> Stamp | None:
    if info.st_size > _IN_MEMORY and not old.endswith(".py"):
        shutil.copyfile(old, new)
        os.chmod(new, info.st_mode & 0o777 | 0o200)
        return None
    reader = os.open(old, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        info = os.fstat(reader)
        data = _read_all(reader, info.st_size)
    finally:
        os.close(reader)
    writer = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, info.st_mode & 0o777 | 0o200)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
    finally:
        os.close(writer)
    if not old.endswith(".py"):
        return None
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino, sha256(data))


def _read_all(reader: int, size: int) -> bytes:
    data = os.read(reader, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while piece := os.read(reader, _IN_MEMORY):
        pieces.append(piece)
    return b"".join(pieces)


def _relinked(link: str, source: Path, target: Path) -> str:
    """Where a copied link points: absolute links into the source stay within the copy."""
    if os.path.isabs(link) and Path(link).is_relative_to(source):
        return str(target / Path(link).relative_to(source))
    return link


def unchanged(path: Path, stamp: Stamp) -> bool:
    """Whether the file still has the stamp's content; `path` has no links in it then."""
    try:
        info = path.lstat()
        if (info.st_size, info.st_mtime_ns, info.st_ino) == (
            stamp.size,
            stamp.mtime_ns,
            stamp.inode,
        ):
            return True
        return path.resolve() == path and sha256(path.read_bytes()) == stamp.sha256
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
