"""What counts as a target of the diffusion loss."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clover_engine.train.objective import Noise, add_noise, losses

VOCAB, PAD, MASK = 40, 0, 1
MIDDLE = 16


class Fixed:
    """Predicts the same for every row, each token with another probability."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    def __call__(self, rows: Tensor, blocks: Tensor, starts: Any) -> tuple[Tensor, Tensor]:
        return torch.zeros(*rows.shape, 1), torch.zeros(*blocks.shape, 1)

    def head(self, hidden: Tensor) -> Tensor:
        return self.scores.expand(*hidden.shape[:-1], VOCAB)


def diffusion(rows: Tensor, weights: Tensor, noise: Noise, scores: Tensor) -> float:
    model = cast(Any, Fixed(scores))
    return float(losses(model, rows, weights, noise, MIDDLE, PAD, 0.5).diffusion)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), wrong=st.floats(0, 0.6), padding=st.integers(0, 8))
def test_the_loss_is_the_mean_over_what_may_be_learned(
    seed: int, wrong: float, padding: int
) -> None:
    """Against one loop; wrong lines change nothing, whatever stands in them."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(2, VOCAB, (2, 64), generator=generator)
    if padding:
        rows[:, -padding:] = PAD
    weights = torch.where(torch.rand(2, 64, generator=generator) < wrong, 0.0, 1.0)
    weights[:, -MIDDLE:] = 3.0
    weights[rows == PAD] = 0.0
    noise = add_noise(rows, MIDDLE, 8, 4, MASK, generator)
    scores = torch.randn(VOCAB, generator=generator)
    total = count = 0.0
    for n in range(2):
        for b, start in enumerate(noise.starts):
            for i in range(8):
                token = int(rows[n, start + i])
                share = 0.1 if token == PAD else float(weights[n, start + i] > 0)
                if noise.masked[n, b, i]:
                    total -= share * float(scores.log_softmax(-1)[token])
                    count += share
    found = diffusion(rows, weights, noise, scores)
    assert found == pytest.approx(total / count, rel=1e-4)
    changed = torch.where((weights == 0) & (rows != PAD), (rows + 1) % VOCAB, rows)
    changed = torch.where((changed == PAD) & (rows != PAD), 2, changed)
    index = torch.tensor(noise.starts)[:, None] + torch.arange(8)
    other = Noise(noise.starts, noise.ids, changed[:, index], noise.masked)
    assert diffusion(rows, weights, other, scores) == pytest.approx(found, rel=1e-5)


def test_a_batch_without_targets_has_no_loss() -> None:
    rows = torch.full((1, 64), 5)
    weights = torch.ones(1, 64)
    weights[:, :MIDDLE] = 0
    noise = Noise((0,), torch.full((1, 1, 8), MASK), torch.full((1, 1, 8), 5),
                  torch.ones(1, 1, 8, dtype=torch.bool))  # fmt: skip
    assert diffusion(rows, weights, noise, torch.zeros(VOCAB)) == 0
    assert not math.isnan(diffusion(rows, weights, noise, torch.zeros(VOCAB)))
