"""When a generated text is good enough to be shown without being asked for.

How sure a model is of its tokens is not how often its text is right. `bench/calibrate.py` measures
the latter on held-out code and prints the curves below; run it again for every new checkpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from clover_engine.api import Infill

SHOWN_CONFIDENCE = 0.3
"""Probability of being exactly right from which a text is shown; the one place that says so. Of
the look-ups at or above it about 70 % are right, and they exist at 38 % of places."""

MODEL_CURVE = (-1.893, 0.670, -1.021)
LOOKUP_CURVE = (-0.296, 1.055, 0.746, 1.082, -1.481)
"""Logistic curves: an intercept, then the weight of each feature."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def is_shown(infill: Infill) -> bool:
    """True for text that an editor would show by itself: there is some, and it is sure enough."""
    if not infill.text.strip():
        return False
    return model_probability(infill.confidence, infill.text) >= SHOWN_CONFIDENCE


def model_probability(confidence: float, text: str) -> float:
    """Probability that a model's text is exactly right, from its mean token probability."""
    return _curve(MODEL_CURVE, model_features(confidence, text))


def lookup_probability(matched: int, followed: int, count: int, rivals: int, line: str) -> float:
    """Probability that a line found elsewhere is exactly right here; see `context.types.Lookup`."""
    return _curve(LOOKUP_CURVE, evidence_features(matched, followed, count, rivals, line))


def model_features(confidence: float, text: str) -> tuple[float, ...]:
    """What `MODEL_CURVE` weighs: the log-odds of a token, and how many must be right."""
    sure = min(max(confidence, 1e-4), 1 - 1e-4)
    return (math.log(sure / (1 - sure)), math.log1p(len(_TOKEN.findall(text))))


def evidence_features(
    matched: int, followed: int, count: int, rivals: int, line: str
) -> tuple[float, ...]:
    """What `LOOKUP_CURVE` weighs."""
    return (
        math.log1p(matched),
        math.log1p(followed),
        math.log(max(count, 1) / (max(count, 1) + rivals)),
        math.log1p(len(_TOKEN.findall(line))),
    )


def _curve(weights: Sequence[float], features: Sequence[float]) -> float:
    score = weights[0] + sum(w * f for w, f in zip(weights[1:], features, strict=True))
    return 1 / (1 + math.exp(-min(30.0, max(-30.0, score))))
