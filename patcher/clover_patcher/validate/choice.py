"""Which of several passing candidates is taken, and when looking for a better one ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clover_patcher.types import Candidate
from clover_patcher.validate.feed import Verdict

_MARGIN = 3.0
"""Nats below the passing candidate's priority where the search for a better one ends."""


@dataclass(frozen=True, slots=True)
class Passing:
    """A candidate that passed, and how many had been tried then."""

    candidate: Candidate
    rank: int


def verdict(passing: Sequence[Passing], candidate: Candidate) -> Verdict:
    """Beside a passing candidate only a more promising one is worth trying."""
    best = max((one.candidate.priority for one in passing), default=-math.inf)
    if candidate.priority >= best:
        return "try"
    return "stop" if candidate.priority < best - _MARGIN else "put off"


def best_first(passing: Sequence[Passing]) -> list[Passing]:
    """Most probable first; of equally probable ones the smallest change."""
    return sorted(passing, key=lambda p: (-p.candidate.priority, p.candidate.size))
