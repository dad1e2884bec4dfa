"""When a generated text is good enough to be shown without being asked for.

How sure a model is of its tokens is not how often its text is right. `bench/calibrate.py` measures
the latter on held-out code and prints the curve below; run it again for every new checkpoint.
"""

from __future__ import annotations

import math
import re

from clover_engine.api import Infill

SHOWN_CONFIDENCE = 0.3
"""Probability of being exactly right from which a text is shown; the one place that says so."""

MODEL_CURVE = (0.735, 1.652, -2.318)
"""A logistic curve: an intercept, then the weight of each of `model_features`."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def is_shown(infill: Infill) -> bool:
    """True for text that an editor would show by itself: there is some, and it is sure enough."""
    if not infill.text.strip():
        return False
    return model_probability(infill.confidence, infill.text) >= SHOWN_CONFIDENCE


def model_probability(confidence: float, text: str) -> float:
    """Probability that a model's text is exactly right, from its mean token probability."""
    intercept, *weights = MODEL_CURVE
    features = model_features(confidence, text)
    score = intercept + sum(w * f for w, f in zip(weights, features, strict=True))
    return 1 / (1 + math.exp(-min(30.0, max(-30.0, score))))


def model_features(confidence: float, text: str) -> tuple[float, ...]:
    """What `MODEL_CURVE` weighs: the log-odds of a token, and how many must be right."""
    sure = min(max(confidence, 1e-4), 1 - 1e-4)
    return (math.log(sure / (1 - sure)), math.log1p(len(_TOKEN.findall(text))))
