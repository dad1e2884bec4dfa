"""How promising a candidate is: a linear model over location, template and language model.

The weights come from `bench/rank.py`, which hides a known repair among all candidates of a
mutated function and looks where it is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors of `priority`. All log-probabilities are in nats."""

    location: float = 2.5
    """× log of the line's suspiciousness."""
    prior: float = 1.0
    """× log of the template's share, while the model has not scored the line."""
    scored_prior: float = 0.6
    """× the same once it has."""
    share: float = 0.15
    """× log of the candidate's part of the line's probability over all its candidates."""
    gain: float = 0.15
    """× log of how much likelier the new line is than the present one."""
    scored: float = 0.0
    """Added once a candidate is scored: whether the model's word makes it surer."""


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class ModelScore:
    """What the model says about one content of a line."""

    logprob: float
    share: float
    """log of this content's part of the probability of all the line's known contents."""
    gain: float


def unranked(location: float, log_prior: float, weights: Weights = DEFAULT) -> float:
    """Priority without the model."""
    return weights.location * math.log(max(location, _FLOOR)) + weights.prior * log_prior


def ranked(
    location: float, log_prior: float, score: ModelScore, weights: Weights = DEFAULT
) -> float:
    """Priority with the model's score of the line."""
    return (
        weights.location * math.log(max(location, _FLOOR))
        + weights.scored_prior * log_prior
        + weights.share * score.share
        + weights.gain * score.gain
        + weights.scored
    )


def model_scores(logprobs: Mapping[str, float], original: str) -> dict[str, ModelScore]:
    """The features of each content of one line; what stands there now only normalises."""
    others = [value for text, value in logprobs.items() if text != original]
    if not others:
        return {}
    top = max(others)
    norm = top + math.log(sum(math.exp(value - top) for value in others))
    present = logprobs.get(original, norm)
    return {
        text: ModelScore(value, value - norm, value - present)
        for text, value in logprobs.items()
        if text != original
    }
