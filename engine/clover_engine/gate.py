"""When a generated text is good enough to be shown without being asked for.

How sure a model is of its tokens is not how often its text is right, and how the two belong
together differs from model to model. For models that were measured there is a curve, by the name
that `InfillResult.model` has: `bench/suggest/calibrate.py` compares the model's certainty with
held-out code and prints it; run it again for every new checkpoint. Every other model is taken at
its word, cautiously: see `unmeasured_probability`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from clover_engine.api import Infill

SHOWN_CONFIDENCE = 0.4
"""Probability of being exactly right from which a text is shown; the one place that says so."""

SMALL = "clover-nano"
"""The shipped model's name."""
_CODER = (0.670, 0.907, -1.275)
MODEL_CURVES: Mapping[str, tuple[float, ...]] = {
    SMALL: (0.384, 1.387, -1.939),
    "coder-0.5b": _CODER,
    "coder-1.5b": _CODER,  # not measured itself; its texts are right more often
}
"""Logistic curves by model: an intercept, then the weight of each of `model_features`."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def is_shown(infill: Infill, model: str = "") -> bool:
    """True for text that an editor would show by itself: there is some, and it is sure enough."""
    if not infill.text.strip():
        return False
    return model_probability(infill.confidence, infill.text, model) >= SHOWN_CONFIDENCE


def model_probability(confidence: float, text: str, model: str = "") -> float:
    """Probability that a model's text is exactly right, from its mean token probability."""
    curve = MODEL_CURVES.get(model)
    if curve is None:
        return unmeasured_probability(confidence, text)
    intercept, *weights = curve
    features = model_features(confidence, text)
    score = intercept + sum(w * f for w, f in zip(weights, features, strict=True))
    return 1 / (1 + math.exp(-min(30.0, max(-30.0, score))))


def unmeasured_probability(confidence: float, text: str) -> float:
    """The same for a model without a curve: the probability that all of its tokens are right.

    Where a model is calibrated token by token, that is the product of their probabilities, which
    are `confidence` in the (geometric) mean. Vocabularies cut words and signs into more tokens
    than are counted here, and the end of the text is a decision too: hence a quarter more, and one.
    """
    tokens = len(_TOKEN.findall(text))
    return math.pow(min(max(confidence, 0.0), 1.0), 1 + 1.25 * tokens)


def model_features(confidence: float, text: str) -> tuple[float, ...]:
    """What a curve weighs: the log-odds of a token, and how many must be right."""
    sure = min(max(confidence, 1e-4), 1 - 1e-4)
    return (math.log(sure / (1 - sure)), math.log1p(len(_TOKEN.findall(text))))
