"""Self-speculation: drafts from denoising or look-up, verified by clean rows of the same weights.

Every pass does two things. Its clean rows [known, draft…] commit and verify: greedy decoding
accepts the longest prefix that equals the clean rows' argmax, so the output is that of plain AR
decoding, token for token; with a temperature, rejection sampling keeps AR's distribution exactly
(Leviathan et al. 2023, 2211.17192). And a block of masks rides along after them: it is denoised on
the whole draft's history, and is the next draft whenever that was accepted. So a pass never yields
less than plain decoding does. A look-up draft (`lookup.py`) goes first where one is found; it is
twice as long as the last one if that stood as a whole, as most do where text is copied (`_Length`).
A block makes a pass dearer; it stays away while blocks bring fewer tokens than that is worth
(`_Rides`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally, clean_pass
from clover_engine.decode.lookup import Lookup
from clover_engine.model import Clover
from clover_engine.model.cache import REPLAY_ROWS

WORTH = 1.3
"""Accepted tokens a block must bring: it makes a pass 2.3 times as dear in the model's layers."""
WORTH_IN_TILE = 0.8
"""The same for a block that fills up a tile of the fast path: 1.5 to 1.7 times as dear. There the
first block waits for its turn, and drafts stay within a tile: wrong ones are what costs most."""
LONG_TILES = 4
"""Tiles that a pass with a long draft fills on the fast path. There a row of 4 tiles costs 0.16 of
a step, one of 10 tiles 0.15: longer drafts gain less than the one that fails at last loses."""
SMALLEST = 3
"""Rows of the smallest block that may ride."""
PROBE = 12
"""So many passes without a block, then one is tried again."""


@dataclass(slots=True)
class _Rides:
    """Whether the next pass carries a block: a running mean of the tokens that blocks brought."""

    worth: float
    gain: float
    without: int = 0

    @property
    def wanted(self) -> bool:
        return self.gain >= self.worth or self.without >= PROBE

    def count(self, rode: bool, accepted: int) -> None:
        """After a pass: did a block ride in the one before it, and how much of it stood?"""
        if rode:
            self.gain = 0.6 * self.gain + 0.4 * accepted
            self.without = 0
        else:
            self.without += 1


@dataclass(slots=True)
class _Length:
    """How long the next look-up draft may be: short after one that failed, else it doubles."""

    short: int
    long: int
    now: int

    @classmethod
    def of(cls, model: Clover, block_size: int) -> _Length:
        """What pays on this model's path; rejected rows must be within what a cache can undo."""
        if model.fused is None:
            short, long = block_size - 1, REPLAY_ROWS - 1
        elif tile := getattr(model.fused, "tile", 0):
            short, long = min(block_size, tile) - 1, LONG_TILES * tile - 1
        else:  # passes of many rows leave that fast path
            short = long = block_size - 1
        return cls(short, max(short, long), short)

    def count(self, drafted: int, accepted: int) -> None:
        """After a pass with a look-up draft."""
        self.now = self.short if accepted < drafted else min(2 * self.now + 1, self.long)


def decode(
    model: Clover,
    start: Start,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
    *,
    block_size: int,
    draft_threshold: float = 0.3,
    lookup: Lookup | None = None,
    ride: bool = True,
    generator: torch.Generator | None = None,
) -> Generated:
    """Generates until a stop token, a stop string or a limit. Drafts are of at most block_size - 1
    tokens, or of what one tile of the fast path holds; look-up drafts grow (`_Length`).

    `ride`: whether blocks may be denoised along; without, drafts are looked up only.
    """
    out = Generated()
    probs = sampling.probabilities(start.logits)
    known = int(sampling.pick(probs, generator))
    known_prob = float(probs[known])
    ahead: Tensor | None = None  # distributions [block_size - 1, vocab] after `known`
    tile: int = getattr(model.fused, "tile", 0)
    rides, rode = _Rides(WORTH_IN_TILE, 0.0) if tile else _Rides(WORTH, 2.0), False
    length = _Length.of(model, block_size)
    while not out.add(known, known_prob, limits):
        if (reason := limits.interrupted()) is not None:
            out.reason = reason
            break
        left = limits.max_tokens - len(out.tokens)
        copied = lookup.draft(out.tokens, min(left, length.now)) if lookup is not None else []
        if copied:
            draft, drafted = copied, None
        else:
            room = min(left, length.short)
            draft, drafted = _denoised(ahead, room, draft_threshold, sampling, generator)
        size = _block_rows(1 + len(draft), block_size, tile) if ride and rides.wanted else 0
        verified, ahead = _pass(model, start, [known, *draft], size, sampling, tally)
        accepted, known, known_prob = accept(draft, drafted, verified, sampling, generator)
        rides.count(rode, 0 if drafted is None else accepted)
        rode = ahead is not None
        if copied:
            length.count(len(draft), accepted)
        tally.drafted += len(draft)
        tally.accepted += accepted
        start.cache.keep(1 + accepted)
        if accepted < len(draft):
            ahead = None
        if _add_all(out, draft[:accepted], verified, limits):
            break
    tally.tokens += len(out.probs)
    return out


def _add_all(out: Generated, tokens: list[int], verified: Tensor, limits: Limits) -> bool:
    """Commits accepted `tokens`, until generation is over: then True."""
    probs = verified[torch.arange(len(tokens)), torch.tensor(tokens, dtype=torch.long)].tolist()
    return any(out.add(token, prob, limits) for token, prob in zip(tokens, probs, strict=True))


def _block_rows(before: int, most: int, tile: int) -> int:
    """Rows of the block behind `before` others: as many as bring the pass to whole tiles, whose
    rows cost little more than one; `most` where there are no tiles."""
    if not tile:
        return most
    free = -before % tile
    return min(most, free if free >= SMALLEST else free + tile)


def _denoised(
    ahead: Tensor | None,
    room: int,
    threshold: float,
    sampling: Sampling,
    generator: torch.Generator | None,
) -> tuple[list[int], Tensor | None]:
    """A draft from the last pass's block and the distributions [draft, vocab] it was drawn from."""
    if ahead is None or room <= 0:
        return [], None
    return draw(ahead[:room], threshold, sampling, generator)


def draw(
    ahead: Tensor, threshold: float, sampling: Sampling, generator: torch.Generator | None
) -> tuple[list[int], Tensor]:
    """A draft from the distributions `ahead` [rows, vocab], and those of its tokens.

    It ends before the first row whose *most probable* token is under `threshold`. The cut must not
    depend on what is drawn: were it made by the drawn token's probability, improbable tokens would
    never be offered to `accept`, and the outcome would not be plain sampling's any more.
    """
    confident = ahead.amax(-1) >= threshold
    ahead = ahead[: int(confident.long().cumprod(0).sum())]
    if not len(ahead):
        return [], ahead
    drawn: list[int] = sampling.pick(ahead, generator).tolist()
    return drawn, ahead


def _pass(
    model: Clover, start: Start, tokens: list[int], size: int, sampling: Sampling, tally: Tally
) -> tuple[Tensor, Tensor | None]:
    """Commits `tokens`; distributions after each [T, vocab], and those of the next draft.

    The first row of the block that rides along stands for the token that this very pass decides,
    so the rows after it are the draft; where masked rows predict the token after their own
    (`block_shift`), it begins the draft. A `size` of 0 or 1 means no block.
    """
    if size < 2:
        return sampling.probabilities(clean_pass(model, tokens, start.cache, tally)), None
    tally.forward_passes += 1
    shift = model.config.block_shift
    block = torch.full((1, 1, size - shift), model.mask_id)
    hidden, ahead = model(torch.tensor([tokens]), block, start.cache)
    tally.denoising_steps += 1
    rows = torch.cat([hidden[0], ahead[0, 0, 1 - shift :]])
    probs = sampling.probabilities(model.logits(rows))
    return probs[: len(tokens)], probs[len(tokens) :]


def accept(
    draft: list[int],
    drafted: Tensor | None,
    verified: Tensor,
    sampling: Sampling,
    generator: torch.Generator | None,
) -> tuple[int, int, float]:
    """How many drafted tokens stand, and the token that follows them with its probability.

    `verified` [1 + draft, vocab] are the clean rows' distributions, `drafted` [draft, vocab] those
    the draft was drawn from, None for one that was looked up. Whatever the draft is, the tokens
    that come out are distributed as `verified` says (Leviathan et al. 2023, theorem 1).
    """
    if sampling.greedy:
        best = verified.argmax(-1).tolist()
        count = next((i for i, token in enumerate(draft) if best[i] != token), len(draft))
        return count, best[count], float(verified[count, best[count]])
    for i, token in enumerate(draft):
        p = verified[i]
        q = torch.zeros_like(p).index_fill_(0, torch.tensor(token), 1.0)
        q = q if drafted is None else drafted[i]
        keep = float(p[token]) / max(float(q[token]), 1e-20)
        if float(torch.rand((), generator=generator)) >= keep:
            rest = (p - q).clamp(min=0)
            rest = rest / rest.sum() if float(rest.sum()) > 0 else p
            other = int(torch.multinomial(rest, 1, generator=generator))
            return i, other, float(p[other])
    last = verified[len(draft)]
    following = int(sampling.pick(last, generator))
    return len(draft), following, float(last[following])
