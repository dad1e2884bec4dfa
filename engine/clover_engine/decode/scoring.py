"""Joint log-probability of candidate texts in a hole, many candidates per pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clover_engine.decode.common import Limits, Start, Tally
from clover_engine.model import Clover

ROWS_PER_PASS = 1024
LOGIT_ROWS = 128


def score(
    model: Clover, start: Start, candidates: Sequence[list[int]], limits: Limits, tally: Tally
) -> list[float | None]:
    """Σ log p of each candidate's tokens (stop token included by the caller), nats.

    Candidates are run as clean rows over one shared history, shortest first; those not reached
    before an interruption are None.
    """
    result: list[float | None] = [None] * len(candidates)
    first = start.logits.float().log_softmax(-1)  # [vocab]
    order = sorted(range(len(candidates)), key=lambda i: len(candidates[i]))
    at = 0
    while at < len(order) and limits.interrupted() is None:
        group = _group(order, at, candidates)
        at += len(group)
        values = _pass(model, start, first, [candidates[i] for i in group], tally)
        for i, value in zip(group, values, strict=True):
            result[i] = value
    return result


def _group(order: list[int], at: int, candidates: Sequence[list[int]]) -> list[int]:
    """As many of the next candidates as ROWS_PER_PASS padded rows allow, at least one."""
    end = at + 1
    while end < len(order) and (end + 1 - at) * len(candidates[order[end]]) <= ROWS_PER_PASS:
        end += 1
    return order[at:end]


def _pass(
    model: Clover, start: Start, first: torch.Tensor, group: list[list[int]], tally: Tally
) -> list[float]:
    width = max(len(ids) for ids in group)
    if width == 0:
        return [0.0] * len(group)
    ids = torch.zeros(len(group), width, dtype=torch.long)
    real = torch.zeros(len(group), width, dtype=torch.bool)
    for row, tokens in enumerate(group):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        real[row, : len(tokens)] = True
    logp = torch.zeros(len(group), width)
    logp[:, 0] = first[ids[:, 0]]
    if width > 1:
        hidden, _ = model(ids[:, :-1], cache=start.cache, update=False)
        keep = real[:, 1:]
        logp[:, 1:][keep] = _chosen(model, hidden[keep], ids[:, 1:][keep])
        tally.forward_passes += 1
    tally.tokens += int(real.sum())
    return logp.masked_fill(~real, 0.0).sum(-1).tolist()


def _chosen(model: Clover, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """log p of tokens [rows] after hidden states [rows, hidden]; few rows' logits at once, as a
    vocabulary may have 150,000 tokens."""
    found = []
    for at in range(0, len(tokens), LOGIT_ROWS):
        logits = model.logits(hidden[at : at + LOGIT_ROWS]).float()  # [rows, vocab]
        chosen = logits.gather(-1, tokens[at : at + LOGIT_ROWS, None])[:, 0]
        found.append(chosen - logits.logsumexp(-1))
    return torch.cat(found)
