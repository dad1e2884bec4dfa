"""Self-speculation: draft by denoising, verify with the clean rows of the same weights.

The first token of a block is already known from the last clean row. One denoising step drafts
the rest; a clean pass over [known, draft…] commits and verifies at once. Greedy decoding accepts
the longest prefix that equals the clean rows' argmax, so its output is that of plain AR decoding,
token for token; with a temperature, rejection sampling keeps AR's distribution exactly
(Leviathan et al. 2023, 2211.17192). The verifying pass also carries the next block's draft,
which serves whenever the whole draft is accepted.
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
    draft_threshold: float = 0.3,
    generator: torch.Generator | None = None,
) -> Generated:
    """Generates until a stop token, a stop string or a limit; drafts of at most block_size - 1."""
    out = Generated()
    probs = sampling.probabilities(start.logits)
    known = int(sampling.pick(probs, generator))
    known_prob = float(probs[known])
    drafts: Tensor | None = None  # distributions [block_size - 1, vocab] after `known`
    while not out.add(known, known_prob, limits):
        if (reason := limits.interrupted()) is not None:
            out.reason = reason
            break
        if drafts is None:
            drafts = _draft(model, start, known, block_size, sampling, tally)
        room = limits.max_tokens - len(out.tokens)
        draft, draft_probs = _choose(drafts, draft_threshold, room, sampling, generator)
        verified, ahead = _verify(model, start, [known, *draft], block_size, sampling, tally)
        accepted, known, known_prob = _accept(draft, draft_probs, verified, sampling, generator)
        tally.drafted += len(draft)
        tally.accepted += accepted
        start.cache.keep(1 + accepted)
        drafts = ahead if accepted == len(draft) else None
        over = False
        for i, token in enumerate(draft[:accepted]):
            over = out.add(token, float(verified[i, token]), limits)
            if over:
                break
        if over:
            break
    tally.tokens += len(out.probs)
    return out


def _draft(
    model: Clover, start: Start, known: int, size: int, sampling: Sampling, tally: Tally
) -> Tensor:
    """One denoising step over [known, MASK…]: distributions [size - 1, vocab]."""
    block = torch.tensor([[[known] + [model.mask_id] * (size - 1)]])
    _, hidden = model(None, block, start.cache)
    tally.forward_passes += 1
    tally.denoising_steps += 1
    return sampling.probabilities(model.head(hidden[0, 0, 1:]))


def _choose(
    probs: Tensor,
    threshold: float,
    room: int,
    sampling: Sampling,
    generator: torch.Generator | None,
) -> tuple[list[int], Tensor]:
    """The draft, cut before the first token whose probability is under the threshold."""
    picked = sampling.pick(probs, generator)
    confident = probs.gather(-1, picked[:, None])[:, 0] >= threshold
    length = min(int(confident.long().cumprod(0).sum()), max(room, 0))
    return picked[:length].tolist(), probs[:length]


def _verify(
    model: Clover, start: Start, tokens: list[int], size: int, sampling: Sampling, tally: Tally
) -> tuple[Tensor, Tensor]:
    """Commits `tokens`; distributions after each [T, vocab], and the draft for what follows them.

    The block that rides along is all masks: its first row stands for the token that this very
    pass decides, so the rows after it are the next draft.
    """
    block = torch.full((1, 1, size), model.mask_id)
    hidden, ahead = model(torch.tensor([tokens]), block, start.cache)
    tally.forward_passes += 1
    verified = sampling.probabilities(model.head(hidden[0]))
    return verified, sampling.probabilities(model.head(ahead[0, 0, 1:]))


def _accept(
    draft: list[int],
    draft_probs: Tensor,
    verified: Tensor,
    sampling: Sampling,
    generator: torch.Generator | None,
) -> tuple[int, int, float]:
    """How many drafted tokens stand, and the token that follows them with its probability."""
    for i, token in enumerate(draft):
        p, q = verified[i], draft_probs[i]
        if sampling.temperature <= 0:
            correct = int(p.argmax())
            if correct != token:
                return i, correct, float(p[correct])
            continue
        keep = float(p[token]) / max(float(q[token]), 1e-20)
        if float(torch.rand((), generator=generator)) >= keep:
            rest = (p - q).clamp(min=0)
            rest = rest / rest.sum() if float(rest.sum()) > 0 else p
            other = int(torch.multinomial(rest, 1, generator=generator))
            return i, other, float(p[other])
    last = verified[len(draft)]
    following = int(sampling.pick(last, generator))
    return len(draft), following, float(last[following])
