"""Former texts of open documents, grouped as a person would count edits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clover_lsp.context.types import Edit
from clover_lsp.documents.documents import Snapshot

GROUP_LINES = 8
GROUP_S = 1.0
"""Changes so near and so soon after each other are one edit."""
KEPT = 64
KEPT_S = 600.0
MAX_CHARS = 400_000
"""Larger documents have no history: comparing their texts takes too long."""


@dataclass(slots=True)
class _Document:
    former: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=KEPT))
    line: int = 0
    changed: float = 0.0


class History:
    """Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._documents: dict[str, _Document] = {}

    def opened(self, snapshot: Snapshot) -> None:
        self._documents[snapshot.uri] = _Document()

    def changed(self, before: Snapshot, snapshot: Snapshot, edits: Sequence[Edit]) -> None:
        """Keeps the text before, unless the change goes on with the one before it."""
        document = self._documents.get(snapshot.uri)
        if document is None or len(snapshot.text) > MAX_CHARS:
            self.opened(snapshot)
            return
        now = self._clock()
        at = edits[0].start if edits else 0
        line = before.text.count("\n", 0, at)
        near = abs(line - document.line) <= GROUP_LINES
        if not (document.former and near and now - document.changed <= GROUP_S):
            document.former.append((now, before.text))
        document.line, document.changed = line, now

    def of(self, uri: str) -> tuple[str, ...]:
        """Newest first."""
        document = self._documents.get(uri)
        if document is None:
            return ()
        since = self._clock() - KEPT_S
        return tuple(text for when, text in reversed(document.former) if when >= since)

    def closed(self, uri: str) -> None:
        self._documents.pop(uri, None)
