"""Gated DeltaNet for clean rows, and its block form with the history as one softmax unit.

Block rows read the state S, frozen at the block's start, once: h_i = Sᵀq_i. That readout is one
unit beside the block's own tokens (design.md §4)::

    o_i = softmax([a_i + γ·log B ; s_i1 … s_iB]) · [h_i ; v_1 … v_B],   s_ij = scale·q_i·k_j

`a_i` is a learned score of the history for that row, γ the block-size calibration per head.
At initial values a_i = 0 and γ = 0, and `scale` is √key_dim since q and k have unit length.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.model.cache import REPLAY_ROWS, StateLayer
from clover_engine.model.config import CloverConfig
from clover_engine.model.conv import ShortConv
from clover_engine.model.layers import GatedRMSNorm
from clover_engine.model.rows import Layout
from clover_engine.model.rule import delta_rule

CHUNK = 64


class History(nn.Module):
    """The learned parameters of the history unit; all neutral at the start."""

    def __init__(self, hidden: int, heads: int, key_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(hidden, heads)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)
        self.calibration = nn.Parameter(torch.zeros(heads))
        self.scale = nn.Parameter(torch.full((heads,), math.sqrt(key_dim)))


class GatedDeltaNet(nn.Module):
    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        self.k_heads, self.v_heads = config.linear_num_key_heads, config.linear_num_value_heads
        self.k_dim, self.v_dim = config.linear_key_head_dim, config.linear_value_head_dim
        hidden, value = config.hidden_size, self.v_heads * self.v_dim
        channels = 2 * self.k_heads * self.k_dim + value
        self.in_proj_qkv = nn.Linear(hidden, channels, bias=False)
        self.in_proj_z = nn.Linear(hidden, value, bias=False)
        self.in_proj_b = nn.Linear(hidden, self.v_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, self.v_heads, bias=False)
        self.conv1d = ShortConv(channels, config.linear_conv_kernel_dim)
        self.dt_bias = nn.Parameter(torch.ones(self.v_heads))
        self.A_log = nn.Parameter(torch.empty(self.v_heads).uniform_(0.01, 16).log())
        self.norm = GatedRMSNorm(self.v_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(value, hidden, bias=False)
        self.history = History(hidden, self.v_heads, self.k_dim)

    def forward(self, x: Tensor, layout: Layout, cache: StateLayer | None, update: bool) -> Tensor:
        """x [N, rows, hidden] → same; advances `cache` by the clean rows if `update`."""
        n, rows, _ = x.shape
        t, b, size = layout.clean, layout.blocks, layout.block_size
        mixed = self.in_proj_qkv(x)  # [N, rows, channels]
        inputs = torch.cat([self._tail(mixed, cache, n), mixed[:, :t]], dim=1)
        state = cache.state if cache is not None else None
        outs = []
        starts: Tensor | None = None
        end = state
        if t:
            chunk = size if layout.starts is not None else (CHUNK if t > 16 else 16)
            out, end, starts, replay = self._clean(x[:, :t], inputs, state, t, chunk)
            outs.append(out)
            if update and cache is not None:
                replay = replay | {"rows": t, "inputs": inputs, "state": state}
                tail = inputs[:, t:].clone() if t > REPLAY_ROWS else inputs[:, t:]
                cache.advance(tail, end, replay if t <= REPLAY_ROWS else {})
        if b:
            tails, states = self._history(inputs, starts, end, layout, n)
            rows_x = x[:, t:].reshape(n, b, size, -1)
            outs.append(self._blocks(rows_x, mixed[:, t:].reshape(n, b, size, -1), tails, states))
        heads = torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]  # [N, rows, Hv, V]
        z = self.in_proj_z(x).view(n, rows, self.v_heads, self.v_dim)
        normed = self.norm(heads, z).to(x.dtype)
        projected: Tensor = self.out_proj(normed.reshape(n, rows, -1))
        return projected

    def _tail(self, mixed: Tensor, cache: StateLayer | None, n: int) -> Tensor:
        """The convolution inputs before this pass, [N, K-1, channels]."""
        if cache is not None and cache.tail is not None:
            return cache.tail.expand(n, -1, -1)
        return mixed.new_zeros(n, self.conv1d.width - 1, mixed.shape[-1])

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """conv output [..., channels] → q, k [..., Hv, K] of unit length, v [..., Hv, V], wide."""
        wide = torch.float64 if mixed.dtype == torch.float64 else torch.float32
        key = self.k_heads * self.k_dim
        q, k, v = torch.split(mixed.to(wide), [key, key, self.v_heads * self.v_dim], dim=-1)
        q, k = (_unit(x.reshape(*x.shape[:-1], self.k_heads, self.k_dim)) for x in (q, k))
        repeat = self.v_heads // self.k_heads
        if repeat > 1:
            q, k = q.repeat_interleave(repeat, dim=-2), k.repeat_interleave(repeat, dim=-2)
        return q, k, v.reshape(*v.shape[:-1], self.v_heads, self.v_dim)

    def _clean(
        self, x: Tensor, inputs: Tensor, state: Tensor | None, rows: int, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (p.transpose(1, 2) for p in self._split(self.conv1d.clean(inputs, rows)))
        beta = self.in_proj_b(x).to(v.dtype).sigmoid().transpose(1, 2)  # [N, Hv, rows]
        step = F.softplus(self.in_proj_a(x).to(v.dtype) + self.dt_bias.to(v.dtype))
        g = (-self.A_log.to(v.dtype).exp() * step).transpose(1, 2)
        if state is not None:
            state = state.expand(x.shape[0], -1, -1, -1)
        with torch.autocast(x.device.type, enabled=False):
            out, end, starts = delta_rule(q * self.k_dim**-0.5, k, v, g, beta, state, chunk)
        return out.transpose(1, 2), end, starts, {"q": q, "k": k, "v": v, "g": g, "beta": beta}

    def _history(
        self, inputs: Tensor, starts: Tensor | None, end: Tensor | None, layout: Layout, n: int
    ) -> tuple[Tensor, Tensor]:
        """What each block reads: conv tails [N, b, K-1, C] and states [N, b, Hv, K, V]."""
        width = self.conv1d.width - 1
        if layout.starts is not None and starts is not None:
            if layout.clean in layout.starts:
                assert end is not None
                starts = torch.cat([starts, end[:, :, None]], dim=2)
            last = starts.shape[2] - 1
            chosen = [last if s == layout.clean else s // layout.block_size for s in layout.starts]
            before = torch.tensor(layout.starts)[:, None] + torch.arange(width)  # [b, K-1]
            return inputs[:, before], starts[:, :, chosen].transpose(1, 2)
        if end is None:
            end = inputs.new_zeros(n, self.v_heads, self.k_dim, self.v_dim)
            end = end if end.dtype == torch.float64 else end.float()
        tails = inputs[:, None, inputs.shape[1] - width :].expand(-1, layout.blocks, -1, -1)
        return tails, end[:, None].expand(n, layout.blocks, -1, -1, -1)

    def _blocks(self, x: Tensor, mixed: Tensor, tails: Tensor, states: Tensor) -> Tensor:
        """x, mixed [N, b, B, ·] → head outputs [N, b·B, Hv, V]."""
        n, b, size, _ = x.shape
        h = self.history
        prior = self.history_score(x)  # [N, b, Hv, B]
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (p.transpose(2, 3) for p in self._split(self.conv1d.block(tails, mixed)))
            readout = (q * self.k_dim**-0.5) @ states.to(q.dtype)  # [N, b, Hv, B, V]
            scores = (q * h.scale.to(q.dtype)[:, None, None]) @ k.transpose(-1, -2)
            units = torch.cat([prior.to(q.dtype)[..., None], scores], dim=-1)  # [N,b,Hv,B,1+B]
            probs = units.softmax(dim=-1)
            out: Tensor = probs[..., :1] * readout + probs[..., 1:] @ v
        return out.transpose(2, 3).reshape(n, b * size, self.v_heads, self.v_dim)

    def history_score(self, x: Tensor) -> Tensor:
        """a_i + γ·log B for block rows x [N, b, B, hidden]: [N, b, Hv, B]."""
        calibration = self.history.calibration * math.log(x.shape[2])
        score: Tensor = self.history.score(x) + calibration
        return score.transpose(2, 3)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)
