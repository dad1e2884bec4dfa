"""The Gated DeltaNet layer: its weights, and what its clean and block rows read.

The equations are in `model.block`; here are the projections around them, the cache, and which
state each block of a training pass reads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from clover_engine.model import block
from clover_engine.model.cache import REPLAY_ROWS, StateLayer
from clover_engine.model.config import CloverConfig
from clover_engine.model.conv import ShortConv
from clover_engine.model.layers import GatedRMSNorm
from clover_engine.model.rows import Layout

CHUNK = 64


class History(nn.Module):
    """The learned parameters of `block.HistoryUnit`; all neutral at the start."""

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
        self.heads = block.Heads(self.k_heads, self.v_heads, self.k_dim, self.v_dim)
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
            done = self._clean(x[:, :t], inputs, state, chunk)
            outs.append(done.out)
            end, starts = done.end, done.starts
            if update and cache is not None:
                tail = inputs[:, t:].clone() if t > REPLAY_ROWS else inputs[:, t:]
                cache.advance(tail, end, _replay(done, state, t) if t <= REPLAY_ROWS else {})
        if b:
            memory = self._history(inputs, starts, end, layout)
            rows_x = x[:, t:].reshape(n, b, size, -1)
            outs.append(self._blocks(rows_x, mixed[:, t:].reshape(n, b, size, -1), memory))
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

    def _clean(
        self, x: Tensor, inputs: Tensor, state: Tensor | None, chunk: int
    ) -> block.CleanPass:
        gates = block.gates(self.in_proj_a(x), self.in_proj_b(x), self.dt_bias, self.A_log)
        with torch.autocast(x.device.type, enabled=False):
            return block.clean_rows(
                inputs, state, self.conv1d.weight[:, 0], gates, self.heads, chunk
            )

    def _history(
        self, inputs: Tensor, starts: Tensor | None, end: Tensor | None, layout: Layout
    ) -> block.Memory:
        """What each block reads: conv tails [N, b, J-1, C] and states [N, b, Hv, K, V]."""
        n = len(inputs)
        width = self.conv1d.width - 1
        if layout.starts is not None and starts is not None:
            if layout.clean in layout.starts:
                assert end is not None
                starts = torch.cat([starts, end[:, :, None]], dim=2)
            last = starts.shape[2] - 1
            chosen = [last if s == layout.clean else s // layout.block_size for s in layout.starts]
            before = torch.tensor(layout.starts)[:, None] + torch.arange(width)  # [b, K-1]
            return block.Memory(inputs[:, before], starts[:, :, chosen].transpose(1, 2))
        if end is None:
            end = inputs.new_zeros(n, self.v_heads, self.k_dim, self.v_dim)
            end = block.wide(end)
        tails = inputs[:, None, inputs.shape[1] - width :].expand(-1, layout.blocks, -1, -1)
        return block.Memory(tails, end[:, None].expand(n, layout.blocks, -1, -1, -1))

    def _blocks(self, x: Tensor, mixed: Tensor, memory: block.Memory) -> Tensor:
        """x, mixed [N, b, B, ·] → head outputs [N, b·B, Hv, V]."""
        h = self.history
        unit = block.HistoryUnit(h.score(x), h.calibration, h.scale)
        weights = block.Convolution(self.conv1d.weight[:, 0], self.conv1d.right)
        with torch.autocast(x.device.type, enabled=False):
            out = block.block_rows(mixed, memory, weights, unit, self.heads)
        return out.flatten(1, 2)


def _replay(done: block.CleanPass, state: Tensor | None, rows: int) -> dict[str, Any]:
    """What `StateLayer.keep` needs; `state` is the one before the pass."""
    found = {"rows": rows, "inputs": done.inputs, "state": state}
    return found | done.writes._asdict()
