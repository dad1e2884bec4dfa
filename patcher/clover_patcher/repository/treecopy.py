"""Copies files of a working tree: bytes, modes and links, and a stamp for each source file.

Standard library only, since it also runs by its path, as a process of its own beside the one that
runs the checks: then it reads a request from standard input, prints the stamps, and ends early
where the process that started it is gone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

_IN_MEMORY = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_LEFT_OUT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV}
)


OTHER_SOURCES = (
    ".js", ".jsx", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".go", ".rs", ".c", ".h",
    ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".java", ".lua", ".rb",
)  # fmt: skip
"""Names of source files in other languages than Python that a model's rewriting may patch."""


class Stamp(NamedTuple):
    """A source file of the snapshot. Equal size, time and inode mean equal content."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str


def copy_files(
    source: str, names: Iterable[str], target: str, going: Callable[[], bool] = lambda: True
) -> dict[str, Stamp]:
    """Copies files and links, and returns a stamp for each source file.

    Links into the source tree are turned into links within the target, and names of one file into
    names of one copy; links that lead out, and links that stand for sockets, lead to the same
    place. A name that ends with "/" is a folder to be made. Files keep their times. Source files
    are Python files (those named so, and scripts whose first line names Python) and, up to a size,
    those of other languages. What is anything else, or not
    there, or not readable, is left out; so is compiled Python that has a source beside it, which
    could be older than it looks. Stops once `going` says no. Raises `OSError` where the target
    cannot be written.
    """
    stamps: dict[str, Stamp] = {}
    made: set[str] = set()
    linked: dict[tuple[int, int, bool], str] = {}
    for name in names:
        if not going():
            break
        if name.endswith(".pyc") and "__pycache__" in name.split("/"):
            continue
        old, new = f"{source}/{name}", f"{target}/{name}"
        folder = name.rpartition("/")[0]
        if folder not in made:
            os.makedirs(f"{target}/{folder}", exist_ok=True)
            made.add(folder)
        if name.endswith("/"):
            continue
        try:
            reader = os.open(old, _READ)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                _copy_link(old, new, source, target)
            elif exc.errno == errno.ENXIO:
                _link_socket(old, new)
            elif exc.errno not in _LEFT_OUT:
                raise
            continue
        try:
            info = os.fstat(reader)
            if not stat.S_ISREG(info.st_mode):
                continue
            first = name
            if info.st_nlink > 1:  # one file here, one file there; each with a stamp of its own
                first = linked.setdefault((info.st_dev, info.st_ino, name.endswith(".py")), name)
            if first != name:
                os.link(f"{target}/{first}", new)
                stamp = stamps.get(first)
            else:
                stamp = _copy_file(reader, info, old, new)
            if stamp is not None:
                stamps[name] = stamp
        except FileExistsError:
            continue
        finally:
            os.close(reader)
    return stamps


def _copy_link(old: str, new: str, source: str, target: str) -> None:
    try:
        link = os.readlink(old)
    except OSError:  # not a link any more, or gone
        return
    if link.startswith(f"{source}/"):  # stays within the copy
        link = target + link[len(source) :]
    elif not link.startswith("/"):
        full = f"{os.path.dirname(old)}/{link}"
        if not os.path.normpath(full).startswith(f"{source}/"):
            link = full  # leads out: to the same place from everywhere
    with contextlib.suppress(FileExistsError):
        os.symlink(link, new)


def _link_socket(old: str, new: str) -> None:
    """Somebody listens at a socket in the tree: it is reached through a link."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(old).st_mode):
            os.symlink(old, new)


def _copy_file(reader: int, info: os.stat_result, old: str, new: str) -> Stamp | None:
    is_small = info.st_size <= _IN_MEMORY
    is_source = is_python(old, os.pread(reader, 100, 0)) or (is_small and is_other_source(old))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    writer = os.open(new, flags, info.st_mode & 0o777 | 0o200)
    try:
        if not (is_small or is_source):
            _send(reader, writer)
            os.utime(writer, ns=(info.st_atime_ns, info.st_mtime_ns))
            return None
        data = _read_all(reader, info.st_size)
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
        os.utime(writer, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(writer)
    if not is_source:
        return None
    digest = hashlib.sha256(data).hexdigest()
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino, digest)


def is_python(name: str, head: bytes) -> bool:
    """Whether a file is Python: by its name, or by its first line where the name says nothing."""
    if name.endswith((".py", ".pyw")):
        return True
    return head.startswith(b"#!") and b"python" in head.split(b"\n", 1)[0]


def is_other_source(name: str) -> bool:
    """Whether a file's name is that of source code in another language than Python."""
    return name.lower().endswith(OTHER_SOURCES)


def _read_all(reader: int, size: int) -> bytes:
    data = os.read(reader, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while piece := os.read(reader, _IN_MEMORY):
        pieces.append(piece)
    return b"".join(pieces)


def _send(reader: int, writer: int) -> None:
    """Copies a large file within the kernel where that is possible."""
    with open(reader, "rb", closefd=False) as old, open(writer, "wb", closefd=False) as new:
        try:
            while os.sendfile(writer, reader, None, 1 << 30):
                pass
        except (AttributeError, OSError):
            old.seek(0)
            new.truncate(0)
            new.seek(0)
            shutil.copyfileobj(old, new, _IN_MEMORY)


def main() -> None:
    """One request: source, target, and a file with the names, each ended by a null byte."""
    os.nice(5)  # the checks come first
    request = json.load(sys.stdin)
    parent = os.getppid()
    with open(request["names"], "rb") as file:
        names = [os.fsdecode(name) for name in file.read().split(b"\0")[:-1]]
    stamps = copy_files(request["source"], names, request["target"], lambda: os.getppid() == parent)
    json.dump(stamps, sys.stdout)


if __name__ == "__main__":
    main()
