"""Plain autoregressive decoding with the clean rows: the reference that drafts are held to."""

from __future__ import annotations

import torch

from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally, clean_pass
from clover_engine.model import Clover


def decode(
    model: Clover,
    start: Start,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
    generator: torch.Generator | None = None,
) -> Generated:
    """One token a pass."""
    out, logits = Generated(), start.logits
    while True:
        probs = sampling.probabilities(logits)
        token = int(sampling.pick(probs, generator))
        if out.add(token, float(probs[token]), limits):
            break
        if reason := limits.interrupted():
            out.reason = reason
            break
        logits = clean_pass(model, [token], start.cache, tally)[-1]
    tally.tokens += len(out.probs)
    return out
