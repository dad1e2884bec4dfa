"""How probable a text is, given who proposed it: look-ups, the small model, a larger one.

Each proposer's own probability is calibrated for it alone. Together they say more: a text that two
of them have found apart is right more often than either would make one think. A logistic model
adds up their log-odds, a weight and a constant for each proposer; a text that a proposer does not
have gets nothing from it. ``python -m bench.suggest.typed fit`` fits the weights on packages that
no figure is about. The repository's token counts were tried as one more term and added nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clover_engine.gate import MODEL_CURVES, SMALL
from clover_lsp.suggest.types import Suggestion

PROPOSERS = ("look-up", "small", "large")


@dataclass(frozen=True, slots=True)
class Weights:
    """`terms`: for each proposer the weight of its log-odds, and a constant."""

    intercept: float
    terms: Mapping[str, tuple[float, float]]


BEFORE_LARGE = Weights(-3.38, {"look-up": (0.84, 2.21), "small": (0.93, 2.43)})
"""Where no larger model has spoken."""
WITH_LARGE = Weights(-2.84, {"look-up": (0.65, 1.33), "small": (0.68, 0.87), "large": (1.01, 2.68)})


def proposer(suggestion: Suggestion) -> str:
    """One of `PROPOSERS`; "" for a model that was never measured beside the others."""
    if suggestion.origin == "lookup":
        return "look-up"
    if suggestion.model == SMALL:
        return "small"
    return "large" if suggestion.model in MODEL_CURVES else ""


def joint(proposals: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """From (proposer, text, its own probability) to each text's probability, given all.

    Where one proposer was never measured, or there is but one, the highest stands as it is.
    """
    by_text: dict[str, dict[str, float]] = {}
    for who, text, probability in proposals:
        said = by_text.setdefault(text, {})
        said[who] = max(probability, said.get(who, 0.0))
    present = {who for said in by_text.values() for who in said}
    if "" in present or len(present) < 2:
        return {text: max(said.values()) for text, said in by_text.items()}
    weights = WITH_LARGE if "large" in present else BEFORE_LARGE
    return {text: _sum(weights, said) for text, said in by_text.items()}


def _sum(weights: Weights, said: Mapping[str, float]) -> float:
    score = weights.intercept
    for who, probability in said.items():
        slope, constant = weights.terms[who]
        score += slope * log_odds(probability) + constant
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def log_odds(probability: float) -> float:
    """Bounded: a proposer is never taken to be certain."""
    bounded = min(max(probability, 1e-4), 1 - 1e-4)
    return math.log(bounded / (1 - bounded))
