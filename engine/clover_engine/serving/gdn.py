"""A GDN layer's equations for a padded batch of requests. Torch only, no SGLang.

The same equations as `clover_engine.model.deltanet`, for requests with different numbers of rows.
Histories are inputs and never written: tails [N, K-1, C] are the last convolution inputs, states
[N, Hv, K, V] the recurrent state, both at the end of the committed text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.model.conv import shifted_sum
from clover_engine.model.rule import delta_rule

CHUNK = 16


@dataclass(frozen=True, slots=True)
class Heads:
    """A layer's (or one tensor-parallel share's) heads."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int

    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved channels [N, M, C] → q, k [N, Hv, M, K] of unit length, v [N, Hv, M, V]."""
        key = self.k_heads * self.k_dim
        q, k, v = torch.split(mixed, [key, key, self.v_heads * self.v_dim], dim=-1)
        shape = (*mixed.shape[:-1], self.k_heads, self.k_dim)
        q, k = _unit(q.reshape(shape)), _unit(k.reshape(shape))
        repeat = self.v_heads // self.k_heads
        q, k = q.repeat_interleave(repeat, dim=-2), k.repeat_interleave(repeat, dim=-2)
        v = v.reshape(*mixed.shape[:-1], self.v_heads, self.v_dim)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """What only block rows have: the history unit's score is computed by the caller."""

    right: Tensor
    """Convolution over the following rows, [C, K]."""
    calibration: Tensor
    """γ per head, [Hv]."""
    scale: Tensor
    """Per head, [Hv]."""


def block(
    heads: Heads,
    conv: Tensor,
    weights: BlockWeights,
    mixed: Tensor,
    score: Tensor,
    mask: Tensor,
    tails: Tensor,
    states: Tensor,
) -> Tensor:
    """Block rows: softmax over [history ; the block's own rows], see `model.deltanet`.

    conv [C, K], mixed [N, M, C] convolution inputs, score [N, M, Hv] of the history, mask [N, M].
    Rows outside the mask must be zero. Returns [N, M, Hv, V] in float32.
    """
    rows, width = mixed.shape[1], conv.shape[1]
    causal = shifted_sum(torch.cat([tails, mixed], dim=1), conv, rows)
    ahead = F.pad(mixed, (0, 0, 0, width))[:, 1:]
    q, k, v = heads.split(F.silu(causal + shifted_sum(ahead, weights.right, rows)))
    sizes = mask.sum(dim=1).to(q.dtype)  # [N]
    prior = score.to(q.dtype) + weights.calibration.to(q.dtype) * sizes.log()[:, None, None]
    scores = (q * weights.scale.to(q.dtype)[:, None, None]) @ k.transpose(-1, -2)
    scores = scores.masked_fill(~mask[:, None, None], -math.inf)  # [N, Hv, M, M]
    units = torch.cat([prior.transpose(1, 2)[..., None], scores], dim=-1).softmax(dim=-1)
    readout = (q * heads.k_dim**-0.5) @ states.to(q.dtype)
    out: Tensor = units[..., :1] * readout + units[..., 1:] @ v
    return out.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Replay:
    """A pass of clean rows that may be committed up to any row."""

    tails: Tensor
    """Convolution inputs, history and pass, [N, K-1 + M, C]."""
    state: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    def after(self, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tails [N, K-1, C] and states [N, Hv, K, V] as if only `counts[n]` rows had been run."""
        rows = self.k.shape[2]
        width = self.tails.shape[1] - rows
        first = torch.tensor(list(counts), device=self.k.device)
        places = first[:, None] + torch.arange(width, device=first.device)  # [N, K-1]
        batch = torch.arange(len(first), device=first.device)[:, None]
        kept = (torch.arange(rows, device=first.device) < first[:, None])[:, None]  # [N, 1, M]
        g, beta = self.g * kept, self.beta * kept  # zeros leave the state alone
        _, state, _ = delta_rule(self.k, self.k, self.v, g, beta, self.state, CHUNK)
        return self.tails[batch, places], state


def clean(
    heads: Heads,
    conv: Tensor,
    mixed: Tensor,
    gates: tuple[Tensor, Tensor],
    mask: Tensor,
    tails: Tensor,
    states: Tensor,
) -> tuple[Tensor, Replay]:
    """Clean rows after a history, without changing it.

    `gates` are g ≤ 0 and β [N, M, Hv]. Returns [N, M, Hv, V] in float32, and what a commit needs.
    """
    inputs = torch.cat([tails, mixed], dim=1)
    q, k, v = heads.split(F.silu(shifted_sum(inputs, conv, mixed.shape[1])))
    g, beta = (x.to(q.dtype).transpose(1, 2) * mask[:, None] for x in gates)
    state = states.to(q.dtype)
    out, _, _ = delta_rule(q * heads.k_dim**-0.5, k, v, g, beta, state, CHUNK)
    return out.transpose(1, 2), Replay(inputs, state, k, v, g, beta)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)
