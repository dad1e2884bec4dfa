"""The Clover block: the equations of a Gated DeltaNet layer's two kinds of rows, stated once.

Pure functions of tensors, used by training and in-process decoding (`model.deltanet`) and by the
server (`serving.layers`, tensor-parallel shares included); the compiled path
(`cpu.fused_parts`) is held against them by a test. docs/model.md explains each line.

Shapes: leading dimensions `...` are free (a batch, or a batch of blocks). T clean rows, B block
rows, C convolution channels, J taps, Hv value heads, K and V the sizes of a key and a value.
Everything is computed in float32, or float64 where that comes in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.model.conv import shifted_sum
from clover_engine.model.rule import delta_rule

REPLAY_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Heads:
    """A layer's heads, or one tensor-parallel share's."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int

    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved channels [..., rows, C] → q, k [..., Hv, rows, K] of unit length, and
        v [..., Hv, rows, V]. Several value heads share a key head."""
        key = self.k_heads * self.k_dim
        q, k, v = torch.split(mixed, [key, key, self.v_heads * self.v_dim], dim=-1)
        shape = (*mixed.shape[:-1], self.k_heads, self.k_dim)
        q, k = unit_length(q.reshape(shape)), unit_length(k.reshape(shape))
        repeat = self.v_heads // self.k_heads
        if repeat > 1:
            q, k = q.repeat_interleave(repeat, dim=-2), k.repeat_interleave(repeat, dim=-2)
        v = v.reshape(*mixed.shape[:-1], self.v_heads, self.v_dim)
        return q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2)


class Convolution(NamedTuple):
    """The weights of both branches."""

    causal: Tensor
    """[C, J], over a row and the J-1 before it; the base model's."""
    right: Tensor
    """[C, J], over the J rows after it in the block; zero at first."""


class HistoryUnit(NamedTuple):
    """The history as one more unit of a block row's softmax."""

    score: Tensor
    """a_i [..., B, Hv]: how much each row wants the history."""
    calibration: Tensor
    """γ [Hv]."""
    scale: Tensor
    """s [Hv], √K at first: q and k have unit length."""


class Memory(NamedTuple):
    """What a layer remembers of the text before these rows; never written to."""

    tail: Tensor
    """The last convolution inputs, [..., J-1, C]."""
    state: Tensor
    """S, [..., Hv, K, V]."""


class Gates(NamedTuple):
    """Decay g ≤ 0 and write strength β in 0..1 of clean rows, [..., T, Hv]."""

    g: Tensor
    beta: Tensor


def wide(x: Tensor) -> Tensor:
    """In float32, or float64 where it is that already."""
    return x if x.dtype == torch.float64 else x.float()


def unit_length(x: Tensor) -> Tensor:
    """x / √(Σx² + 10⁻⁶) over the last dimension."""
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def gates(step: Tensor, strength: Tensor, dt_bias: Tensor, log_rate: Tensor) -> Gates:
    """From two projections of x, [..., T, Hv] each: g = -e^A · softplus(a + bias), β = σ(b)."""
    step, strength = wide(step), wide(strength)
    rate = -log_rate.to(step.dtype).exp()
    return Gates(rate * F.softplus(step + dt_bias.to(step.dtype)), strength.sigmoid())


def convolve_clean(inputs: Tensor, causal: Tensor) -> Tensor:
    """inputs [..., J-1 + T, C], tail first → silu(causal) [..., T, C]."""
    return F.silu(shifted_sum(inputs, causal, inputs.shape[-2] - causal.shape[1] + 1))


def convolve_block(tail: Tensor, block: Tensor, weights: Convolution) -> Tensor:
    """tail [..., J-1, C], block [..., B, C] → silu(causal + right) [..., B, C]."""
    rows, width = block.shape[-2], weights.causal.shape[1]
    causal = shifted_sum(torch.cat([tail, block], dim=-2), weights.causal, rows)
    ahead = F.pad(block, (0, 0, 0, width))[..., 1:, :]
    return F.silu(causal + shifted_sum(ahead, weights.right, rows))


def block_rows(
    mixed: Tensor,
    memory: Memory,
    weights: Convolution,
    unit: HistoryUnit,
    heads: Heads,
    mask: Tensor | None = None,
) -> Tensor:
    """Block rows: one softmax over [history ; the block's own rows] → [..., B, Hv, V].

    ::

        h_i = Sᵀ q_i / √K                                    one readout of the frozen state
        s_ij = s · q_i · k_j                                 the block's rows, both directions
        o_i = softmax([a_i + γ·log B ; s_i1 … s_iB]) · [h_i ; v_1 … v_B]

    `mixed` [..., B, C] are the convolution's inputs. `mask` [..., B] says which rows there are
    where a padded batch has blocks of several sizes: B is each block's own, rows outside must be 0.
    """
    q, k, v = heads.split(convolve_block(memory.tail, mixed, weights))  # [..., Hv, B, ·]
    prior = history_score(unit, q, mask)
    readout = (q * heads.k_dim**-0.5) @ memory.state.to(q.dtype)  # [..., Hv, B, V]
    scores = (q * unit.scale.to(q.dtype)[:, None, None]) @ k.transpose(-1, -2)  # [..., Hv, B, B]
    if mask is not None:
        scores = scores.masked_fill(~mask[..., None, None, :], -math.inf)
    units = torch.cat([prior[..., None], scores], dim=-1).softmax(dim=-1)
    out: Tensor = units[..., :1] * readout + units[..., 1:] @ v
    return out.transpose(-3, -2)


def history_score(unit: HistoryUnit, q: Tensor, mask: Tensor | None) -> Tensor:
    """a_i + γ·log B, [..., Hv, B], in the precision of q [..., Hv, B, K]."""
    calibration = unit.calibration.to(q.dtype)
    if mask is None:
        grown = calibration * math.log(q.shape[-2])  # [Hv]
    else:
        sizes = mask.sum(dim=-1).to(q.dtype)  # [...]
        grown = calibration * sizes.log()[..., None, None]  # [..., 1, Hv]
    return (unit.score.to(q.dtype) + grown).transpose(-1, -2)


class Writes(NamedTuple):
    """What clean rows wrote, from which any prefix of them can be written again."""

    k: Tensor
    """[N, Hv, T, K]."""
    v: Tensor
    """[N, Hv, T, V]."""
    g: Tensor
    """[N, Hv, T], as β."""
    beta: Tensor


@dataclass(frozen=True, slots=True)
class CleanPass:
    """What a pass of clean rows leaves: outputs, and what keeping some of them needs."""

    out: Tensor
    """[N, T, Hv, V]."""
    end: Tensor
    """The state after the last row, [N, Hv, K, V]."""
    starts: Tensor
    """The states at the chunks' starts, [N, Hv, chunks, K, V]."""
    inputs: Tensor
    """Convolution inputs, the tail before them, [N, J-1 + T, C]."""
    before: Tensor | None
    """The state before the pass."""
    writes: Writes

    def after(self, counts: Sequence[int]) -> Memory:
        """What a layer remembers if only the first `counts[n]` rows of sequence n had been run."""
        k, v, g, beta = self.writes
        rows = k.shape[2]
        width = self.inputs.shape[1] - rows
        first = torch.tensor(list(counts), device=k.device)
        places = first[:, None] + torch.arange(width, device=first.device)  # [N, J-1]
        batch = torch.arange(len(first), device=first.device)[:, None]
        kept = (torch.arange(rows, device=first.device) < first[:, None])[:, None]  # [N, 1, T]
        zeroed = (g * kept, beta * kept)  # zeros leave the state alone
        _, state, _ = delta_rule(k, k, v, *zeroed, self.before, REPLAY_CHUNK)
        return Memory(self.inputs[batch, places], state)


def clean_rows(
    inputs: Tensor,
    state: Tensor | None,
    causal: Tensor,
    gates: Gates,
    heads: Heads,
    chunk: int,
) -> CleanPass:
    """Clean rows after a history that stays as it is: the gated delta rule (`rule`), token-causal.

    ::

        S_t = e^{g_t} S_{t-1} + k_t ⊗ β_t (v_t - (e^{g_t} S_{t-1})ᵀ k_t)        o_t = S_tᵀ q_t / √K

    `inputs` [N, J-1 + T, C], tail first; `state` [N, Hv, K, V] or None for zeros. A row whose gates
    are both 0 writes nothing, which is how a padded batch leaves rows out.
    """
    q, k, v = heads.split(convolve_clean(inputs, causal))  # [N, Hv, T, ·]
    g, beta = (x.to(q.dtype).transpose(1, 2) for x in gates)
    before = None if state is None else state.to(q.dtype).expand(len(inputs), -1, -1, -1)
    out, end, starts = delta_rule(q * heads.k_dim**-0.5, k, v, g, beta, before, chunk)
    return CleanPass(out.transpose(1, 2), end, starts, inputs, before, Writes(k, v, g, beta))
