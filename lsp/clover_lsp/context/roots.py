"""The workspace's folders: where a document belongs, and whether it may be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from clover_engine.privacy.uris import to_path
from clover_engine.privacy.withheld import Withheld
from clover_lsp.context.index import Index
from clover_lsp.context.paths import relative
from clover_lsp.context.types import IndexStatus

_STATES = ("failed", "indexing", "ready")


class Roots:
    """Any thread; the dictionary of indexes is replaced as a whole."""

    def __init__(self, new_index: Callable[[Path], Index], exclude: Sequence[str] = ()) -> None:
        """`exclude`: the user's patterns of files that nobody may read."""
        self._new_index, self._exclude = new_index, tuple(exclude)
        self._folders: tuple[Path, ...] = ()
        self._indexes: dict[Path, Index] = {}
        self._withheld = Withheld((), self._exclude)

    def set(self, folders: Sequence[str]) -> list[Index]:
        """Takes these folders; one within another is part of that one. Returns what is left over.

        Indexes of folders that stay are kept; the others are for the caller to close.
        """
        kept: list[Path] = []
        for path in sorted({Path(os.path.abspath(folder)) for folder in folders}):
            if not any(path.is_relative_to(other) for other in kept):
                kept.append(path)
        old = self._indexes
        self._indexes = {path: old.get(path) or self._new_index(path) for path in kept}
        self._folders = tuple(kept)
        self._withheld = Withheld(kept, self._exclude)
        return [index for path, index in old.items() if path not in self._indexes]

    @property
    def indexes(self) -> tuple[Index, ...]:
        return tuple(self._indexes.values())

    def index_of(self, path: Path) -> tuple[Index, str] | None:
        """The index whose folder holds a file, and the file's path there."""
        for folder, index in self._indexes.items():
            inside = relative(path, folder)
            if inside is not None:
                return index, inside
        return None

    def locate(self, uri: str) -> tuple[Index | None, str]:
        """The same for a document; in no folder, what to show instead of a path."""
        path = to_path(uri)
        if path is None:
            return None, uri
        return self.index_of(path) or (None, path.as_posix())

    def withheld(self, uri: str) -> str:
        """Why nothing of this document may be read, in words; "" if it may."""
        return self._withheld.of_uri(uri)

    def forget(self) -> None:
        """Files changed: a name may stand for another file now, rules may differ."""
        self._withheld.forget()

    def status(self) -> IndexStatus:
        """All indexes together: the least ready one gives the state."""
        found = [index.status() for index in self.indexes]
        if not found:
            return IndexStatus("ready", detail="no folder is open")
        return IndexStatus(
            min((s.state for s in found), key=_STATES.index),
            sum(s.files for s in found),
            sum(s.pending for s in found),
            sum(s.bytes for s in found),
            "; ".join(dict.fromkeys(s.detail for s in found if s.detail)),
            "; ".join(dict.fromkeys(s.limited for s in found if s.limited)),
        )
