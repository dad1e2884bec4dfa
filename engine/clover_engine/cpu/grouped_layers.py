"""Whole layers of Qwen2's and Llama's shape over packed weights, one compiled call each.

Rows of activations are padded to a multiple of 4, as the products want them. A pass of up to
`SAME_ROWS` clean rows computes each row exactly, to the bit, as a pass of that row alone would:
products treat rows apart, and attention goes through the keys in their order in the cache. So a
draft that is verified in one pass gives the text of decoding token by token.
"""

from __future__ import annotations

import math

import numpy as np

from clover_engine.cpu.fused_parts import (
    attend,
    gated_product,
    key_panels,
    rms_norm,
    rotated_heads,
)
from clover_engine.cpu.grouped_kernels import grouped_product
from clover_engine.cpu.kernels import Array, compiled, exponential

SAME_ROWS = 64
ZERO, ONE, LEVELS = np.float32(0.0), np.float32(1.0), np.float32(127.0)
TINY, SIXTEEN = np.float32(1e-30), np.float32(16.0)
Q, K, V, OUT, GATE, UP, DOWN = range(7)
"""A layer's matrices, in the order of `Weights`."""
Weights = tuple[Array, ...]


@compiled
def quantised(x: Array) -> Array:
    """x [rows, columns] in 8 bits, steps of 32 columns: tiles uint8 [rows / 4, columns / 32, 192],
    as `grouped_kernels.TILE_BYTES` has them. `rows` is a multiple of 4, `columns` of 32."""
    rows, columns = x.shape
    out = np.zeros((rows // 4, columns // 32, 192), np.uint8)
    codes = out.view(np.int8)
    numbers = out.view(np.float32)  # [·, ·, 48]
    for r in range(rows):
        tile, lane = r // 4, r % 4
        for g in range(columns // 32):
            peak = TINY
            for c in range(32 * g, 32 * g + 32):
                peak = max(peak, abs(x[r, c]))
            step, scale = peak / LEVELS, LEVELS / peak
            both = np.int32(0)
            for half in range(2):
                total = np.int32(0)
                for i in range(16 * half, 16 * half + 16):
                    code = np.int32(np.rint(x[r, 32 * g + i] * scale))
                    codes[tile, g, 16 * (i // 4) + 4 * lane + i % 4] = code
                    total += code
                numbers[tile, g, 40 + 4 * half + lane] = SIXTEEN * np.float32(total) * step
                both += total
            numbers[tile, g, 32 + lane] = step
            numbers[tile, g, 36 + lane] = SIXTEEN * np.float32(both) * step
    return out


@compiled
def add_product(
    kind: int, codes: Array, scales: Array, x: Array, rows: int, width: int, out: Array, column: int
) -> None:
    """out[:rows, column : column + width] += x @ all panels of a matrix; width: 8 · panels."""
    grouped_product(kind, codes, scales, x, rows, 0, width // 8, out, column)


@compiled
def _attend_in_order(
    q: Array, row: int, keys: Array, values: Array, count: int, scores: Array, out: Array
) -> None:
    """out [D] of the query q[row] over the first `count` keys, in their order."""
    dim = q.shape[1]
    best = np.float32(-3e38)
    for at in range(count):
        dot = ZERO
        for c in range(dim):
            dot += q[row, c] * keys[at, c]
        scores[at] = dot
        best = max(best, dot)
    total = ZERO
    for at in range(count):
        share = exponential(scores[at] - best)
        scores[at] = share
        total += share
    for c in range(dim):
        out[c] = ZERO
    whole = count - count % 4
    for at in range(0, whole, 4):
        s0, s1, s2, s3 = scores[at], scores[at + 1], scores[at + 2], scores[at + 3]
        for c in range(dim):
            out[c] += (s0 * values[at, c] + s1 * values[at + 1, c]) + (
                s2 * values[at + 2, c] + s3 * values[at + 3, c]
            )
    for at in range(whole, count):
        share = scores[at]
        for c in range(dim):
            out[c] += share * values[at, c]
    scale = ONE / total
    for c in range(dim):
        out[c] *= scale


@compiled
def _mixed(
    proj: Array, shape: tuple[int, ...], rotary: Weights, past_k: Array, past_v: Array,
    history: int, write: bool,
) -> Array:  # fmt: skip
    """Attention of all rows: q, k and v beside each other in proj → [rows padded, heads · D]."""
    n, t, _, heads, kv_heads, dim, _ = shape
    cos, sin = rotary
    nothing = np.empty(0, np.float32)
    scale = 1.0 / math.sqrt(dim)
    group = heads // kv_heads
    k_at, v_at = heads * dim, (heads + kv_heads) * dim
    out = np.zeros((proj.shape[0], heads * dim), np.float32)
    scores = np.empty(history + t, np.float32)
    v = np.empty((t, dim), np.float32)
    for s in range(n):
        row, held = s * t, min(s, past_k.shape[0] - 1)
        q = rotated_heads(
            proj, row, 0, dim, heads, t, t, 0, dim, nothing, 0.0, cos, sin, history, scale
        )
        k = rotated_heads(
            proj, row, k_at, dim, kv_heads, t, t, 0, dim, nothing, 0.0, cos, sin, history, 1.0
        )
        for h in range(kv_heads):
            for i in range(t):
                for c in range(dim):
                    v[i, c] = proj[row + i, v_at + h * dim + c]
                    if write:
                        past_k[s, h, history + i, c] = k[h, i, c]
                        past_v[s, h, history + i, c] = v[i, c]
            if write and t <= SAME_ROWS:
                for i in range(t):
                    for head in range(h * group, (h + 1) * group):
                        _attend_in_order(
                            q[head], i, past_k[held, h], past_v[held, h], history + i + 1, scores,
                            out[row + i, head * dim : (head + 1) * dim],
                        )  # fmt: skip
                continue
            panels = key_panels(past_k[held, h], history if t * group >= 8 else 0)
            for head in range(h * group, (h + 1) * group):
                rows = attend(
                    q[head], k[h], v, past_k[held, h], past_v[held, h], panels, history, t, 0
                )
                for i in range(t):
                    for c in range(dim):
                        out[row + i, head * dim + c] = rows[i, c]
    return out


@compiled
def grouped_layer(
    x: Array, shape: tuple[int, ...], eps: float, kinds: tuple[int, ...], codes: Weights,
    scales: Weights, vectors: Weights, rotary: Weights, past_k: Array, past_v: Array, history: int,
    write: bool,
) -> None:  # fmt: skip
    """A layer on x [rows padded to 4, hidden], in place.

    shape: (n, t, hidden, heads, kv heads, head size, MLP's width), n · t rows. codes and scales are
    the matrices' in the order Q, K, V, OUT, GATE, UP, DOWN; vectors: norm, q's, k's and v's bias
    together (may be empty), norm. past_k, past_v [1 or n, kv heads, capacity, D] hold `history`
    rows, and get the new ones if `write`.
    """
    n, t, hidden, heads, kv_heads, dim, wide = shape
    norm, bias, norm_mid = vectors
    rows, padded = n * t, x.shape[0]
    normed = np.empty((padded, hidden), np.float32)
    rms_norm(x, hidden, norm, eps, normed)
    h = quantised(normed)
    width = heads * dim
    narrow = kv_heads * dim
    proj = np.zeros((padded, width + 2 * narrow), np.float32)
    for r in range(padded):
        for c in range(bias.shape[0]):
            proj[r, c] = bias[c]
    add_product(kinds[0], codes[0], scales[0], h, rows, width, proj, 0)
    add_product(kinds[1], codes[1], scales[1], h, rows, narrow, proj, width)
    add_product(kinds[2], codes[2], scales[2], h, rows, narrow, proj, width + narrow)
    mixed = quantised(_mixed(proj, shape, rotary, past_k, past_v, history, write))
    add_product(kinds[3], codes[3], scales[3], mixed, rows, hidden, x, 0)
    rms_norm(x, hidden, norm_mid, eps, normed)
    h = quantised(normed)
    both = np.zeros((padded, 2 * wide), np.float32)
    add_product(kinds[4], codes[4], scales[4], h, rows, wide, both, 0)
    add_product(kinds[5], codes[5], scales[5], h, rows, wide, both, wide)
    act = quantised(gated_product(both, wide))
    add_product(kinds[6], codes[6], scales[6], act, rows, hidden, x, 0)


@compiled
def grouped_head(
    x: Array, rows: int, kind: int, codes: Array, scales: Array, first: int, last: int, out: Array
) -> None:
    """Logits of the panels first..last-1 for x, the `quantised` rows: adds to out [rows padded,
    8 · panels]."""
    grouped_product(kind, codes, scales, x, rows, first, last, out, 0)
