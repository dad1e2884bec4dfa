"""Full attention for clean rows (causal) and block rows (history and the whole block).

Every query's softmax runs over a list of *parts* (cached history, this pass's clean rows, its own
block), so the cache is never copied, and one cached history can serve a whole batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.model.cache import KVLayer
from clover_engine.model.config import CloverConfig
from clover_engine.model.layers import RMSNorm, rotate
from clover_engine.model.rows import Layout

MOST_SCORES = 4_000_000
"""Scores that clean rows over a history hold at once (16 MB): long histories take fewer rows."""


class Attention(nn.Module):
    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.dim, self.gated = config.head_dim, config.output_gate
        hidden, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(hidden, self.heads * self.dim * (2 if self.gated else 1), bias=bias)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=bias)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=config.output_bias)
        if config.qk_norm:
            eps, offset = config.rms_norm_eps, config.norm_unit_offset
            self.q_norm: nn.Module = RMSNorm(self.dim, eps, offset)
            self.k_norm: nn.Module = RMSNorm(self.dim, eps, offset)
        else:
            self.q_norm = self.k_norm = nn.Identity()

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rope: tuple[Tensor, Tensor],
        cache: KVLayer | None,
        update: bool,
    ) -> Tensor:
        """x [N, rows, hidden] → [N, rows, hidden]; appends clean rows to `cache` if `update`."""
        n, rows, _ = x.shape
        q, gate = self._query(x)  # [N, heads, rows, D], [N, rows, heads·D]
        k = self.k_norm(self.k_proj(x).view(n, rows, self.kv_heads, self.dim)).transpose(1, 2)
        v = self.v_proj(x).view(n, rows, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, *rope), rotate(k, *rope)
        q = q.reshape(n, self.kv_heads, -1, rows, self.dim)  # [N, kv, group, rows, D]

        t = layout.clean
        past = cache.view() if cache is not None and cache.length else None
        outs = []
        if t:
            outs.append(self._clean(q[..., :t, :], k[:, :, :t], v[:, :, :t], past))
        if layout.blocks:
            outs.append(self._blocks(q[..., t:, :], k, v, past, layout))
        if t and update and cache is not None:
            cache.append(k[:, :, :t], v[:, :, :t])
        out = torch.cat(outs, dim=3) if len(outs) > 1 else outs[0]
        out = out.reshape(n, self.heads, rows, self.dim).transpose(1, 2).reshape(n, rows, -1)
        if gate is not None:
            out = out * torch.sigmoid(gate)
        projected: Tensor = self.o_proj(out)
        return projected

    def _query(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        n, rows, _ = x.shape
        q, gate = self.q_proj(x), None
        if self.gated:
            q, gate = q.view(n, rows, self.heads, 2 * self.dim).chunk(2, dim=-1)
            gate = gate.reshape(n, rows, -1)
        q = self.q_norm(q.reshape(n, rows, self.heads, self.dim))
        return q.transpose(1, 2), gate

    def _clean(self, q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor] | None) -> Tensor:
        t = q.shape[3]
        if past is None and t > 1:
            group = q.shape[2]
            wide_k, wide_v = (x[:, :, None].expand(-1, -1, group, -1, -1) for x in (k, v))
            out = F.scaled_dot_product_attention(
                q.flatten(1, 2), wide_k.flatten(1, 2), wide_v.flatten(1, 2), is_causal=True
            )
            return out.view_as(q)
        if past is None:
            return _attend(q, [(k, v, None)], None)
        causal = None if t == 1 else _causal(t, q.device)
        at_once = max(1, MOST_SCORES // (q.shape[0] * self.heads * (past[0].shape[2] + t)))
        outs = []
        for first in range(0, t, at_once):
            mask = None if causal is None else causal[first : first + at_once]
            rows = q[..., first : first + at_once, :]
            outs.append(_attend(rows, [(*past, None), (k, v, mask)], None))
        return torch.cat(outs, dim=3) if len(outs) > 1 else outs[0]

    def _blocks(
        self, q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor] | None, layout: Layout
    ) -> Tensor:
        t = layout.clean
        parts: list[tuple[Tensor, Tensor, Tensor | None]] = []
        history = 0 if past is None else past[0].shape[2]
        if past is not None:
            parts.append((*past, _readable(layout, history, -history, q.device)))
        if t:
            parts.append((k[:, :, :t], v[:, :, :t], _readable(layout, t, 0, q.device)))
        shape = (k.shape[0], self.kv_heads, layout.blocks, layout.block_size, self.dim)
        own = (k[:, :, t:].reshape(shape), v[:, :, t:].reshape(shape))
        return _attend(q, parts, own)


def _readable(layout: Layout, count: int, first: int, device: torch.device) -> Tensor | None:
    """Which of the clean rows from `first` on each block row reads, [block rows, count]."""
    if layout.starts is None or min(layout.starts) >= first + count:
        return None
    limit = layout.start_tensor(0).repeat_interleave(layout.block_size)  # [block rows]
    return (torch.arange(first, first + count)[None, :] < limit[:, None]).to(device)


def _causal(rows: int, device: torch.device) -> Tensor:
    return torch.ones(rows, rows, dtype=torch.bool, device=device).tril()


def _attend(
    q: Tensor, parts: list[tuple[Tensor, Tensor, Tensor | None]], own: tuple[Tensor, Tensor] | None
) -> Tensor:
    """One softmax over all parts.

    q [N, kv, group, R, D]; a part is (k [N or 1, kv, L, D], v, mask [R, L] or None); `own` are the
    keys and values of the rows' own blocks [N, kv, b, B, D] with R = b·B. Returns like q.
    """
    n, kv, group, rows, dim = q.shape
    q = q * dim**-0.5
    flat = q.reshape(n, kv, group * rows, dim)
    scores = []
    for k, _, mask in parts:
        s = (flat @ k.transpose(-1, -2)).view(n, kv, group, rows, -1)
        scores.append(s if mask is None else s.masked_fill(~mask, float("-inf")))
    if own is not None:
        k_own, v_own = own
        blocks, size = k_own.shape[2:4]
        by_block = q.reshape(n, kv, group, blocks, size, dim)
        s = by_block @ k_own[:, :, None].transpose(-1, -2)  # [N, kv, group, b, B, B]
        scores.append(s.reshape(n, kv, group, rows, size))
    merged = torch.cat(scores, dim=-1) if len(scores) > 1 else scores[0]
    wide = merged.dtype if merged.dtype == torch.float64 else torch.float32
    probs = torch.softmax(merged, dim=-1, dtype=wide).to(q.dtype)
    out, at = torch.zeros_like(q), 0
    for _, v, _ in parts:
        p = probs[..., at : at + v.shape[2]].reshape(n, kv, group * rows, -1)
        out = out + (p @ v).view_as(q)
        at += v.shape[2]
    if own is not None:
        p = probs[..., at:].reshape(n, kv, group, blocks, size, size)
        out = out + (p @ v_own[:, :, None]).reshape(q.shape)
    return out
