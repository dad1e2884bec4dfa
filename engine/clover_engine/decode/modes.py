"""One way into the decoders: which of them a request's mode and a checkpoint's rows call for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from clover_engine.api import Mode
from clover_engine.decode import autoregressive, diffusion, speculative
from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally
from clover_engine.decode.lookup import Lookup
from clover_engine.model import Clover

MAX_BLOCK = 32


def decode(
    model: Clover,
    start: Start,
    limits: Limits,
    tally: Tally,
    generator: torch.Generator,
    *,
    mode: Mode,
    clean: Sampling,
    block: Sampling,
    lookup: Callable[[], Lookup],
    block_size: int | None = None,
    threshold: float | None = None,
    trained: bool = True,
) -> Generated:
    """Generates after `start`. `clean` and `block` sample from the two kinds of rows; `lookup` is
    asked for only where drafts are verified; block size and threshold default to the checkpoint's.

    `trained`: the checkpoint's masked rows were trained to fill blocks, not only to draft or not
    at all. A checkpoint without a mask has drafts from look-ups only.
    """
    if (reason := limits.interrupted()) is not None:
        out = Generated()
        out.reason = reason
        return out
    config = model.config
    size = min(block_size or config.block_size, MAX_BLOCK)
    args = (model, start, limits)
    if mode == "ar":
        return autoregressive.decode(*args, clean, tally, generator)
    if mode == "speculative" or config.block_shift or not trained or not model.has_mask:
        return speculative.decode(
            *args, clean, tally, block_size=size, lookup=lookup(),
            ride=model.has_mask and (trained or config.block_shift > 0), generator=generator,
        )  # fmt: skip
    sure = config.threshold if threshold is None else threshold
    return diffusion.decode(
        *args, block, tally, block_size=size, threshold=sure, generator=generator
    )
