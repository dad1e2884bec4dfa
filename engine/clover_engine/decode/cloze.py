"""Cloze fills: mask every short span of a line, fill all masks as blocks of one history.

Every (start, removed, inserted) span is a block [line with masks, <eom>]; one pass denoises
hundreds of them. Spans of several masks are filled from the most confident position on, keeping
a beam over all spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.model import Clover

MAX_ROWS = 32
ROWS_PER_PASS = 2048
BRANCHES = 4
BEAM = 96


@dataclass(frozen=True, slots=True)
class Fill:
    """A line's tokens with some masks left, and the log-probability of those already filled."""

    tokens: tuple[int, ...]
    logprob: float
    masks: int
    """How many masks the span had."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Which edits of a line are wanted."""

    ends: tuple[int, int]
    """The tokens <eom> and <pad>, which end and fill up a line's block."""
    max_remove: int
    max_insert: int
    top: int
    """So many lines at most."""


def spans(line: list[int], max_remove: int, max_insert: int, mask: int) -> Iterator[Fill]:
    """Every replacement of a span by masks; pure deletions have none. Lines over 31 tokens are
    only partly looked at: the block must hold the line and its <eom>."""
    for start in range(len(line) + 1):
        for removed in range(min(max_remove, len(line) - start) + 1):
            for inserted in range(max_insert + 1):
                if removed == 0 and inserted == 0:
                    continue
                tokens = (*line[:start], *([mask] * inserted), *line[start + removed :])
                if len(tokens) < MAX_ROWS:
                    yield Fill(tokens, 0.0, inserted)


def fill(
    model: Clover,
    start: Start,
    line: list[int],
    wanted: Edits,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
) -> list[Fill]:
    """Distinct filled lines other than `line`, best mean log-probability first."""
    mask = model.mask_id
    open_ = list(spans(line, wanted.max_remove, wanted.max_insert, mask))
    done = {f.tokens: f for f in open_ if f.masks == 0 and f.tokens != tuple(line)}
    open_ = [f for f in open_ if f.masks]
    while open_ and limits.interrupted() is None:
        grown = _grow(model, start, open_, wanted.ends, limits, sampling, tally)
        open_ = []
        for f in grown:
            if mask in f.tokens:
                open_.append(f)
            elif f.tokens != tuple(line):
                best = done.get(f.tokens)
                if best is None or f.logprob > best.logprob:
                    done[f.tokens] = f
        open_ = sorted(open_, key=_mean, reverse=True)[:BEAM]
    return sorted(done.values(), key=_mean, reverse=True)[: wanted.top]


def _mean(f: Fill) -> float:
    return float(f.logprob / max(1, f.masks) ** 0.7)


def _grow(
    model: Clover,
    start: Start,
    fills: list[Fill],
    ends: tuple[int, int],
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
) -> list[Fill]:
    """Fills one more mask of every entry, in its BRANCHES best ways."""
    size = max(len(f.tokens) for f in fills) + 1
    eom, pad = ends
    grown: list[Fill] = []
    per_pass = max(1, ROWS_PER_PASS // size)
    for at in range(0, len(fills), per_pass):
        if limits.interrupted() is not None:
            break
        group = fills[at : at + per_pass]
        rows = [[*f.tokens, eom, *([pad] * (size - 1 - len(f.tokens)))] for f in group]
        ids = torch.tensor([rows])  # [1, b, B]
        _, hidden = model(None, ids, start.cache)
        tally.forward_passes += 1
        tally.denoising_steps += 1
        masked = ids[0] == model.mask_id  # [b, B]
        logp = sampling.probabilities(model.logits(hidden[0][masked])).log()  # [masks, vocab]
        values, tokens = logp.topk(BRANCHES, dim=-1)
        where = masked.nonzero().tolist()
        grown += _extend(group, where, values.tolist(), tokens.tolist())
    return grown


def _extend(
    group: list[Fill], where: list[list[int]], values: list[list[float]], tokens: list[list[int]]
) -> Iterator[Fill]:
    """For each entry, its most confident masked position with each of the best tokens."""
    best: dict[int, tuple[float, int, int]] = {}
    for row, (block, position) in enumerate(where):
        confidence = values[row][0]
        if block not in best or confidence > best[block][0]:
            best[block] = (confidence, row, position)
    for block, (_, row, position) in best.items():
        f = group[block]
        for value, token in zip(values[row], tokens[row], strict=True):
            changed = (*f.tokens[:position], token, *f.tokens[position + 1 :])
            yield Fill(changed, f.logprob + value, f.masks)
