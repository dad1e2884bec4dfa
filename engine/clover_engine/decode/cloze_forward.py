"""Small edits of a line by a model that only reads forwards.

`cloze.py` masks spans and fills them; a model without masks proposes tokens for what it has read:
the line is read once, which gives its best tokens at every place. Each replaces up to `max_remove`
of the line's own tokens, or stands before them; the best ones are continued, token by token, by up
to `max_insert` in all. Ranking by the whole line's probability is the caller's (`scoring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.model import Clover

BRANCHES = 6
"""Tokens that are proposed at a place."""
BEAM = 16
"""Proposals that are continued."""
MAX_LINE = 64


@dataclass(frozen=True, slots=True)
class Proposal:
    """`tokens` at a place of the line; `gain`: their mean log-probability minus that of the token
    which stands there."""

    place: int
    tokens: tuple[int, ...]
    gain: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large an edit may be, and how many come back."""

    max_remove: int
    max_insert: int
    top: int


def fill(
    model: Clover,
    start: Start,
    line: list[int],
    bounds: Bounds,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
) -> list[tuple[int, ...]]:
    """Up to `bounds.top` distinct lines other than `line`, most promising first.

    `sampling.banned` are tokens that an edit must not have. Nothing of a line over 64 tokens.
    """
    if len(line) > MAX_LINE or limits.interrupted() is not None:
        return []
    found: dict[tuple[int, ...], float] = {}
    for at in range(len(line)):
        for removed in range(1, min(bounds.max_remove, len(line) - at) + 1):
            found[(*line[:at], *line[at + removed :])] = -float(removed)
    wave: list[Proposal] = []
    if bounds.max_insert > 0:
        wave = _first(_read(model, start, line, sampling, tally), line)
    for inserted in range(1, bounds.max_insert + 1):
        for each in wave:
            for removed in range(min(bounds.max_remove, len(line) - each.place) + 1):
                tail = line[each.place + removed :]
                edited = (*line[: each.place], *each.tokens, *tail)
                gain = each.gain - 0.1 * removed
                found[edited] = max(gain, found.get(edited, gain))
        if inserted == bounds.max_insert or limits.interrupted() is not None:
            break
        wave = sorted(wave, key=lambda p: p.gain, reverse=True)[:BEAM]
        wave = _continued(model, start, line, wave, sampling, tally)
    found.pop(tuple(line), None)
    return sorted(found, key=lambda edited: found[edited], reverse=True)[: bounds.top]


def _read(model: Clover, start: Start, line: list[int], sampling: Sampling, tally: Tally) -> Tensor:
    """Log-probabilities [len(line) + 1, vocab] of what comes at each place of the line."""
    logits = start.logits[None]
    if line:
        hidden, _ = model(torch.tensor([line]), cache=start.cache, update=False)
        tally.forward_passes += 1
        logits = torch.cat([logits, model.logits(hidden[0])])
    return sampling.probabilities(logits).log()


def _first(logp: Tensor, line: Sequence[int]) -> list[Proposal]:
    """The best tokens of every place."""
    values, tokens = logp.topk(min(BRANCHES, logp.shape[-1]), dim=-1)
    own = [float(logp[i, token]) for i, token in enumerate(line)] + [0.0]
    return [
        Proposal(at, (token,), value - max(own[at], -20.0))
        for at, row in enumerate(zip(values.tolist(), tokens.tolist(), strict=True))
        for value, token in zip(*row, strict=True)
        if not (at < len(line) and token == line[at])
    ]


def _continued(
    model: Clover,
    start: Start,
    line: list[int],
    wave: list[Proposal],
    sampling: Sampling,
    tally: Tally,
) -> list[Proposal]:
    """Each of `wave` with one more token, in its best ways."""
    if not wave:
        return []
    rows = [[*line[: p.place], *p.tokens] for p in wave]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    hidden, _ = model(ids, cache=start.cache, update=False)
    tally.forward_passes += 1
    last = hidden[torch.arange(len(rows)), torch.tensor([len(row) - 1 for row in rows])]
    logp = sampling.probabilities(model.logits(last)).log()  # [wave, vocab]
    values, tokens = logp.topk(min(BRANCHES // 2, logp.shape[-1]), dim=-1)
    return [
        Proposal(p.place, (*p.tokens, token), p.gain + value)
        for p, row in zip(wave, zip(values.tolist(), tokens.tolist(), strict=True), strict=True)
        for value, token in zip(*row, strict=True)
    ]
