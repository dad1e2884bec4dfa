"""Block denoising with a confidence threshold (Fast-dLLM, 2505.22618).

A block starts as [MASK]s. Each step commits every masked position whose best token passes the
threshold, and at least the most confident one. A finished block is committed as clean rows in
the same pass that takes the next block's first step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally
from clover_engine.model import Clover


def decode(
    model: Clover,
    start: Start,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
    *,
    block_size: int,
    threshold: float,
    generator: torch.Generator | None = None,
) -> Generated:
    """Fills block after block until a stop token, a stop string or a limit."""
    out = Generated()
    finished: list[int] = []  # the last block, not yet in the cache
    while True:
        size = min(block_size, limits.max_tokens - len(out.tokens) + bool(limits.stop_ids))
        block = Block(size, model.mask_id, limits)
        while not block.done:
            if (reason := limits.interrupted()) is not None:
                for token, prob in block.prefix():
                    if out.add(token, prob, limits):
                        return _end(out, tally)
                out.reason = reason
                return _end(out, tally)
            logits = _step(model, start, finished, block, tally)
            finished = []
            block.commit(sampling.probabilities(logits), threshold, sampling, generator)
        for token, prob in block.prefix():
            if out.add(token, prob, limits):
                return _end(out, tally)
        finished = [token for token, _ in block.prefix()]


def _end(out: Generated, tally: Tally) -> Generated:
    tally.tokens += len(out.probs)
    return out


def _step(model: Clover, start: Start, finished: list[int], block: Block, tally: Tally) -> Tensor:
    """One denoising step: logits [B, vocab] of the block's rows."""
    clean = torch.tensor([finished]) if finished else None
    _, hidden = model(clean, block.ids[None, None], start.cache)
    tally.forward_passes += 1
    tally.denoising_steps += 1
    return model.logits(hidden[0, 0])


class Block:
    """Ids [B] being denoised, which are still masked, and each one's probability at commit."""

    def __init__(self, size: int, mask_id: int, limits: Limits) -> None:
        self.limits = limits
        self.ids = torch.full((size,), mask_id)
        self.masked = torch.ones(size, dtype=torch.bool)
        self.probs = torch.zeros(size)

    def commit(
        self,
        probs: Tensor,
        threshold: float,
        sampling: Sampling,
        generator: torch.Generator | None,
    ) -> None:
        """Fixes the confident masked positions, at least one. probs [B, vocab]."""
        chosen = sampling.pick(probs, generator)  # [B]
        confidence = probs.gather(-1, chosen[:, None])[:, 0].masked_fill(~self.masked, -1.0)
        take = confidence >= threshold
        take[confidence.argmax()] = True
        self.ids = torch.where(take, chosen, self.ids)
        self.probs = torch.where(take, confidence.to(self.probs.dtype), self.probs)
        self.masked = self.masked & ~take
        stops = self.limits.stop_ids
        found = zip(take.tolist(), self.ids.tolist(), strict=True)
        end = next((i for i, (taken, token) in enumerate(found) if taken and token in stops), None)
        if end is not None:  # what follows the end of the hole need not be filled
            self.masked[end + 1 :] = False

    def prefix(self) -> list[tuple[int, float]]:
        """Tokens before the first masked position, the first stop token last, with their
        probabilities. What stands behind a stop token may be masks, which are no text."""
        masked = self.masked.nonzero()
        length = int(masked[0]) if len(masked) else len(self.ids)
        ids = self.ids[:length].tolist()
        ends = (i + 1 for i, token in enumerate(ids) if token in self.limits.stop_ids)
        length = next(ends, length)
        return list(zip(ids[:length], self.probs[:length].tolist(), strict=True))

    @property
    def done(self) -> bool:
        """No mask is left before the end of the block, a stop token or a stop string."""
        known = [token for token, _ in self.prefix()]
        if len(known) == len(self.ids) or (known and known[-1] in self.limits.stop_ids):
            return True
        stopped = self.limits.stopped
        return bool(known) and stopped is not None and stopped(known)
