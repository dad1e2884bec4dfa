"""The workspace's folders: where a document belongs, and whether it may be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from clover_engine.privacy.ignore import IgnoreRules, secret_file, unfit_file
from clover_lsp.context.index import Index
from clover_lsp.context.paths import relative, to_path
from clover_lsp.context.types import IndexStatus

_STATES = ("failed", "indexing", "ready")


class Roots:
    """Any thread; the dictionary of indexes is replaced as a whole."""

    def __init__(self, new_index: Callable[[Path], Index]) -> None:
        self._new_index = new_index
        self._folders: tuple[Path, ...] = ()
        self._indexes: dict[Path, Index] = {}
        self._verdicts: dict[str, tuple[IgnoreRules | None, str]] = {}

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
        self._verdicts = {}
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
        index = self.locate(uri)[0]
        rules = index.rules if index else None
        known = self._verdicts.get(uri)
        if known is None or known[0] is not rules:
            known = self._verdicts[uri] = (rules, self._reason(uri))
        return known[1]

    def forget(self) -> None:
        """Files changed: a name may stand for another file now."""
        self._verdicts = {}

    def _reason(self, uri: str) -> str:
        path = to_path(uri)
        if path is None:
            return ""
        for named in dict.fromkeys((path, Path(os.path.realpath(path)))):
            if secret_file(named.as_posix()):
                return f"{path.name} is a file for secrets"
            if unfit_file(named.name):
                return f"{path.name} is a lock file or generated"
            found = self.index_of(named)
            if found is not None:
                reason = found[0].rules.reason(found[1])
                if reason:
                    return reason
        return ""

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
        )
