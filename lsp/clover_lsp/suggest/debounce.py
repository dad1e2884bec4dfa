"""How long to wait after a keystroke before the engine is asked.

A request that the next keystroke will end is wasted work. While someone types faster than the
engine answers, waiting for a pause costs nothing; an engine that answers between two keystrokes
is asked at once. No clock is read here: times come in as arguments, in seconds.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from clover_engine.line_ends import to_lf
from clover_lsp.context.types import Place
from clover_lsp.suggest.text import is_blank, last_line

LONGEST_S = 0.4
"""Nobody waits longer; a slower engine is no reason to."""
PAUSE_S = 1.0
"""A longer time between two keystrokes is a pause, not typing."""
USUAL_S = 0.18
"""Between two keystrokes, where nothing is known yet (60 words a minute)."""
REMEMBERED = 16
TRIGGERS = frozenset(".([{:=,>")
"""After these the user wants to see what there is."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What the wait depends on."""

    intervals_s: Sequence[float] = ()
    """Times between the latest keystrokes."""
    latency_s: float = 0.0
    """Usual time from request to text."""
    acceptance: float = 0.0
    """Share of the latest suggestions that were accepted, 0..1."""


def wait_s(rhythm: Rhythm, immediate: bool = False) -> float:
    """Seconds to wait, 0 to `LONGEST_S`.

    A typical interval, times the share of the engine's work that the next keystroke would waste,
    less where suggestions are mostly accepted. 0 where `immediate` (see `is_immediate`).
    """
    if immediate or rhythm.latency_s <= 0:
        return 0.0
    typing = [t for t in rhythm.intervals_s if 0 <= t < PAUSE_S]
    interval = statistics.median(typing) if typing else USUAL_S
    wasted = rhythm.latency_s / (rhythm.latency_s + interval)
    patience = 1.5 - min(1.0, max(0.0, rhythm.acceptance))
    return min(LONGEST_S, interval * wasted * patience)


def is_immediate(place: Place, invoked: bool = False) -> bool:
    """Asked for by the user, at the beginning of a line, or after a sign that begins something."""
    if invoked:
        return True
    line = last_line(to_lf(place.prefix[-1000:]))
    return is_blank(line) or line.rstrip(" ")[-1:] in TRIGGERS


class Debounce:
    """Keeps the rhythm of one user. Not thread-safe."""

    def __init__(self) -> None:
        self._intervals: deque[float] = deque(maxlen=REMEMBERED)
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)
        self._decisions: deque[bool] = deque(maxlen=REMEMBERED)
        self._last: float | None = None

    def typed(self, now: float) -> None:
        """A keystroke; `now` is of any steady clock."""
        if self._last is not None and now > self._last:
            self._intervals.append(now - self._last)
        self._last = now

    def answered(self, latency_s: float) -> None:
        """The engine took so long for a whole answer."""
        self._latencies.append(max(0.0, latency_s))

    def decided(self, accepted: bool) -> None:
        """A suggestion was accepted, or was shown and is gone."""
        self._decisions.append(accepted)

    def rhythm(self) -> Rhythm:
        latency = statistics.median(self._latencies) if self._latencies else 0.0
        share = sum(self._decisions) / len(self._decisions) if self._decisions else 0.0
        return Rhythm(tuple(self._intervals), latency, share)

    def wait_s(self, place: Place, invoked: bool = False) -> float:
        """Seconds to wait at `place` now."""
        return wait_s(self.rhythm(), is_immediate(place, invoked))
