"""How likely the first line of a look-up is exactly right, fitted on held-out packages."""

from __future__ import annotations

import math

from clover_lsp.context.lookup import token_count
from clover_lsp.context.types import Lookup

NAMES = (
    "constant",
    "matched",
    "followed",
    "length",
    "agreed",
    "contested",
    "matched if contested",
    "followed if contested",
)

WEIGHTS = (-0.796, 0.572, 0.448, -0.823, 0.750, -0.138, -0.284, -0.280)
"""In the order of `NAMES`."""


def features(lookup: Lookup) -> tuple[float, ...]:
    """What the confidence depends on; sizes as logarithms to base 2."""
    matched, followed = math.log2(1 + lookup.matched), math.log2(1 + lookup.followed)
    contested = math.log2(1 + lookup.rivals)
    return (
        1.0,
        matched,
        followed,
        math.log2(1 + token_count(lookup.text.partition("\n")[0])),
        math.log2(lookup.count),
        contested,
        matched * contested,
        followed * contested,
    )


def confidence(lookup: Lookup) -> float:
    """0..1: the share of such look-ups whose first line is exactly what stands there.

    A logistic model of `features`. `WEIGHTS` were fitted by
    ``python -m bench.suggest.lookup --fit`` on eight held-out packages, half of the holes whole
    lines and half within a line; the same command without ``--fit`` prints how well it holds on
    others.
    """
    score = sum(w * x for w, x in zip(WEIGHTS, features(lookup), strict=True))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score))))
