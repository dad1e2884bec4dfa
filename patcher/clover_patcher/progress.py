"""What a run tells about itself while it goes on, and the clock that it obeys."""

from __future__ import annotations

import time
from typing import Literal, Protocol

Stage = Literal[
    "snapshot", "engine", "baseline", "localise", "search", "found", "confirm", "apply", "done"
]


class Progress(Protocol):
    """Receives events. Numbers are plain: `tried`, `passing`, `failures`, `left_s` (seconds)…"""

    def event(self, stage: Stage, message: str, **numbers: float) -> None: ...


class Quiet:
    """Says nothing."""

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        """Does nothing."""


class Clock:
    """A time budget in seconds, measured from the clock's making."""

    def __init__(self, budget_s: float) -> None:
        self.started = time.monotonic()
        self.budget_s = budget_s
        self.end = self.started + budget_s
        """When searching must stop at the latest (`time.monotonic`)."""
        self.deadline = self.end
        """When the present search stops; never after `end`."""

    def reserve(self, seconds: float) -> None:
        """Keeps time for what follows the search, at most a quarter of the budget."""
        self.end = self.started + self.budget_s - min(seconds, self.budget_s / 4)
        self.deadline = min(self.deadline, self.end)

    def hurry(self, seconds: float) -> None:
        """Brings the deadline forward."""
        self.deadline = min(self.deadline, time.monotonic() + seconds)

    def relax(self) -> None:
        """Lets the present search go on until the end."""
        self.deadline = self.end

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        return max(0.0, self.end - time.monotonic())

    @property
    def budget_left_s(self) -> float:
        """Of the whole budget, with what is kept for after the search."""
        return max(0.0, self.started + self.budget_s - time.monotonic())

    @property
    def expired(self) -> bool:
        return self.left_s == 0.0
