"""Models that are tables of chances, and a chi-square test: whether decoding keeps a distribution.

A `Markov` model's next token depends on the last one alone, so that the distribution of every
sequence is known exactly; its block rows say anything at all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from clover_engine.decode.common import Sampling

Sequences = dict[tuple[int, ...], float]


class Markov:
    """In the place of a `Clover` and of its cache; `hidden` states are logits already."""

    fused: Any = None
    mask_id = -1
    config = SimpleNamespace(block_shift=0)

    def __init__(self, seed: int, vocab: int, block: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        spread = 0.5 + 2.5 * float(torch.rand((), generator=generator))
        self.after = torch.randn(vocab, vocab, generator=generator).double() * spread
        other = torch.randn(block, vocab, generator=generator).double() * spread
        self.ahead = self.after.mean(0) + other / 2  # near enough that drafts often stand
        self.vocab = vocab

    def __call__(
        self, clean: Tensor, blocks: Tensor | None = None, cache: Any = None
    ) -> tuple[Tensor, Tensor | None]:
        noisy = None if blocks is None else self.ahead[: blocks.shape[-1]][None, None]
        return self.after[clean], noisy

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def keep(self, count: int) -> None:
        assert count >= 1

    def sequences(self, first: int, length: int, sampling: Sampling) -> Sequences:
        """The chance of every sequence of `length` tokens after `first`, one token at a time."""
        chances = {}
        for tokens in itertools.product(range(self.vocab), repeat=length):
            chance = 1.0
            for i, token in enumerate(tokens):
                last = tokens[i - 1] if i else first
                logits = sampling.penalised(self.after[last][None], tokens[:i])[0]
                chance *= float(sampling.probabilities(logits)[token])
            chances[tokens] = chance
        return chances


def assert_distributed(
    draw: Callable[[int], Sequence[int]], expected: Sequences, rounds: int
) -> None:
    """Chi-square: `draw(seed)` gives sequences as `expected` says, in `rounds` of them."""
    counts = dict.fromkeys(expected, 0)
    for seed in range(rounds):
        counts[tuple(draw(seed))] += 1
    never = [tokens for tokens, chance in expected.items() if chance < 1e-12 and counts[tokens]]
    assert not never
    cells, rest = [], [0.0, 0.0]
    for tokens, chance in expected.items():
        cell = (float(counts[tokens]), chance * rounds)
        if cell[1] >= 5:
            cells.append(cell)
        else:
            rest = [rest[0] + cell[0], rest[1] + cell[1]]
    if rest[1] >= 1:
        cells.append((rest[0], rest[1]))
    if len(cells) < 2:
        assert sum(found for found, _ in cells) >= rounds - 10 * max(1.0, rest[1])
        return
    total = sum((found - wanted) ** 2 / wanted for found, wanted in cells)
    assert deviations(total, len(cells) - 1) < 4.5, (total, len(cells), cells)


def deviations(chi_square: float, freedom: int) -> float:
    """How many standard deviations above its mean (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
