"""What stands between the products of a layer of Qwen2's and Llama's shape, compiled.

Rows of activations are padded to a multiple of 4, as the products want them. A pass of up to
`SAME_ROWS` clean rows computes each row exactly, to the bit, as a pass of that row alone would:
products treat rows apart, and attention goes through the keys in their order in the cache. So a
draft that is verified in one pass gives the text of decoding token by token.

`grouped_step.py` calls these and `grouped_product` one after the other: LLVM would copy the
products, which are large, into every function that calls them, and compile for a minute.
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
from clover_engine.cpu.kernels import Array, compiled, exponential

SAME_ROWS = 64
ZERO, ONE, LEVELS = np.float32(0.0), np.float32(1.0), np.float32(127.0)
TINY, SIXTEEN = np.float32(1e-30), np.float32(16.0)
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
    n, t, heads, kv_heads, dim = shape
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
def normed(x: Array, norm: Array, eps: float) -> Array:
    """`quantised` rows of x [rows padded, hidden], normalised."""
    out = np.empty_like(x)
    rms_norm(x, x.shape[1], norm, eps, out)
    return quantised(out)


@compiled
def biased(rows: int, width: int, bias: Array) -> Array:
    """[rows, width] that begin with `bias`, to which a product is added."""
    out = np.zeros((rows, width), np.float32)
    for r in range(rows):
        for c in range(bias.shape[0]):
            out[r, c] = bias[c]
    return out


@compiled
def attended(
    proj: Array, shape: tuple[int, ...], rotary: Weights, past_k: Array, past_v: Array,
    history: int, write: bool,
) -> Array:  # fmt: skip
    """`quantised` results of attention. shape: (n, t, heads, kv heads, head size); proj has q, k
    and v beside each other. past_k, past_v [1 or n, kv heads, capacity, D] hold `history` rows, and
    get the new ones if `write`."""
    return quantised(_mixed(proj, shape, rotary, past_k, past_v, history, write))


@compiled
def gated(both: Array) -> Array:
    """`quantised` silu(left half) · right half."""
    return quantised(gated_product(both, both.shape[1] // 2))
