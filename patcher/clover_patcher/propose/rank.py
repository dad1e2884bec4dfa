"""How promising a candidate is: a linear model over location, template, model and token counts.

The model and the counts say how much likelier the line is with the edit than as it stands (log p
of the one minus log p of the other, a *delta*). A broken line tends to be unlikely as it stands:
so a delta speaks for a content and for its line at once, and is compared across lines as it is.
`bench/fix/deltas.py` fits the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_FLOOR = 1e-3
BOUND = 8.0
"""Nats beyond which a delta says no more."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors of `priority`. All log-probabilities are in nats."""

    location: float = 2.5
    """× log of the line's suspiciousness."""
    prior: float = 1.0
    """× log of the template's share."""
    model: float = 0.27
    """× the model's delta, as far as it is above `typical_model`."""
    counts: float = 0.14
    """× the counts' delta, as far as it is above `typical_counts`."""
    typical_model: float = -4.0
    """The median delta of valid candidates: one that was not scored yet is taken to have it."""
    typical_counts: float = -4.0


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class ModelScore:
    """What the model says about one content of a line."""

    logprob: float
    delta: float
    """Above the log-probability of what stands there, within `BOUND`."""


def priority(
    location: float,
    log_prior: float,
    score: ModelScore | None = None,
    counts: float | None = None,
    weights: Weights = DEFAULT,
) -> float:
    """The higher, the sooner a candidate is tried. `counts`: the delta of token counts."""
    total = weights.location * math.log(max(location, _FLOOR)) + weights.prior * log_prior
    if score is not None:
        total += weights.model * (bounded(score.delta) - weights.typical_model)
    if counts is not None:
        total += weights.counts * (bounded(counts) - weights.typical_counts)
    return total


def bounded(delta: float) -> float:
    return max(-BOUND, min(BOUND, delta))


def model_scores(logprobs: Mapping[str, float], original: str) -> dict[str, ModelScore]:
    """The scores of a slot's contents; none as long as that of what stands there is not known."""
    stands = logprobs.get(original)
    if stands is None:
        return {}
    return {
        text: ModelScore(value, bounded(value - stands))
        for text, value in logprobs.items()
        if text != original
    }
