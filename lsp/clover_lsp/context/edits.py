"""What the user changed lately, grouped: changes within 8 lines and one second are one edit."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from clover_lsp.context.common import common_end, common_start
from clover_lsp.context.types import Edit

GROUP_LINES = 8
GROUP_S = 1.0
KEPT = 32
MAX_CHARS = 4000
"""A grouped edit with more text than this on one side (a paste, a formatter) is left out."""


@dataclass(frozen=True, slots=True)
class Group:
    """Characters [start, end) of `old` became [start, new_end) of `new`."""

    uri: str
    old: str
    new: str
    start: int
    end: int
    new_end: int
    at: float

    def lines(self) -> tuple[str, str]:
        """The lines concerned, before and after."""
        first = self.old.rfind("\n", 0, self.start) + 1
        last = self.old.find("\n", self.end)
        tail = len(self.old) if last < 0 else last
        return self.old[first:tail], self.new[first : self.new_end + tail - self.end]

    @property
    def first_line(self) -> int:
        """1-based line of the new text that the change begins in."""
        return self.new.count("\n", 0, self.start) + 1


class EditLog:
    """The latest groups over all documents; any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: deque[Group] = deque(maxlen=KEPT)

    def record(self, uri: str, old: str, new: str, edits: Sequence[Edit]) -> None:
        """A document went from `old` to `new`; `edits` may be empty (a full replacement)."""
        if old == new:
            return
        start, end, new_end = _region(old, new, edits)
        now = self._clock()
        group = Group(uri, old, new, start, end, new_end, now)
        with self._lock:
            last = self._groups[-1] if self._groups else None
            if last is not None and last.uri == uri and last.new == old and _joins(last, group):
                self._groups[-1] = _join(last, group)
            else:
                self._groups.append(group)

    def recent(self, limit: int) -> list[Group]:
        """The latest real changes, newest first: no blank ones, no huge ones."""
        with self._lock:
            groups = list(self._groups)
        found: list[Group] = []
        for group in reversed(groups):
            if len(found) >= limit:
                break
            if max(group.end, group.new_end) - group.start <= MAX_CHARS:
                before, after = group.lines()
                if before.strip() != after.strip():
                    found.append(group)
        return found

    def forget(self, uri: str) -> None:
        with self._lock:
            self._groups = deque((g for g in self._groups if g.uri != uri), maxlen=KEPT)


def _joins(last: Group, group: Group) -> bool:
    if group.at - last.at > GROUP_S:
        return False
    low, high = sorted((last.start, group.start))
    return group.old.count("\n", low, high) <= GROUP_LINES


def _join(last: Group, group: Group) -> Group:
    """One group for two successive changes: the smallest region that holds both."""
    start = min(last.start, group.start)
    tail = min(len(last.new) - last.new_end, len(group.old) - group.end)
    return replace(
        last,
        new=group.new,
        start=start,
        end=len(last.old) - tail,
        new_end=len(group.new) - tail,
        at=group.at,
    )


def _region(old: str, new: str, edits: Sequence[Edit]) -> tuple[int, int, int]:
    """The smallest changed region; the client's edits only say where to look."""
    low, shortest = 0, min(len(old), len(new))
    hint = min((e.start for e in edits), default=0)
    if 0 < hint <= shortest and old[:hint] == new[:hint]:
        low = hint
    start = low + common_start(old[low:], new[low:])
    tail = common_end(old, new, shortest - start)
    return start, len(old) - tail, len(new) - tail
