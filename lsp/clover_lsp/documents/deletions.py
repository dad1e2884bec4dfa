"""What the user removed a moment ago: it is not offered again."""

from __future__ import annotations

from collections import deque

from clover_lsp.context.types import Edit
from clover_lsp.documents.documents import Snapshot
from clover_lsp.documents.text import to_lf

KEPT_S = 60.0
KEPT = 6
_LONGEST = 2000


class Deletions:
    """The latest removed texts of each document. Event loop only.

    Characters removed one after the other (backspace held down) count as one text.
    """

    def __init__(self) -> None:
        self._removed: dict[str, deque[tuple[float, int, str]]] = {}

    def changed(self, before: Snapshot, edits: tuple[Edit, ...], now: float) -> None:
        """Learns from a change; `before` is the document before the first edit."""
        if len(edits) != 1:
            return
        edit = edits[0]
        gone = before.text[edit.start : edit.end]
        if not gone or len(gone) > _LONGEST or edit.new.startswith(gone):
            return
        removed = self._removed.setdefault(before.uri, deque(maxlen=KEPT))
        if not edit.new and removed and removed[-1][1] == edit.end:
            gone += removed.pop()[2]
        removed.append((now, edit.start, gone))

    def recent(self, uri: str, now: float) -> tuple[str, ...]:
        """Texts with LF line ends, newest first."""
        found = self._removed.get(uri, ())
        return tuple(to_lf(text) for when, _, text in reversed(found) if now - when <= KEPT_S)

    def forget(self, uri: str) -> None:
        self._removed.pop(uri, None)
