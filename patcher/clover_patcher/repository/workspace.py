"""A place to try patches: copies of the working tree, dirty state included, outside of it.

Each copy is a detached git worktree (so that checks which ask git get answers) whose files are
the user's own bytes, copied rather than checked out: no content filter runs, no line end is
normalised, nothing is added to the user's index or object store.

A workspace holds a lock while it is in use. One that a killed run left behind is removed, with
its worktree records, when the next run starts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from clover_patcher.edits import sha256
from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.repository.copies import Copies
from clover_patcher.repository.git import Listing, Repository
from clover_patcher.repository.leftovers import WORKSPACES
from clover_patcher.repository.overlay import require_overlay
from clover_patcher.repository.snapshot import total_size, unchanged, worth_copying
from clover_patcher.repository.treecopy import Stamp

_LOCK, _OWNER = "lock", "owner.json"
_MEMORY, _MEMORY_BYTES, _ROOM = Path("/dev/shm"), 64 << 20, 16
"""A file system in memory, the largest tree that goes there, and how often it must fit."""
_REMOVERS = 2
_YOUNG_S = 60.0
"""A folder without a lock file is left alone this long: its run may just be starting."""


class Workspace:
    """Copies of a repository's working tree in a temporary folder; a context manager.

    The first tree is ready at once; the others, and a fresh one to confirm a patch in, are made
    beside the checks. `scratch` is an empty folder for other temporary files.
    `overlay` maps repository-relative paths to the bytes that the copies hold instead of the
    user's file: unsaved buffers, of new files too.

    Entering raises `UsageError` where no worktree can be made, `TreeChanged` where files change
    while they are copied.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        trees: int = 1,
        overlay: Mapping[str, bytes] | None = None,
    ) -> None:
        self.repository = repository
        self.stamps: dict[str, Stamp] = {}
        self._wanted = trees
        self._made = trees
        self._first = Path()
        self._copies: Copies | None = None
        self._retiring: threading.Thread | None = None
        self._overlay = dict(overlay or {})
        self._listing: Listing | None = None
        self._folder: Path | None = None
        self._lock = -1

    def __enter__(self) -> Workspace:
        require_overlay(self.repository.root, self._overlay)
        sweep(self.repository)
        self._listing = self._list()
        size = total_size(self.repository.root, self._listing.files)
        self._folder, self._lock = _claim(temporary_root(self.repository.root, size))
        try:
            owner = {"root": str(self.repository.root), "pid": os.getpid()}
            (self._folder / _OWNER).write_text(json.dumps(owner))
            self.scratch.mkdir()
            self._copy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def trees(self) -> list[Path]:
        """All copies to run checks in; waits for them, and raises as `tree` does."""
        return [self.tree(number) for number in range(self._wanted)]

    def tree(self, number: int) -> Path:
        """One of the copies to run checks in, as soon as it is there.

        Raises `TreeChanged` where the user's Python files changed while it was made.
        """
        assert self._copies is not None, "the workspace is not open"
        if number == 0:
            return self._first
        tree, stamps = self._copies.take(number)
        for path, stamp in self.stamps.items():
            if path not in stamps or stamps[path].sha256 != stamp.sha256:
                raise TreeChanged(f"{path} changed meanwhile: run the command again")
        return tree

    @property
    def scratch(self) -> Path:
        assert self._folder is not None, "the workspace is not open"
        return self._folder / "scratch"

    @property
    def python_files(self) -> list[str]:
        """Python files that a patch may be about: tracked, or untracked and not ignored."""
        assert self._listing is not None, "the workspace is not open"
        return [name for name in self._listing.files if name in self.stamps]

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the snapshot, except ignored ones."""
        assert self._listing is not None, "the workspace is not open"
        return self._listing.files

    def read(self, path: str) -> bytes:
        """A Python file's bytes as of the snapshot.

        Raises `OSError` where the check itself has rewritten or removed it in the meantime.
        """
        data = (self._first / path).read_bytes()
        if sha256(data) != self.stamps[path].sha256:
            raise OSError(errno.ESTALE, "the check rewrites this file", path)
        return data

    def intact(self, path: str) -> bool:
        """Whether a Python file of the first copy is still as it was."""
        try:
            self.read(path)
        except OSError:
            return False
        return True

    def changed(self) -> list[str]:
        """Python files of the user's tree that differ from the snapshot now, buffers aside."""
        root = self.repository.root
        return [
            path
            for path, stamp in self.stamps.items()
            if path not in self._overlay and not unchanged(f"{root}/{path}", stamp)
        ]

    def fresh(self) -> Path:
        """One more copy, untouched by earlier runs.

        Raises `TreeChanged` where the user's Python files differ from the snapshot.
        """
        if different := self.changed():
            raise TreeChanged(f"{different[0]} changed meanwhile: run the command again")
        number, self._made = self._made, self._made + 1
        return self.tree(number)

    def retire(self) -> None:
        """Begins to remove the copies, which nobody needs any more; `close` does the rest."""
        assert self._folder is not None and self._copies is not None, "the workspace is not open"
        if self._retiring is None:
            self._retiring = threading.Thread(target=self._empty, args=(self._folder,))
            self._retiring.start()

    def close(self) -> None:
        """Removes everything: files, folder, worktree records. Safe to call twice."""
        if self._folder is None:
            return
        if self._copies is not None:
            self._copies.stop()
        if self._retiring is not None:
            self._retiring.join()
        _remove(self.repository, self._folder)
        os.close(self._lock)
        self._folder = None

    def _empty(self, folder: Path) -> None:
        assert self._copies is not None
        self._copies.stop()
        _remove_inside(folder, keep=self.scratch)

    def _copy(self) -> None:
        assert self._folder is not None and self._listing is not None
        names = [
            *self._listing.files,
            *worth_copying(self.repository.root, self._listing.ignored),
        ]
        self._copies = Copies(self.repository, self._folder, names, self._overlay, self._lock)
        self._first, stamps = self._copies.first(range(1, self._wanted + 1))
        known = set(self._listing.files)
        self.stamps = {path: stamp for path, stamp in stamps.items() if path in known}

    def _list(self) -> Listing:
        listing = self.repository.listing()
        return replace(listing, files=tuple(sorted({*listing.files, *self._overlay})))


def sweep(repository: Repository) -> None:
    """Removes what killed runs left behind: unlocked folders and worktree records."""
    for place in _places(repository.root):
        for folder in place.glob(WORKSPACES + "*"):
            with suppress(OSError):
                _remove_if_stale(folder)
    for tree in repository.worktrees():
        if not tree.exists() and any(part.startswith(WORKSPACES) for part in tree.parts):
            repository.remove_worktree(tree)


def temporary_root(root: Path, size: int) -> Path:
    """A folder outside of `root` for copies of `size` bytes: in memory where they are small.

    Raises `UsageError` where no folder can be written.
    """
    for path in _places(root):
        if path != _MEMORY:
            return path
        info = os.statvfs(path)
        roomy = size <= _MEMORY_BYTES and size * _ROOM <= info.f_bavail * info.f_frsize
        if roomy and not info.f_flag & os.ST_NOEXEC:
            return path
    raise UsageError(f"no writable temporary folder outside {root}: set TMPDIR to one")


def _places(root: Path) -> list[Path]:
    """Folders where workspaces may be, the preferred one first; TMPDIR has the last word."""
    given = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    places = [] if given else [_MEMORY]
    places += [Path(p) for p in (tempfile.gettempdir(), "/tmp", "/var/tmp", str(Path.home()))]
    found = []
    for place in places:
        path = place.resolve()
        if path.is_dir() and os.access(path, os.W_OK) and not path.is_relative_to(root):
            found.append(path)
    return found[:1] if given else list(dict.fromkeys(found))


def _claim(parent: Path) -> tuple[Path, int]:
    """Makes a new locked folder."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=WORKSPACES, dir=parent))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(folder / _LOCK):  # else another run took it for a leftover
                return folder, lock
            os.close(lock)
        except OSError as exc:
            os.close(lock)
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise UsageError(f"cannot lock files in {parent}: set TMPDIR elsewhere") from exc


def _remove_if_stale(folder: Path) -> None:
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        if time.time() - info.st_mtime > _YOUNG_S:
            shutil.rmtree(folder, onerror=_make_writable)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(_recorded_repository(folder), folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _recorded_repository(folder: Path) -> Repository | None:
    try:
        return Repository.open(Path(json.loads((folder / _OWNER).read_text())["root"]))
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return None


def _remove(repository: Repository | None, folder: Path) -> None:
    """Removes a workspace's folder, its lock last, then git's records of its worktrees."""
    _remove_inside(folder)
    shutil.rmtree(folder, onerror=_make_writable)
    if repository is not None:
        for tree in repository.worktrees():
            if tree.is_relative_to(folder):
                repository.remove_worktree(tree)


def _remove_inside(folder: Path, keep: Path | None = None) -> None:
    """Removes a workspace's folders, but not its lock."""
    inside = [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()]
    with ThreadPoolExecutor(_REMOVERS) as threads:
        for child in inside:
            if child != keep:
                threads.submit(shutil.rmtree, child, onerror=_make_writable)


def _make_writable(retry: Callable[..., Any], path: str, _: object) -> None:
    """Tests may leave folders without write permission behind."""
    with suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700, follow_symlinks=False)
    with suppress(OSError):
        retry(path)
