"""The training objective: block diffusion and autoregression in one pass.

Clean rows give the AR loss. Noisy blocks read the clean history before their start and give the
diffusion loss: cross-entropy on masked positions, t ~ U(0, 1] per block, with full masks and
short contiguous masks (cloze) mixed in, and complementary copies of the middle's blocks, so that
every middle token is masked in exactly one of two copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.model import Clover


@dataclass(frozen=True, slots=True)
class Noise:
    """Blocks to denoise: ids with masks [N, b, B], the truth, and which positions are masked."""

    starts: tuple[int, ...]
    ids: Tensor
    truth: Tensor
    masked: Tensor


@dataclass(frozen=True, slots=True)
class Losses:
    total: Tensor
    diffusion: Tensor
    ar: Tensor
    ar_middle: Tensor


def add_noise(
    rows: Tensor,
    middle_rows: int,
    block_size: int,
    context_blocks: int,
    mask_id: int,
    generator: torch.Generator,
) -> Noise:
    """Chooses blocks of `rows` [N, T] and masks them.

    The middle's blocks come twice with complementary masks; `context_blocks` others come once.
    """
    n, length = rows.shape
    first = length - middle_rows
    middle = list(range(first, length, block_size))
    grid = torch.randperm(first // block_size - 1, generator=generator)[:context_blocks] + 1
    context = (grid.sort().values * block_size).tolist()
    starts = tuple([*middle, *middle, *context])
    index = torch.tensor(starts)[:, None] + torch.arange(block_size)  # [b, B]
    truth = rows[:, index]  # [N, b, B]
    masked = _masks((n, len(starts), block_size), generator)
    copies = len(middle)
    masked[:, copies : 2 * copies] = ~masked[:, :copies] | masked[:, :copies].all(-1, keepdim=True)
    return Noise(starts, truth.masked_fill(masked, mask_id), truth, masked)


def _masks(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Masked positions: per block a rate t ~ U(0, 1], 20 % all masked, 20 % one short run."""
    n, b, size = shape
    rate = 1.0 - torch.rand((n, b, 1), generator=generator)
    kind = torch.rand((n, b, 1), generator=generator)
    random = torch.rand(shape, generator=generator) < rate
    at = torch.arange(size)
    start = torch.randint(0, size, (n, b, 1), generator=generator)
    width = torch.randint(1, 9, (n, b, 1), generator=generator)
    run = (at >= start) & (at < start + width)
    masked = torch.where(kind < 0.2, torch.ones_like(random), torch.where(kind < 0.4, run, random))
    none = ~masked.any(-1, keepdim=True)
    return masked | (none & (at == start))


def block_importance(weights: Tensor, noise: Noise, pad_id: int) -> Tensor:
    """How much each token of the noisy blocks counts as a target, [N, b, B]."""
    size = noise.truth.shape[2]
    index = torch.tensor(noise.starts)[:, None] + torch.arange(size)  # [b, B]
    counts = (weights[:, index.to(weights.device)] > 0).to(torch.float32)
    padding = noise.truth == pad_id  # easy and plentiful
    return counts.masked_fill(padding, 0.1)


def losses(
    model: Clover, rows: Tensor, weights: Tensor, noise: Noise, middle_rows: int, pad_id: int,
    ar_weight: float,
) -> Losses:  # fmt: skip
    """One forward pass over `rows` [N, T] and the noisy blocks; all losses are nats per token.

    `weights` [N, T] scale the AR loss of each token. A token of weight 0 (a wrong line that is to
    be replaced) is no target of the diffusion loss either; padding is, with a tenth of a token's
    importance, since a block must be filled behind its end as well.
    """
    clean, blocks = model(rows, noise.ids, starts=noise.starts)
    importance = block_importance(weights, noise, pad_id)  # [N, b, B]
    learned = noise.masked & (importance > 0)
    logits = model.head(blocks[learned]).float()  # [targets, vocab]
    each = F.cross_entropy(logits, noise.truth[learned], reduction="none")
    diffusion = (each * importance[learned]).sum() / importance[learned].sum().clamp_min(1e-9)
    target, weight = rows[:, 1:], weights[:, 1:]
    logits = model.head(clean[:, :-1]).float().flatten(0, 1)
    ar_all = F.cross_entropy(logits, target.flatten(), reduction="none").view_as(target)
    ar = (ar_all * weight).sum() / weight.sum()
    inside = weight[:, -middle_rows:] > 0
    middle = (ar_all[:, -middle_rows:] * inside).sum() / inside.sum()
    total = (diffusion + ar_weight * ar) / (1.0 + ar_weight)
    return Losses(total, diffusion.detach(), ar.detach(), middle.detach())
