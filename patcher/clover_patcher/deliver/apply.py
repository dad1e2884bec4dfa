"""Writing a patch into the user's tree: all of it or nothing, whenever the process dies.

Files are compared with what the patch was made for, recorded (see `journal`), prepared beside,
and replaced one by one. `recover` decides what a killed process left: nothing written, or all
written, stays as it is; a mixture goes back to the old files. Bytes that are neither ours nor
the ones we replaced belong to the user, and are never written over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from clover_patcher.deliver.journal import Entry, FileRecord, Journal, State, backup_of, near_target
from clover_patcher.edits import (
    FileChange,
    expect,
    overwrite,
    place_of,
    safe_path,
    sha256,
    stage,
    stage_new,
)
from clover_patcher.errors import PatcherError, TreeChanged, UsageError

OnDisk = Literal["old", "new", "torn", "theirs"]
"""What a file of a record holds now. Torn: half overwritten in place."""
AfterWrite = Callable[[Entry], None]
"""What belongs to a record besides its files; done while it is pending, perhaps twice."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A record that a killed process left pending: whether it is written now, and what to say."""

    entry: Entry
    written: bool
    message: str


def write_recorded(
    journal: Journal,
    entry: Entry,
    changed: Sequence[FileChange],
    after_write: AfterWrite = lambda entry: None,
) -> Entry:
    """Makes the changes in the entry's working tree, or none; returns the finished record.

    Where that fails, or its process dies, an empty folder made for a new file may stay.
    The journal's lock must be held. Modes, owners, extended attributes and hard links survive.
    Where `after_write` fails, nothing is changed either.
    Raises `TreeChanged` where a file is not what it was, or cannot be written any more, and
    `UsageError` for a path that must not be written (see `safe_path`) or a read-only file.
    """
    root = Path(entry.root)
    targets = [place_of(root, change) for change in changed]
    for target, change in zip(targets, changed, strict=True):
        expect(target, change)
        _make_folder(target, change)
    records = [
        FileRecord(change.path, "", "", _staging(journal, entry, number, target, change))
        for number, (target, change) in enumerate(zip(targets, changed, strict=True))
    ]
    try:
        entry = journal.prepare(replace(entry, files=tuple(records)), changed)
    except OSError as exc:
        raise TreeChanged(f"could not record the patch before writing: {exc.strerror}") from exc
    state: State = "new"
    try:
        for file, target, change in zip(entry.files, targets, changed, strict=True):
            if file.staged:
                _stage(target, change.after, Path(file.staged))
        journal.move(entry, "new", "pending")
        state = "pending"
        for file, target, change in zip(entry.files, targets, changed, strict=True):
            expect(target, change)
            _put(file, target, change.after)
        after_write(entry)
        journal.move(entry, "pending", "done")
    except BaseException as exc:
        _take_back(journal, entry, state)
        if isinstance(exc, OSError):
            names = ", ".join(change.path for change in changed)
            raise TreeChanged(f"could not write {names}: {exc.strerror}") from exc
        raise
    journal.clean()
    return entry


def recover(
    journal: Journal,
    after_write: AfterWrite = lambda entry: None,
    ours: Callable[[Entry], bool] = lambda entry: True,
) -> list[Recovered]:
    """Settles what killed processes left pending; does nothing while another process writes.

    Records that are not `ours` (of a working tree that is gone, or of none) stay as they are.
    """
    settled = []
    with suppress(UsageError), journal.locked(wait_s=0):
        for entry in filter(ours, journal.entries("pending")):
            try:
                settled.append(_settle(journal, entry, after_write))
            except (OSError, PatcherError) as exc:
                settled.append(Recovered(entry, False, _unsettled(journal, entry, exc)))
        journal.clean()
    return settled


def inspect(journal: Journal, entry: Entry, state: State) -> list[OnDisk]:
    """What each file of a record holds now."""
    return [
        _inspect(Path(entry.root) / file.path, file, change)
        for file, change in zip(entry.files, journal.changes(entry, state), strict=True)
    ]


def _make_folder(target: Path, change: FileChange) -> None:
    """Makes the folder of a new file."""
    if change.created:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise TreeChanged(f"could not create {change.path}: {exc.strerror}") from exc


def _staging(
    journal: Journal, entry: Entry, number: int, target: Path, change: FileChange
) -> str | None:
    """None for a file with several names, of which only the content may be replaced, and for one
    that goes."""
    if change.removed or (not change.created and target.stat().st_nlink > 1):
        return None
    return str(journal.staged(entry, number, target))


def _stage(target: Path, data: bytes, staged: Path) -> None:
    """Prepares the content of a file that is there, or not yet."""
    if os.path.lexists(target):
        stage(target, data, staged)
    else:
        stage_new(data, staged)


def _put(file: FileRecord, target: Path, data: bytes) -> None:
    if not file.after:
        target.unlink()
    elif file.staged:
        _move(Path(file.staged), target)
    else:
        overwrite(target, data)


def _move(prepared: Path, target: Path) -> None:
    """Puts prepared content in place of a file with one rename.

    Equal devices do not make sure that files can be moved (mounts, quotas, encryption): where
    they cannot, the content is prepared again beside the file.
    """
    try:
        os.replace(prepared, target)
    except OSError as exc:
        near = near_target(prepared, target)
        if exc.errno != errno.EXDEV or prepared == near:
            raise
        near.unlink(missing_ok=True)
        _stage(target, prepared.read_bytes(), near)
        os.replace(near, target)
        prepared.unlink()


def _take_back(journal: Journal, entry: Entry, state: State) -> None:
    """After a failure of our own: the old files again; where that fails too, `recover` does it."""
    with suppress(OSError, PatcherError):
        if state == "pending":
            _restore(journal, entry, inspect(journal, entry, state))
            journal.move(entry, "pending", "new")
        journal.clean()


def _settle(journal: Journal, entry: Entry, after_write: AfterWrite) -> Recovered:
    """Brings one pending record to an end."""
    found = inspect(journal, entry, "pending")
    arrived = [
        what == "new" or (what == "theirs" and _was_replaced(file))
        for what, file in zip(found, entry.files, strict=True)
    ]
    names, what = ", ".join(file.path for file in entry.files), _name(entry)
    if all(arrived):
        problem = ""
        try:
            after_write(entry)
        except PatcherError as exc:
            problem = f", but the rest was not done: {exc}"
        journal.move(entry, "pending", "done")
        state = "patched" if entry.undoes is None else "as it was before the fix"
        message = f"{what} was killed when all was written: {names} is {state}{problem}"
        return Recovered(entry, True, message)
    _restore(journal, entry, found)
    theirs = [f.path for f, was in zip(entry.files, found, strict=True) if was == "theirs"]
    if theirs:
        kept = journal.move(entry, "pending", "conflicts")
        return Recovered(
            entry,
            False,
            f"{what} was killed halfway, and {', '.join(theirs)} changed since: your version "
            f"stays, its other files are as before, and both versions of all are in {kept}",
        )
    journal.move(entry, "pending", "new")
    return Recovered(entry, False, f"{what} was killed halfway: {names} is as before")


def _name(entry: Entry) -> str:
    return f"the fix {entry.id}" if entry.undoes is None else f"the undo of {entry.undoes}"


def _unsettled(journal: Journal, entry: Entry, exc: Exception) -> str:
    return (
        f"{_name(entry)} was killed halfway and cannot be settled ({exc}); "
        f"both versions of its files are in {journal.folder / 'pending' / entry.id}"
    )


def _was_replaced(file: FileRecord) -> bool:
    """Whether our content went into the file: all of it was prepared before any was moved."""
    return file.staged is not None and not os.path.lexists(file.staged)


def _restore(journal: Journal, entry: Entry, on_disk: Sequence[OnDisk]) -> None:
    """Puts the old bytes back where ours arrived, or half arrived."""
    for number, (file, what) in enumerate(zip(entry.files, on_disk, strict=True)):
        if what not in ("new", "torn"):
            continue
        before = journal.content(entry, "pending", number, "before")
        if not file.after:
            target = place_of(Path(entry.root), FileChange(file.path, b"", before, created=True))
            target.write_bytes(before)
            continue
        target = safe_path(Path(entry.root), file.path)
        if not file.before:
            target.unlink()
        elif file.staged:
            back = backup_of(Path(file.staged))
            back.unlink(missing_ok=True)
            stage(target, before, back)
            _move(back, target)
        else:
            overwrite(target, before)


def _inspect(path: Path, file: FileRecord, change: FileChange) -> OnDisk:
    try:
        data = None if path.is_symlink() else path.read_bytes()
    except FileNotFoundError:
        return "old" if not file.before else "theirs" if file.after else "new"
    except OSError:
        data = None
    if data is None:
        return "theirs"
    digest = sha256(data)
    if digest in (file.before, file.after):
        return "new" if digest == file.after else "old"
    return "torn" if file.staged is None and _is_torn(data, change) else "theirs"


def _is_torn(data: bytes, change: FileChange) -> bool:
    """Whether every byte is the old or the new one of its place: writing was cut off there."""
    return all(
        byte in pair
        for byte, *pair in zip_longest(data, change.before, change.after)
        if byte is not None
    ) and min(len(change.before), len(change.after)) <= len(data)
