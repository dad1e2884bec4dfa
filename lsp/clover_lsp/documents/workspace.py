"""Changes of documents, and who hears of them: the context room and the features."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lsprotocol import types

from clover_lsp.context.closed_room import ClosedRoom
from clover_lsp.context.types import ContextRoom, Edit
from clover_lsp.documents.documents import Change, Documents, Snapshot
from clover_lsp.documents.log import DocumentLog

log = logging.getLogger(__name__)
Listener = Callable[[Snapshot, Snapshot, tuple[Edit, ...]], None]


class Workspace:
    """Event loop only. Every listener may fail without the others noticing."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.log = DocumentLog()
        self.context: ContextRoom = ClosedRoom()
        self._on_change: list[Listener] = []
        self._on_open: list[Callable[[Snapshot], None]] = []
        self._on_close: list[Callable[[str], None]] = []
        self._on_size: list[Callable[[Snapshot | None], None]] = []

    def on_open(self, call: Callable[[Snapshot], None]) -> None:
        self._on_open.append(call)

    def on_change(self, call: Listener) -> None:
        """`call(before, after, edits)` runs after every change of an open document or cell."""
        self._on_change.append(call)

    def on_close(self, call: Callable[[str], None]) -> None:
        self._on_close.append(call)

    def on_size(self, call: Callable[[Snapshot | None], None]) -> None:
        """`call` runs when a document was opened, became too large or small enough; with None
        when one was closed. Too large ones count as closed for all other listeners."""
        self._on_size.append(call)

    def open(self, item: types.TextDocumentItem, notebook: str | None = None) -> Snapshot:
        snapshot = self.documents.open(item, notebook)
        if not snapshot.is_too_large:
            self._opened(snapshot)
        self.tell_size(snapshot)
        return snapshot

    def _opened(self, snapshot: Snapshot) -> None:
        self._tell_opened(snapshot)
        _guard(self.log.opened, snapshot)
        for call in self._on_open:
            _guard(call, snapshot)

    def change(self, uri: str, version: int | None, changes: Sequence[Change]) -> None:
        before = self.documents.get(uri)
        changed = self.documents.change(uri, version, changes)
        if before is None or changed is None:
            return
        snapshot, edits = changed
        if before.is_too_large or snapshot.is_too_large:
            if not before.is_too_large:
                self._closed(uri)
            elif not snapshot.is_too_large:
                self._opened(snapshot)
            if before.is_too_large != snapshot.is_too_large:
                self.tell_size(snapshot)
            return
        _guard(self.context.changed, uri, snapshot.text, snapshot.version or 0, edits)
        _guard(self.log.changed, before, snapshot, edits)
        for call in self._on_change:
            _guard(call, before, snapshot, edits)

    def close(self, uri: str) -> None:
        gone = self.documents.close(uri)
        if gone is not None:
            self._closed(uri)
            self.tell_size(None)

    def _closed(self, uri: str) -> None:
        _guard(self.context.closed, uri)
        _guard(self.log.closed, uri)
        for call in self._on_close:
            _guard(call, uri)

    def use(self, room: ContextRoom) -> None:
        """Replaces the context room; the new one hears of every open document."""
        old, self.context = self.context, room
        _guard(old.close)
        for snapshot in self.documents:
            if not snapshot.is_too_large:
                self._tell_opened(snapshot)

    def tell_size(self, snapshot: Snapshot | None) -> None:
        """The document at hand is this one."""
        for call in self._on_size:
            _guard(call, snapshot)

    def _tell_opened(self, snapshot: Snapshot) -> None:
        _guard(
            self.context.opened,
            snapshot.uri,
            snapshot.language,
            snapshot.text,
            snapshot.version or 0,
        )


def _guard(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except Exception:
        log.exception("%s failed", getattr(call, "__qualname__", call))
