"""A place to try patches: copies of the working tree, dirty state included, outside of it.

Each copy is a repository of its own (so that checks which ask git get answers, and what they do to
it stays there) whose files are the user's own bytes, copied rather than checked out: no content
filter runs, no line end is normalised, nothing is added to the user's index or object store.

A workspace holds a lock while it is in use. One that a killed run left behind is removed when the
next command starts (see `owned`).
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_IMODE

from clover_patcher.edits import sha256
from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.repository import places
from clover_patcher.repository.copies import Copies
from clover_patcher.repository.git import Listing, Repository
from clover_patcher.repository.overlay import require_overlay
from clover_patcher.repository.owned import Claim, claim, release, remove_folders, sweep
from clover_patcher.repository.snapshot import (
    Mark,
    below,
    bounded,
    marks,
    sockets,
    total_size,
    unchanged,
    walked,
    worth_copying,
)
from clover_patcher.repository.treecopy import Stamp, is_other_source

_MEMORY_BYTES, _ROOM = 64 << 20, 16
"""The largest tree that goes to a file system in memory, and how often it must fit there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The user's files as a copy was made of them: stamps of source files, marks of others."""

    files: tuple[str, ...]
    stamps: Mapping[str, Stamp]
    marks: Mapping[str, Mark]

    def changed(self, root: Path) -> list[str]:
        """Files that are not what they were."""
        found = [p for p, stamp in self.stamps.items() if not unchanged(f"{root}/{p}", stamp)]
        now = marks(root, self.marks)
        return found + [path for path, mark in self.marks.items() if now.get(path) != mark]


class Workspace:
    """Copies of a repository's working tree in a temporary folder; a context manager.

    The first tree is ready at once; the others, and a fresh one to confirm a patch in, are made
    beside the checks. `scratch` is an empty folder for other temporary files.
    `overlay` maps repository-relative paths to the bytes that the copies hold instead of the
    user's file: unsaved buffers, of new files too. `include` names paths that are copied whatever
    their size, below the repository or beside it ("../NAME").

    Entering raises `UsageError` where git refuses the repository or no folder can be made.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        trees: int = 1,
        overlay: Mapping[str, bytes] | None = None,
        include: Sequence[str] = (),
    ) -> None:
        self.repository = repository
        self.stamps: dict[str, Stamp] = {}
        self.left_out: tuple[str, ...] = ()
        """Paths that the copies have not: large ignored ones, and other repositories."""
        self._include = tuple(include)
        self._brought: list[str] = []
        self._wanted = trees
        self._spare: int | None = trees
        self._made = trees + 1
        self._first = Path()
        self._copies: Copies | None = None
        self._retiring: threading.Thread | None = None
        self._overlay = dict(overlay or {})
        self._listing: Listing | None = None
        self._claim: Claim | None = None
        self._seen = Seen((), {}, {})

    def __enter__(self) -> Workspace:
        require_overlay(self.repository.root, self._overlay)
        root = self.repository.root
        sweep(root)
        self._listing = self._list()
        self._claim = claim(temporary_root(root, total_size(root, self._listing.files)), root)
        try:
            self.scratch.mkdir()
            self._copy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trees(self) -> list[Path]:
        """All copies to run checks in; waits for them, and raises as `tree` does."""
        return [self.tree(number) for number in range(self._wanted)]

    def tree(self, number: int) -> Path:
        """One of the copies to run checks in, as soon as it is there.

        Its Python files are those of the first copy, also where the user has changed theirs
        since. Raises `TreeChanged` where that cannot be had, since the check rewrites them.
        """
        assert self._copies is not None, "the workspace is not open"
        if number == 0:
            return self._first
        tree, stamps = self._copies.take(number)
        for path, stamp in self.stamps.items():
            if path not in stamps or stamps[path].sha256 != stamp.sha256:
                self._put_back(tree, path)
        return tree

    def _put_back(self, tree: Path, path: str) -> None:
        try:
            data = self.read(path)
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # it may have other names in this copy
            target.write_bytes(data)
            target.chmod(S_IMODE((self._first / path).stat().st_mode))
        except OSError as exc:
            raise TreeChanged(f"{path} changed meanwhile: run the command again") from exc

    @property
    def scratch(self) -> Path:
        assert self._claim is not None, "the workspace is not open"
        return self._claim.folder / "t"  # a short name: sockets below it have short paths only

    @property
    def python_files(self) -> list[str]:
        """Python files that a patch may be about: tracked, or untracked and not ignored."""
        return [name for name in self._sources if not is_other_source(name)]

    @property
    def other_sources(self) -> list[str]:
        """The same in other languages."""
        return [name for name in self._sources if is_other_source(name)]

    @property
    def _sources(self) -> list[str]:
        assert self._listing is not None, "the workspace is not open"
        return [name for name in self._listing.files if name in self.stamps]

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the snapshot, except ignored ones."""
        assert self._listing is not None, "the workspace is not open"
        return self._listing.files

    def read(self, path: str) -> bytes:
        """A source file's bytes as of the snapshot.

        Raises `OSError` where the check itself has rewritten or removed it in the meantime.
        """
        data = (self._first / path).read_bytes()
        if sha256(data) != self.stamps[path].sha256:
            raise OSError(errno.ESTALE, "the check rewrites this file", path)
        return data

    def intact(self, path: str) -> bool:
        """Whether a source file of the first copy is still as it was."""
        try:
            self.read(path)
        except OSError:
            return False
        return True

    def changed(self, besides: Collection[str] = ()) -> list[str]:
        """Files of the user's that are not what the newest copy shows, unsaved buffers aside.

        That is the first copy, or the last one that `fresh` made; files not listed then, and
        those in `besides`, do not count.
        """
        found = self._seen.changed(self.repository.root)
        return [path for path in found if path not in self._overlay and path not in besides]

    def fresh(self, besides: Collection[str] = ()) -> Path:
        """One more copy, untouched by earlier runs, of the user's files as they are now.

        Files in `besides` need not be up to date. Raises `OSError` where it cannot be written.
        """
        assert self._copies is not None, "the workspace is not open"
        listing = self._list()
        same = listing.files == self._seen.files and not self.changed(besides)
        if same and self._spare is not None:
            spare, self._spare = self._spare, None
            return self.tree(spare)
        self._spare = None
        number, self._made = self._made, self._made + 1
        seen = marks(self.repository.root, listing.files)
        names = self._names(listing)
        tree, stamps = self._copies.another(number, names)
        self._seen = _seen(listing, stamps, seen)
        return tree

    def bring(self, names: Sequence[str]) -> bool:
        """Copies more paths into all copies, later ones too; False where they are too large.

        Names are relative to the repository; "../NAME" is beside it.
        """
        assert self._copies is not None, "the workspace is not open"
        found = bounded(self.repository.root, names)
        if found is None:
            return False
        self._copies.add(found, self.trees)
        self.left_out = tuple(name for name in self.left_out if name not in names)
        self._brought += [*names, *found]
        return True

    def retire(self) -> None:
        """Begins to remove the copies, which nobody needs any more; `close` does the rest."""
        assert self._claim is not None and self._copies is not None, "the workspace is not open"
        if self._retiring is None:
            self._retiring = threading.Thread(target=self._empty, args=(self._claim.folder,))
            self._retiring.start()

    def close(self) -> None:
        """Removes everything. Safe to call twice."""
        if self._claim is None:
            return
        if self._copies is not None:
            self._copies.stop()
        if self._retiring is not None:
            self._retiring.join()
        release(self._claim)
        self._claim = None

    def _empty(self, folder: Path) -> None:
        assert self._copies is not None
        self._copies.stop()
        remove_folders(folder, keep=self.scratch)

    def _copy(self) -> None:
        assert self._claim is not None and self._listing is not None
        listing, names = self._listing, self._names(self._listing)
        seen = marks(self.repository.root, listing.files)
        folder, lock = self._claim.folder, self._claim.lock
        self._copies = Copies(self.repository, folder, names, self._overlay, lock)
        self._first, stamps = self._copies.first(range(1, self._wanted + 1))
        self._seen = _seen(listing, stamps, seen)
        self.stamps = dict(self._seen.stamps)

    def _names(self, listing: Listing) -> list[str]:
        root = self.repository.root
        copied, left_out = worth_copying(root, listing.ignored)
        asked = [name for path in self._include for name in walked(root, path, sys.maxsize) or ()]
        self.left_out = tuple(
            name
            for name in left_out
            if name not in self._brought and not any(below(name, path) for path in self._include)
        )
        listening = sockets(root, listing.files)
        self.left_out += tuple(listening)
        more = [*copied, *asked, *self._brought, *listening]
        return list(dict.fromkeys([*listing.files, *more]))

    def _list(self) -> Listing:
        listing = self.repository.listing()
        return replace(listing, files=tuple(sorted({*listing.files, *self._overlay})))


def temporary_root(root: Path, size: int) -> Path:
    """A folder outside of `root` for copies of `size` bytes: in memory where they are small.

    Raises `UsageError` where no folder can be written.
    """
    for path in places.places(root):
        if path != places.MEMORY:
            return path
        info = os.statvfs(path)
        roomy = size <= _MEMORY_BYTES and size * _ROOM <= info.f_bavail * info.f_frsize
        if roomy and not info.f_flag & os.ST_NOEXEC:
            return path
    raise UsageError(f"no writable temporary folder outside {root}: set TMPDIR to one")


def _seen(listing: Listing, stamps: Mapping[str, Stamp], seen: Mapping[str, Mark]) -> Seen:
    known = set(listing.files)
    python = {path: stamp for path, stamp in stamps.items() if path in known}
    others = {path: mark for path, mark in seen.items() if path not in python}
    return Seen(listing.files, python, others)
