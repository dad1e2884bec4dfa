"""What is written into a working tree, on record before and after: for kills, and for undo.

A record is a folder in the repository's common git directory that never changes once it is
written: `entry.json`, and every file's bytes before and after. How far its writing came is told
by where the folder stands, and it moves with a single rename:

    clover/new/        being prepared: the tree is untouched
    clover/pending/    the tree may hold any mixture of old and new files
    clover/done/       everything is written; the newest `KEPT` are what `clover-code undo` knows
    clover/conflicts/  someone else changed the files in between; both versions are kept

Whoever moves records holds the lock, which ends with its process. Nothing here looks at the tree.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from clover_patcher.edits import FileChange, sha256
from clover_patcher.errors import UsageError
from clover_patcher.repository.locks import try_lock

KEPT = 20
"""So many fixes are kept for undo, and so many conflicts for the user."""
_LOCK_WAIT_S = 10.0
_ENTRY, _COMMIT = "entry.json", "commit.json"
_BACK = "-back"

State = Literal["new", "pending", "done", "conflicts"]
_STATES: tuple[State, ...] = ("new", "pending", "done", "conflicts")
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-(?:[0-9a-f]{5}|[0-9a-f]{10})")
"""The shorter ones are of earlier versions."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a record. `before` and `after` are SHA-256 digests, empty for no file."""

    path: str
    before: str
    after: str
    staged: str | None
    """Where the new content waits until it replaces the file; None: it is overwritten in place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record: which files of which working tree were to change, and why."""

    id: str
    root: str
    """Top of the working tree: a repository can have several."""
    created: float
    """Seconds since the epoch."""
    title: str
    files: tuple[FileRecord, ...] = ()
    head: str | None = None
    """What HEAD was."""
    undoes: str | None = None
    """The record that this one takes back."""
    commit: str | None = None
    """The commit that an undo takes off the branch, once the files are back."""

    @classmethod
    def make(cls, root: Path, title: str, **more: Any) -> Entry:
        """A new record without files; ids sort by time."""
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        mark = f"{stamp}-{int(now * 1e6) % 1_000_000:06d}{secrets.token_hex(2)}"
        return cls(mark, str(root), now, title, **more)


class Journal:
    """The records of a repository, in `common_dir` (see `Repository.common_dir`)."""

    def __init__(self, common_dir: Path) -> None:
        self.folder = common_dir / "clover"

    @contextmanager
    def locked(self, wait_s: float = _LOCK_WAIT_S) -> Iterator[None]:
        """Keeps other clover-code processes from writing into the repository's trees.

        Raises `UsageError` where one of them still does after `wait_s` seconds, and where the
        git directory cannot be written.
        """
        lock = self._open_lock()
        try:
            end = time.monotonic() + wait_s
            while not _try_lock(lock):
                if time.monotonic() > end:
                    raise UsageError(
                        "another clover-code is writing into this repository: wait for it to end"
                    )
                time.sleep(0.02)
            yield
        finally:
            os.close(lock)

    def require_writable(self) -> None:
        """Raises `UsageError` where records cannot be written, before there is anything to."""
        os.close(self._open_lock())

    def staged(self, entry: Entry, number: int, target: Path) -> Path:
        """Where the new content of `target` can wait so that one rename puts it in place."""
        if _mount(self.folder / "new") == _mount(target.parent):
            return self.folder / f"staged-{entry.id}-{number}"
        return beside(entry, number, target)

    def prepare(self, entry: Entry, changed: Sequence[FileChange]) -> Entry:
        """Writes a record to disk, as new. `entry` lacks the digests, which are filled in."""
        files = [
            replace(
                file,
                before="" if change.created else sha256(change.before),
                after="" if change.removed else sha256(change.after),
            )
            for file, change in zip(entry.files, changed, strict=True)
        ]
        entry = replace(entry, files=tuple(files))
        folder = self._path(entry.id, "new")
        folder.mkdir()
        for number, change in enumerate(changed):
            _write(folder / f"{number}.before", change.before)
            _write(folder / f"{number}.after", change.after)
        _write(folder / _ENTRY, json.dumps(asdict(entry), indent=1).encode())
        _sync(folder)
        return entry

    def move(self, entry: Entry, old: State, new: State) -> Path:
        """Says how far the writing came; returns where the record is now. On disk afterwards."""
        source, target = self._path(entry.id, old), self._path(entry.id, new)
        target.parent.mkdir(exist_ok=True)
        os.rename(source, target)
        _sync(target.parent)
        _sync(source.parent)
        return target

    def content(self, entry: Entry, state: State, number: int, side: str) -> bytes:
        """A file's bytes; `side` is "before" or "after"."""
        return (self._path(entry.id, state) / f"{number}.{side}").read_bytes()

    def changes(self, entry: Entry, state: State) -> list[FileChange]:
        """The record's files with their bytes on both sides."""
        return [
            FileChange(
                file.path,
                self.content(entry, state, number, "before"),
                self.content(entry, state, number, "after"),
                created=not file.before,
                removed=not file.after,
            )
            for number, file in enumerate(entry.files)
        ]

    def entries(self, state: State) -> list[Entry]:
        """Records in that state, oldest first; what cannot be read is left out."""
        found = []
        for folder in sorted(self.folder.glob(f"{state}/*")):
            with suppress(OSError, ValueError, TypeError, KeyError):
                entry = _parse(json.loads((folder / _ENTRY).read_bytes()))
                if entry.id == folder.name and self._is_consistent(entry):
                    found.append(entry)
        return found

    def note_commit(self, entry: Entry, commit: str, rewritten: dict[str, str]) -> None:
        """Remembers the commit of a finished fix, and digests of files that its hooks rewrote."""
        folder = self._path(entry.id, "done")
        said = {"commit": commit, "rewritten": rewritten}
        _write(folder / (_COMMIT + ".new"), json.dumps(said).encode())
        os.replace(folder / (_COMMIT + ".new"), folder / _COMMIT)

    def committed(self, entry: Entry) -> tuple[str | None, dict[str, str]]:
        """What `note_commit` was told last."""
        try:
            said = json.loads((self._path(entry.id, "done") / _COMMIT).read_bytes())
        except FileNotFoundError:
            return None, {}
        return said["commit"], said["rewritten"]

    def clean(self) -> None:
        """Removes what killed processes left half prepared, and the oldest records.

        The lock must be held: then nobody else prepares anything.
        """
        for entry in [*self.entries("new"), *self.entries("conflicts")]:
            for prepared in self._prepared(entry):
                prepared.unlink(missing_ok=True)
        needed = {str(path) for entry in self.entries("pending") for path in self._prepared(entry)}
        for leftover in [*self.folder.glob("new/*"), *self.folder.glob("staged-*")]:
            if str(leftover) not in needed:
                self._remove(leftover)
        fixes = [e for e in self.entries("done") if e.undoes is None]
        gone = {e.id for e in fixes[:-KEPT]}
        for entry in self.entries("done"):
            if {entry.id, entry.undoes} & gone:
                self._remove(self._path(entry.id, "done"))
        for entry in self.entries("conflicts")[:-KEPT]:
            self._remove(self._path(entry.id, "conflicts"))

    def _prepared(self, entry: Entry) -> Iterator[Path]:
        """Where content of a record's files may wait. Always of our own naming: see `_parse`."""
        for number, file in enumerate(entry.files):
            if file.staged:
                places = {Path(file.staged), beside(entry, number, Path(entry.root) / file.path)}
                yield from (p for place in places for p in (place, backup_of(place)))

    def _path(self, mark: str, state: State) -> Path:
        return self.folder / state / mark

    def _is_consistent(self, entry: Entry) -> bool:
        """Whether a record names only files that we would have named: others are not removed."""
        if _ID.fullmatch(entry.id) is None:
            return False
        for number, file in enumerate(entry.files):
            parts = PurePosixPath(file.path).parts
            if not parts or parts[0] == "/" or ".." in parts:
                return False
            own = self.folder / f"staged-{entry.id}-{number}"
            allowed = (own, beside(entry, number, Path(entry.root) / file.path))
            if file.staged is not None and Path(file.staged) not in allowed:
                return False
        return True

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _open_lock(self) -> int:
        for folder in (self.folder, *(self.folder / state for state in _STATES)):
            if folder.is_symlink():
                raise UsageError(f"{folder} is a symbolic link: remove it, nothing is kept there")
        try:
            (self.folder / "new").mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise UsageError(
                f"cannot write {self.folder}: {exc.strerror}; make the git directory writable"
            ) from exc


def beside(entry: Entry, number: int, target: Path) -> Path:
    """Where new content waits in the folder of its file, if it cannot wait anywhere else."""
    return target.parent / f".clover-{entry.id}-{number}.tmp"


def near_target(prepared: Path, target: Path) -> Path:
    """The place in the folder of its file for content that waits in `prepared` now."""
    if prepared.name.startswith(".clover-"):
        return prepared
    name = prepared.name.removeprefix("staged-")
    near = target.parent / f".clover-{name.removesuffix(_BACK)}.tmp"
    return backup_of(near) if name.endswith(_BACK) else near


def backup_of(staged: Path) -> Path:
    """Where old content waits on its way back, for a file whose new content waited in `staged`."""
    return staged.with_name(staged.name + _BACK)


def _parse(data: dict[str, Any]) -> Entry:
    files = tuple(FileRecord(**file) for file in data.pop("files"))
    return Entry(files=files, **data)


def _mount(folder: Path) -> tuple[int, str]:
    """Stands for the mount that a folder is on: one device can be mounted in several places."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        device, mount = os.fstat(handle).st_dev, ""
        with suppress(OSError), open(f"/proc/self/fdinfo/{handle}") as lines:  # Linux only
            mount = next((line for line in lines if line.startswith("mnt_id:")), "")
        return device, mount
    finally:
        os.close(handle)


def _try_lock(lock: int) -> bool:
    try:
        return try_lock(lock)
    except OSError as exc:
        raise UsageError(f"cannot lock files in the git directory: {exc.strerror}") from exc


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
