"""Edits as bytes: applying them, showing them as a unified diff, and the steps of writing a file.

Nothing here decodes a file. Line ends, byte order marks, encodings and a missing final newline
survive because bytes outside an edit are never looked at.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.types import Edit

_CONTEXT = 3
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's whole content before and after. `path` is relative, with posix separators."""

    path: str
    before: bytes
    after: bytes
    created: bool = False
    """There was no such file; `before` is empty then."""
    removed: bool = False
    """There is no such file afterwards; `after` is empty then."""


def apply_edits(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Replaces the edits' byte ranges in `data`; ranges refer to `data` as given.

    Raises `ValueError` where a range lies outside the data or two ranges overlap.
    """
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if not at <= edit.start <= edit.end <= len(data):
            raise ValueError(f"edit {edit.start}:{edit.end} of {edit.path} overlaps or is outside")
        pieces += [data[at : edit.start], edit.new]
        at = edit.end
    return b"".join([*pieces, data[at:]])


def changes(files: Mapping[str, bytes], edits: Sequence[Edit]) -> list[FileChange]:
    """Groups edits by file and applies them to `files`; files without a difference are left out.

    Raises `KeyError` for an edit of an unknown file, `ValueError` as `apply_edits` does.
    """
    found = []
    for path in sorted({edit.path for edit in edits}):
        before = files[path]
        after = apply_edits(before, [edit for edit in edits if edit.path == path])
        if after != before:
            found.append(FileChange(path, before, after))
    return found


def unified_diff(changed: Sequence[FileChange]) -> bytes:
    """A patch that `git apply` and `patch -p1` accept, with the files' own bytes in it."""
    return b"".join(part for change in changed for part in _file_diff(change))


def write_changes(root: Path, changed: Sequence[FileChange]) -> None:
    """Writes all changes below `root`, or none: for copies of our own, see `apply` for the user's.

    Each file must still hold its `before` bytes. Raises `TreeChanged` where a file differs, is
    missing or cannot be written any more, and `UsageError` for a path that must not be written
    (see `safe_path`) or a read-only file.
    """
    targets = [place_of(root, change) for change in changed]
    for target, change in zip(targets, changed, strict=True):
        expect(target, change)
    done: list[int] = []
    try:
        for number, (target, change) in enumerate(zip(targets, changed, strict=True)):
            done.append(number)
            _write(target, change.after, gone=change.removed)
    except OSError as exc:
        for number in done:
            with suppress(OSError):
                change = changed[number]
                _write(targets[number], change.before, gone=change.created)
        names = ", ".join(change.path for change in changed)
        raise TreeChanged(f"could not write {names}: {exc.strerror}") from exc


def _write(target: Path, data: bytes, *, gone: bool) -> None:
    """Writes a file of a copy of our own, or removes it."""
    if gone:
        target.unlink(missing_ok=True)
    elif target.exists():
        overwrite(target, data)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def place_of(root: Path, change: FileChange) -> Path:
    """The absolute path of a file that a change writes, removes or creates.

    Raises as `safe_path` does, and `TreeChanged` where a file to be created is there already.
    """
    if not change.created:
        return safe_path(root, change.path)
    return free_path(root, change.path)


def free_path(root: Path, path: str) -> Path:
    """The absolute path of a file that a patch may create. Raises as `place_of` does."""
    at = _walked(root, path)
    if os.path.lexists(at):
        raise TreeChanged(f"{path} is there already: run the command again")
    above = next(folder for folder in at.parents if os.path.lexists(folder))
    if not above.is_dir():
        raise UsageError(f"{path} cannot be created: {above.relative_to(root)} is no folder")
    return at


def safe_path(root: Path, path: str) -> Path:
    """The absolute path of a regular file that a patch may write.

    Raises `UsageError`: the path leaves the repository, goes through a link, names something
    of git's own (in `.git`, or `.gitmodules`, `.gitattributes`, …), or is not a regular writable
    file; `TreeChanged`: it is not there any more.
    """
    at = _walked(root, path)
    try:
        mode = at.lstat().st_mode
    except OSError as exc:
        raise TreeChanged(f"{path} is gone: run the command again") from exc
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a regular file")
    if not mode & 0o222:
        raise UsageError(f"{path} is read-only: make it writable with `chmod u+w`")
    return at


def _walked(root: Path, path: str) -> Path:
    """The absolute path. Raises `UsageError` where patches have no business there."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UsageError(f"{path!r} is not a path inside the repository")
    *folders, name = (part.lower() for part in parts)
    if ".git" in folders or name.startswith(".git"):
        raise UsageError(f"{path} belongs to git: patches never touch it")
    at = root
    for part in parts:
        at = at / part
        if at.is_symlink():
            raise UsageError(f"{path} goes through a symbolic link: name the real file")
    return at


def sha256(data: bytes) -> str:
    """Hexadecimal digest that identifies a file's content."""
    return hashlib.sha256(data).hexdigest()


def expect(target: Path, change: FileChange) -> None:
    """Raises `TreeChanged` unless the file holds the change's `before` bytes, or is not there."""
    try:
        same = (
            not os.path.lexists(target) if change.created else target.read_bytes() == change.before
        )
    except OSError:
        same = False
    if not same:
        raise TreeChanged(f"{change.path} changed meanwhile: run the command again")


def stage(target: Path, data: bytes, staged: Path) -> None:
    """Prepares a file that may replace `target`: same mode, owner and extended attributes.

    `staged` must not exist and be on the target's file system. On disk when this returns.
    """
    info = target.stat()
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
        out.flush()
        with suppress(OSError):
            os.fchown(out.fileno(), info.st_uid, info.st_gid)
        os.fchmod(out.fileno(), stat.S_IMODE(info.st_mode))
        with suppress(OSError, AttributeError):  # not every system and file system has them
            for name in os.listxattr(target):
                os.setxattr(out.fileno(), name, os.getxattr(target, name))
        _date(out.fileno(), info)
        os.fsync(out.fileno())


def stage_new(data: bytes, staged: Path) -> None:
    """Prepares a file that is to be created; its mode is that of any new file."""
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def overwrite(target: Path, data: bytes) -> None:
    """Writes over a file in place, front to back, so that its inode and links stay."""
    with target.open("r+b", buffering=0) as out:
        info = os.fstat(out.fileno())
        view = memoryview(data)
        while view:
            view = view[out.write(view) :]
        out.truncate()
        _date(out.fileno(), info)
        os.fsync(out.fileno())


def _date(handle: int, before: os.stat_result) -> None:
    """Never dates a file to the second of its former content.

    Python takes a compiled file for current if its source has the recorded size and second.
    """
    info = os.fstat(handle)
    if int(info.st_mtime) == int(before.st_mtime) and info.st_size == before.st_size:
        os.utime(handle, (info.st_atime, int(info.st_mtime) + 1))


def _file_diff(change: FileChange) -> Iterator[bytes]:
    old, new = _lines(change.before), _lines(change.after)
    yield b"diff --git %s %s\n" % (_quoted("a/" + change.path), _quoted("b/" + change.path))
    if change.created or change.removed:
        yield b"%s file mode 100644\n" % (b"new" if change.created else b"deleted")
    if not (old or new):
        return
    there = [_header("a/" + change.path), _header("b/" + change.path)]
    if change.created:
        there[0] = b"/dev/null"
    if change.removed:
        there[1] = b"/dev/null"
    yield b"--- %s\n+++ %s\n" % tuple(there)
    for group in _hunks(_opcodes(old, new)):
        first, last = group[0], group[-1]
        old_range, new_range = _range(first[1], last[2]), _range(first[3], last[4])
        yield b"@@ -%s +%s @@\n" % (old_range, new_range)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (_marked(b" ", line) for line in old[i1:i2])
            else:
                yield from (_marked(b"-", line) for line in old[i1:i2])
                yield from (_marked(b"+", line) for line in new[j1:j2])


_Opcode = tuple[str, int, int, int, int]


def _opcodes(old: Sequence[bytes], new: Sequence[bytes]) -> list[_Opcode]:
    """How `old` becomes `new`; common ends are cut off first, so that big files are cheap."""
    head = _common(lambda i: old[i] == new[i], min(len(old), len(new)))
    rest = min(len(old), len(new)) - head
    tail = _common(lambda i: old[-1 - i] == new[-1 - i], rest)
    middle = SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    ).get_opcodes()
    codes: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
    codes += [(t, a + head, b + head, c + head, d + head) for t, a, b, c, d in middle]
    if tail:
        codes.append(("equal", len(old) - tail, len(old), len(new) - tail, len(new)))
    return codes


def _common(same: Callable[[int], bool], limit: int) -> int:
    return next((i for i in range(limit) if not same(i)), limit)


def _hunks(codes: Sequence[_Opcode]) -> Iterator[list[_Opcode]]:
    """Groups opcodes with three lines of context; far-apart changes get hunks of their own."""
    group: list[_Opcode] = []
    for number, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        first, last = number == 0, number == len(codes) - 1
        if group and not last and i2 - i1 <= 2 * _CONTEXT:
            group.append((tag, i1, i2, j1, j2))
            continue
        if group:
            n = min(_CONTEXT, i2 - i1)
            yield [*group, (tag, i1, i1 + n, j1, j1 + n)]
        n = min(_CONTEXT, i2 - i1)
        group = [] if last and not first else [(tag, i2 - n, i2, j2 - n, j2)]
    if any(code[0] != "equal" for code in group):
        yield group


def _range(start: int, end: int) -> bytes:
    count = end - start
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _marked(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + _NO_NEWLINE


def _header(name: str) -> bytes:
    """A name for the `---` and `+++` lines; a tab ends names with blanks, as git does it."""
    quoted = _quoted(name)
    return quoted + b"\t" if b" " in quoted else quoted


def _quoted(name: str) -> bytes:
    """A name as git writes it: in C quotes where it holds a quote, backslash or control byte."""
    raw = os.fsencode(name)
    if not any(byte < 0x20 or byte in b'"\\\x7f' for byte in raw):
        return raw
    short = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}
    out = bytearray(b'"')
    for byte in raw:
        if byte in short:
            out += b"\\" + short[byte]
        elif byte < 0x20 or byte == 0x7F:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return bytes(out + b'"')
