"""Whole layers in one compiled call each: norm, projections, mixer, residual, MLP.

`weights` are the tuples of `fused.py`, in its order. The residual stream x [rows, width] is wide
enough for whole panels; what goes beyond the hidden size stays zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clover_engine.cpu.fused_parts import (
    attend,
    block_heads,
    clean_heads,
    convolve,
    gated_head_norm,
    gated_product,
    key_panels,
    rms_norm,
    rotated_heads,
)
from clover_engine.cpu.kernels import PANEL, Array, compiled, exponential, product

ONE = np.float32(1.0)
MANY = 8
"""From so many queries of a key on, the keys are turned into panels first."""
Weights = tuple[Array, ...]


class DeltaNetWeights(NamedTuple):
    """A GDN layer's, in the order of `fused.py`."""

    panels: Weights
    vectors: Weights
    convolution: tuple[Array, Array]
    mlp: Weights


class AttentionWeights(NamedTuple):
    """A full-attention layer's, in the order of `fused.py`."""

    panels: Weights
    vectors: Weights
    mlp: Weights


class Before(NamedTuple):
    """What a GDN layer remembers; only read."""

    tail: Array
    """[1 or n, J-1, C]."""
    state: Array
    """[1 or n, Hv, K, V]."""


class Written(NamedTuple):
    """What a GDN layer leaves."""

    inputs: Array
    """[n, J-1 + rows, C]."""
    after: Array
    """[n, Hv, K, V], if there are clean rows."""
    kept: Weights
    """Keys [n, Hv, t, K] and values [n, Hv, t, V] of the clean rows."""
    rates: Weights
    """g and β [n, Hv, t]."""


@compiled
def _project(x: Array, hidden: int, norm: Array, eps: float, weight: Array, bias: Array) -> Array:
    """norm(x) @ weight + bias, [rows, panels · PANEL]; `bias` may be shorter than that."""
    normed = np.empty((x.shape[0], hidden), np.float32)
    rms_norm(x, hidden, norm, eps, normed)
    out = np.zeros((x.shape[0], weight.shape[0] * PANEL), np.float32)
    for r in range(out.shape[0]):
        for c in range(bias.shape[0]):
            out[r, c] = bias[c]
    product(normed, weight, out)
    return out


@compiled
def _mlp(x: Array, hidden: int, eps: float, weights: Weights) -> None:
    norm, gate_up, down, nothing = weights
    both = _project(x, hidden, norm, eps, gate_up, nothing)
    product(gated_product(both, both.shape[1] // 2), down, x)


@compiled
def deltanet_layer(
    x: Array, shape: tuple[int, ...], eps: float, weights: DeltaNetWeights, before: Before,
    written: Written,
) -> None:  # fmt: skip
    """A GDN layer on x, in place; shape: (n, t, b, size, hidden, key heads)."""
    n, t, b, size, hidden, key_heads = shape
    project, back = weights.panels
    norm, decay_rate, dt_bias, prior, calibration, sharpness, head_norm, nothing = weights.vectors
    tail, state = before
    inputs, after, kept, kept_rates = written
    taps = weights.convolution[0]
    rows, channels = t + b * size, taps.shape[1]
    heads, keys, values = state.shape[1:]
    proj = _project(x, hidden, norm, eps, project, nothing)
    width = tail.shape[1]
    gates = channels + heads * values  # where β's inputs begin
    added = np.empty(heads, np.float32)
    for h in range(heads):
        added[h] = prior[h] + calibration[h] * np.float32(math.log(max(size, 1)))
    out = np.empty((x.shape[0], heads * values), np.float32)
    for s in range(n):
        own = min(s, state.shape[0] - 1)
        row = s * rows
        for c in range(channels):
            for i in range(width):
                inputs[s, i, c] = tail[min(s, tail.shape[0] - 1), i, c]
            for i in range(rows):
                inputs[s, width + i, c] = proj[row + i, c]
        mixed = convolve(inputs[s], weights.convolution, (t, b, size), 2 * key_heads, keys)
        held = state[own]
        if t:
            held = after[s]
            for h in range(heads):
                for a in range(keys):
                    for c in range(values):
                        held[h, a, c] = state[own, h, a, c]
            kept_rows = (kept[0][s], kept[1][s], kept_rates[0][s], kept_rates[1][s])
            places = (row, gates, t, key_heads)
            clean_heads(mixed, proj, places, (decay_rate, dt_bias), held, kept_rows, out)
        for block in range(b):
            first = t + block * size
            places_of_block = (row + first, gates + 2 * heads, first, size, key_heads)
            block_heads(mixed, proj, places_of_block, (added, sharpness), held, out)
    gated_head_norm(out, proj, channels, heads, head_norm, eps)
    product(out, back, x)
    _mlp(x, hidden, eps, weights.mlp)


@compiled
def attention_layer(
    x: Array, shape: tuple[int, ...], eps: float, weights: AttentionWeights, rotary: Weights,
    past: Weights,
) -> None:  # fmt: skip
    """A full-attention layer on x, in place.

    shape: (n, t, b, size, hidden, heads, head_dim, gated, history, write); `past` are keys and
    values [1 or n, kv, capacity, D] that hold `history` rows, and get the clean rows if `write`.
    """
    n, t, b, size, hidden, heads, dim, gated, history, write = shape
    project, back = weights.panels
    norm, q_norm, k_norm, bias, back_bias = weights.vectors
    cos, sin = rotary
    past_k, past_v = past
    kv_heads, rows = past_k.shape[1], t + b * size
    proj = _project(x, hidden, norm, eps, project, bias)
    stride = 2 * dim if gated else dim
    k_at = heads * stride
    v_at = k_at + kv_heads * dim
    scale = 1.0 / math.sqrt(dim)
    many = 1 if rows * (heads // kv_heads) >= MANY else 0
    v = np.empty((rows, dim), np.float32)
    out = np.empty((x.shape[0], heads * dim), np.float32)
    for s in range(n):
        row, held = s * rows, min(s, past_k.shape[0] - 1)
        q = rotated_heads(
            proj, row, 0, stride, heads, t, rows, size, dim, q_norm, eps, cos, sin, history, scale
        )
        k = rotated_heads(
            proj, row, k_at, dim, kv_heads, t, rows, size, dim, k_norm, eps, cos, sin, history, 1.0
        )
        for h in range(kv_heads):
            for i in range(rows):
                for c in range(dim):
                    v[i, c] = proj[row + i, v_at + h * dim + c]
            turned_k = key_panels(past_k[held, h], many * history)
            for g in range(heads // kv_heads):
                head = h * (heads // kv_heads) + g
                mixed = attend(
                    q[head], k[h], v, past_k[held, h], past_v[held, h], turned_k, history, t, size
                )
                for i in range(rows):
                    for c in range(dim):
                        value = mixed[i, c]
                        if gated:
                            gate = proj[row + i, head * stride + dim + c]
                            value = value / (ONE + exponential(-gate))
                        out[row + i, head * dim + c] = value
            if write:
                for i in range(t):
                    for c in range(dim):
                        past_k[s, h, history + i, c] = k[h, i, c]
                        past_v[s, h, history + i, c] = v[i, c]
    for r in range(x.shape[0]):
        for c in range(back_bias.shape[0]):
            x[r, c] += back_bias[c]
    product(out, back, x)
    _mlp(x, hidden, eps, weights.mlp)


@compiled
def embed(ids: Array, table: Array, mask: Array, width: int) -> Array:
    """Rows of `table` [vocab, hidden] for ids [rows], -1 meaning `mask` [hidden]; [rows, width]."""
    hidden = table.shape[1]
    out = np.zeros((ids.shape[0], width), np.float32)
    for r in range(ids.shape[0]):
        for c in range(hidden):
            out[r, c] = mask[c] if ids[r] < 0 else table[ids[r], c]
    return out


@compiled
def normed_rows(x: Array, hidden: int, norm: Array, eps: float) -> Array:
    """The final norm, [rows, hidden]."""
    out = np.empty((x.shape[0], hidden), np.float32)
    rms_norm(x, hidden, norm, eps, out)
    return out


@compiled
def head(hidden: Array, weight: Array) -> Array:
    """Logits [rows, panels · PANEL]; beyond the vocabulary there are zeros."""
    out = np.zeros((hidden.shape[0], weight.shape[0] * PANEL), np.float32)
    product(hidden, weight, out)
    return out
