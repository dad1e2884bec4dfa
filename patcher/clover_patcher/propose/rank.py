"""How promising a candidate is: a linear model over location, template and language model.

The model only reorders the contents of one slot: what it says is taken relative to the slot's
median content and within bounds, so that a line as a whole neither gains nor loses by having been
scored, and a small model cannot bury a candidate. `bench/fix/rank.py` fits the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

_FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors of `priority`. All log-probabilities are in nats."""

    location: float = 2.5
    """× log of the line's suspiciousness."""
    prior: float = 1.0
    """× log of the template's share, while the model has not scored the line."""
    scored_prior: float = 1.0
    """× the same once it has."""
    centred: float = 0.2
    """× how much likelier the content is than the slot's median content."""


DEFAULT = Weights()
BOUND = 4.0


@dataclass(frozen=True, slots=True)
class ModelScore:
    """What the model says about one content of a line."""

    logprob: float
    centred: float
    """Above the median of the slot's scored contents, at most `BOUND` nats from it."""


def prior_priority(location: float, log_prior: float, weights: Weights = DEFAULT) -> float:
    """Priority without the model."""
    return weights.location * math.log(max(location, _FLOOR)) + weights.prior * log_prior


def scored_priority(
    location: float, log_prior: float, score: ModelScore, weights: Weights = DEFAULT
) -> float:
    """Priority with the model's score of the line."""
    return (
        weights.location * math.log(max(location, _FLOOR))
        + weights.scored_prior * log_prior
        + weights.centred * score.centred
    )


def model_scores(logprobs: Mapping[str, float], original: str) -> dict[str, ModelScore]:
    """The features of each content of one slot; what stands there now is left out."""
    others = {text: value for text, value in logprobs.items() if text != original}
    if not others:
        return {}
    middle = median(others.values())
    return {
        text: ModelScore(value, max(-BOUND, min(BOUND, value - middle)))
        for text, value in others.items()
    }
