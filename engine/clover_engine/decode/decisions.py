"""Multiple-choice answers: one masked row an answer, all answers of a joint decision in one block.

Joint: the block's rows are the answers, so each sees all others. The answer that is surest is
committed first, then the rest is read again with it in place (confidence order, as in
`diffusion.py`); at the end every answer is masked once more and read beside all others, until no
answer changes. Independent: a block of one row a question. A model without masked rows answers one
question after the other (`decide_forward`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clover_engine.decode.common import Limits, Start, Tally, clean_pass
from clover_engine.errors import RequestCancelled
from clover_engine.model import Clover

REVISIONS = 2
"""So many times at most every answer is reconsidered beside the others."""


def decide(
    model: Clover, start: Start, options: Sequence[Sequence[int]], limits: Limits, tally: Tally
) -> list[Tensor]:
    """Probabilities [options] of each answer; `options[i]` are the token ids of question i's.

    Raises RequestCancelled when cancelled or late: half a decision is none.
    """
    allowed = [torch.tensor(ids) for ids in options]
    block = torch.full((len(options),), model.mask_id)
    answers = [torch.empty(0)] * len(options)
    for _ in options:
        rows = _read(model, start, block, allowed, limits, tally)
        open_rows = [i for i, token in enumerate(block.tolist()) if token == model.mask_id]
        surest = max(open_rows, key=lambda i: float(rows[i].max()))
        answers[surest] = rows[surest]
        block[surest] = allowed[surest][rows[surest].argmax()]
    if len(options) > 1:
        _revise(model, start, block, allowed, answers, limits, tally)
    return answers


def decide_forward(
    model: Clover,
    start: Start,
    options: Sequence[Sequence[int]],
    before: Sequence[Sequence[int]],
    limits: Limits,
    tally: Tally,
) -> list[Tensor]:
    """`decide` by a model without masked rows: one answer after the other, each reads those before
    it. `before[i]` are tokens that are committed first, such as the question's number.

    Raises RequestCancelled when cancelled or late.
    """
    answers: list[Tensor] = []
    logits = start.logits
    answered: list[int] = []
    for ids, tokens in zip(options, before, strict=True):
        if limits.interrupted() is not None:
            raise RequestCancelled("ended before all questions were answered; allow more time")
        if forced := [*answered, *tokens]:
            logits = clean_pass(model, forced, start.cache, tally)[-1]
        answers.append(logits.float()[torch.tensor(ids)].softmax(-1))
        answered = [ids[int(answers[-1].argmax())]]
    return answers


def _revise(
    model: Clover,
    start: Start,
    block: Tensor,
    allowed: list[Tensor],
    answers: list[Tensor],
    limits: Limits,
    tally: Tally,
) -> None:
    """Reads each answer again beside all others, the least sure first."""
    for _ in range(REVISIONS):
        before = block.clone()
        for i in sorted(range(len(answers)), key=lambda i: float(answers[i].max())):
            block[i] = model.mask_id
            answers[i] = _read(model, start, block, allowed, limits, tally)[i]
            block[i] = allowed[i][answers[i].argmax()]
        if torch.equal(before, block):
            return


def _read(
    model: Clover,
    start: Start,
    block: Tensor,
    allowed: list[Tensor],
    limits: Limits,
    tally: Tally,
) -> list[Tensor]:
    """One denoising step: each row's distribution over its own options."""
    if limits.interrupted() is not None:
        raise RequestCancelled("ended before all questions were answered; allow more time")
    _, hidden = model(None, block[None, None], start.cache)
    tally.forward_passes += 1
    tally.denoising_steps += 1
    logits = model.logits(hidden[0, 0]).float()  # [B, vocab]
    return [row[ids].softmax(-1) for row, ids in zip(logits, allowed, strict=True)]
