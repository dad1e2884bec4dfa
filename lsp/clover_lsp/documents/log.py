"""What happened in each open document: former texts, removed texts, diagnostics.

The next edit compares with former texts, grouped as a person would count edits; a suggestion does
not offer again what was removed a moment ago; a diagnostic counts for the version it came with.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clover_engine.line_ends import to_lf
from clover_lsp.context.edits import GROUP_LINES, GROUP_S
from clover_lsp.context.types import Edit, Problem
from clover_lsp.documents.documents import Snapshot

FORMER = 64
FORMER_S = 600.0
FORMER_CHARS = 400_000
"""Larger documents have no former texts: comparing them takes too long."""
REMOVED = 6
REMOVED_S = 60.0
REMOVED_CHARS = 2000


@dataclass(slots=True)
class _Record:
    former: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=FORMER))
    changed_line: int = 0
    changed_at: float = 0.0
    removed: deque[tuple[float, int, str]] = field(default_factory=lambda: deque(maxlen=REMOVED))
    """When, where, what."""
    problems: tuple[Problem, ...] = ()
    problems_version: int | None = None


class DocumentLog:
    """Event loop only. Documents that are not open have nothing in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def opened(self, snapshot: Snapshot) -> None:
        self._records[snapshot.uri] = _Record()

    def closed(self, uri: str) -> None:
        self._records.pop(uri, None)

    def changed(self, before: Snapshot, after: Snapshot, edits: Sequence[Edit]) -> None:
        """The edits took the document from `before` to `after`."""
        record = self._records.setdefault(after.uri, _Record())
        now = self._clock()
        _keep_former(record, before, after, edits, now)
        if len(edits) == 1:
            _keep_removed(record, before, edits[0], now)

    def diagnosed(self, snapshot: Snapshot, problems: Sequence[Problem]) -> None:
        """Adds what is new; a request for code actions brings a part of a document's only."""
        record = self._records.setdefault(snapshot.uri, _Record())
        old = self.problems(snapshot)
        record.problems = tuple(dict.fromkeys((*old, *problems)))
        record.problems_version = snapshot.version

    def former(self, uri: str) -> tuple[str, ...]:
        """The latest former texts, newest first."""
        record = self._records.get(uri)
        since = self._clock() - FORMER_S
        return (
            tuple(text for when, text in reversed(record.former) if when >= since) if record else ()
        )

    def removed(self, uri: str) -> tuple[str, ...]:
        """The latest removed texts with LF line ends, newest first."""
        record = self._records.get(uri)
        since = self._clock() - REMOVED_S
        found = reversed(record.removed) if record else ()
        return tuple(to_lf(text) for when, _, text in found if when >= since)

    def problems(self, snapshot: Snapshot) -> tuple[Problem, ...]:
        """The diagnostics of just this version."""
        record = self._records.get(snapshot.uri)
        return record.problems if record and record.problems_version == snapshot.version else ()


def _keep_former(
    record: _Record, before: Snapshot, after: Snapshot, edits: Sequence[Edit], now: float
) -> None:
    """Keeps the text before, unless the change goes on with the one before it."""
    if len(after.text) > FORMER_CHARS:
        record.former.clear()
        record.changed_line, record.changed_at = 0, 0.0
        return
    line = before.text.count("\n", 0, edits[0].start if edits else 0)
    near = abs(line - record.changed_line) <= GROUP_LINES
    if not (record.former and near and now - record.changed_at <= GROUP_S):
        record.former.append((now, before.text))
    record.changed_line, record.changed_at = line, now


def _keep_removed(record: _Record, before: Snapshot, edit: Edit, now: float) -> None:
    """Characters removed one after the other (backspace held down) count as one text."""
    gone = before.text[edit.start : edit.end]
    if not gone or len(gone) > REMOVED_CHARS or edit.new.startswith(gone):
        return
    if not edit.new and record.removed and record.removed[-1][1] == edit.end:
        gone += record.removed.pop()[2]
    record.removed.append((now, edit.start, gone))
