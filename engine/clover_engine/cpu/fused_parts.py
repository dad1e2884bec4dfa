"""The parts of a layer that are no matrix products, for all rows of a pass (compiled by numba).

Arrays are float32 and C-contiguous. A pass has `n` sequences of `t` clean rows followed by `b`
blocks of `size` rows: row i of sequence s is row `s · (t + b · size) + i` of the arrays here.
The meaning of every step is that of `deltanet.py`, `conv.py`, `attention.py` and `layers.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from clover_engine.cpu.kernels import PANEL, Array, compiled, exponential, panel_product

ZERO, ONE = np.float32(0.0), np.float32(1.0)
UNSEEN = np.float32(-1e30)
QUERIES = 12
"""Query rows whose scores over all keys are held at once."""


@compiled
def rms_norm(x: Array, size: int, weight: Array, eps: float, out: Array) -> None:
    """out[r, :size] = x[r, :size] / rms · weight; the rest of a row stays as it is."""
    for r in range(x.shape[0]):
        total = ZERO
        for c in range(size):
            total += x[r, c] * x[r, c]
        scale = ONE / np.sqrt(total / np.float32(size) + np.float32(eps))
        for c in range(size):
            out[r, c] = x[r, c] * scale * weight[c]


@compiled
def gated_product(x: Array, width: int) -> Array:
    """silu(x[:, :width]) · x[:, width:2·width]."""
    out = np.empty((x.shape[0], width), np.float32)
    for r in range(x.shape[0]):
        for c in range(width):
            gate = x[r, c]
            out[r, c] = gate / (ONE + exponential(-gate)) * x[r, width + c]
    return out


@compiled
def _weighted_rows(x: Array, first: int, taps: Array, begin: int, end: int, out: Array) -> None:
    """out += Σ_j taps[j] · x[first + j] over j in begin..end-1."""
    for j in range(begin, end):
        for c in range(out.shape[0]):
            out[c] += taps[j, c] * x[first + j, c]


@compiled
def _silu(x: Array) -> None:
    for c in range(x.shape[0]):
        x[c] = x[c] / (ONE + exponential(-x[c]))


@compiled
def _to_unit_length(x: Array, count: int, dim: int) -> None:
    """Each of the `count` vectors of `dim` items at the start of x."""
    for i in range(count):
        total = ZERO
        for c in range(i * dim, (i + 1) * dim):
            total += x[c] * x[c]
        scale = ONE / np.sqrt(total + np.float32(1e-6))
        for c in range(i * dim, (i + 1) * dim):
            x[c] *= scale


@compiled
def convolve(
    inputs: Array, weights: tuple[Array, Array], shape: tuple[int, int, int], units: int, dim: int
) -> Array:
    """inputs [K-1 + rows, C] of one sequence → [rows, C] after silu.

    Block rows read the clean rows' end, and through `right` what follows in their block. q and k,
    the first `units` vectors of `dim` items, get unit length. weights: causal and right taps, each
    [K, C]; shape: (t, b, size).
    """
    taps, right = weights
    t, b, size = shape
    width, channels = taps.shape
    out = np.zeros((t + b * size, channels), np.float32)
    for i in range(t):
        _weighted_rows(inputs, i, taps, 0, width, out[i])
    for row in range(t, out.shape[0]):
        i = (row - t) % size
        before = max(width - 1 - i, 0)  # taps that lie in the clean rows
        _weighted_rows(inputs, t + i, taps, 0, before, out[row])
        _weighted_rows(inputs, row, taps, before, width, out[row])
        _weighted_rows(inputs, width + row, right, 0, min(width, size - 1 - i), out[row])
    for i in range(out.shape[0]):
        _silu(out[i])
        _to_unit_length(out[i], units, dim)
    return out


@compiled
def _copy(source: Array, target: Array) -> None:
    for c in range(target.shape[0]):
        target[c] = source[c]


@compiled
def _softplus(x: Any) -> Any:
    """As torch has it: linear beyond 20."""
    return x if x > np.float32(20.0) else np.float32(math.log1p(exponential(x)))


@compiled
def _write_and_read(
    state: Array, q: Array, k: Array, v: Array, decay: Any, beta: Any, scale: Any, out: Array
) -> None:
    """One step of the delta rule on state [K, V], in place; out = scale · stateᵀ q."""
    keys, values = state.shape
    delta = np.zeros(values, np.float32)
    for a in range(keys):
        for c in range(values):
            delta[c] += state[a, c] * k[a]
    for c in range(values):
        delta[c] = beta * (v[c] - decay * delta[c])
        out[c] = ZERO
    for a in range(keys):
        read = scale * q[a]
        for c in range(values):
            new = decay * state[a, c] + k[a] * delta[c]
            state[a, c] = new
            out[c] += read * new


@compiled
def clean_heads(
    mixed: Array, proj: Array, places: tuple[int, int, int, int], rates: tuple[Array, Array],
    state: Array, kept: tuple[Array, Array, Array, Array], out: Array,
) -> None:  # fmt: skip
    """The gated delta rule over `t` clean rows of one sequence, head by head.

    places: (row, at, t, key heads); rates: -e^A and the steps' bias, a head each.
    mixed: `convolve`'s result; proj[row + i, at:] has β's inputs and then the steps', a head each;
    state [Hv, K, V] is advanced in place. What a rollback needs goes to kept_k [Hv, t, K],
    kept_v [Hv, t, V], kept_g and kept_beta [Hv, t] of `kept`. out[row + i] gets [Hv · V].
    """
    row, at, t, key_heads = places
    decay_rate, dt_bias = rates
    kept_k, kept_v, kept_g, kept_beta = kept
    heads, keys, values = state.shape
    group = heads // key_heads
    scale = np.float32(1.0 / math.sqrt(keys))
    for h in range(heads):
        q_at, k_at = (h // group) * keys, (key_heads + h // group) * keys
        v_at = 2 * key_heads * keys + h * values
        for i in range(t):
            beta = ONE / (ONE + exponential(-proj[row + i, at + h]))
            g = decay_rate[h] * _softplus(proj[row + i, at + heads + h] + dt_bias[h])
            k, v = mixed[i, k_at : k_at + keys], mixed[i, v_at : v_at + values]
            kept_g[h, i], kept_beta[h, i] = g, beta
            _copy(k, kept_k[h, i])
            _copy(v, kept_v[h, i])
            _write_and_read(
                state[h], mixed[i, q_at : q_at + keys], k, v, exponential(g), beta, scale,
                out[row + i, h * values : (h + 1) * values],
            )  # fmt: skip


@compiled
def rewound(state: Array, k: Array, v: Array, g: Array, beta: Array, count: int) -> Array:
    """The states [n, Hv, K, V] after `count` of the rows that `clean_heads` kept, from `state`
    [1 or n, Hv, K, V], which was before them."""
    n, heads, _, keys = k.shape
    out = np.empty((n, heads, keys, v.shape[3]), np.float32)
    unread = np.empty(v.shape[3], np.float32)
    for s in range(n):
        before = min(s, state.shape[0] - 1)
        for h in range(heads):
            for a in range(keys):
                _copy(state[before, h, a], out[s, h, a])
            for i in range(count):
                _write_and_read(
                    out[s, h], k[s, h, i], k[s, h, i], v[s, h, i], exponential(g[s, h, i]),
                    beta[s, h, i], ONE, unread,
                )  # fmt: skip
    return out


@compiled
def block_heads(
    mixed: Array, proj: Array, places: tuple[int, int, int, int, int],
    unit: tuple[Array, Array], state: Array, out: Array,
) -> None:  # fmt: skip
    """One block's rows: softmax over the history's readout and the block's own tokens.

    mixed[first : first + size] are the block's rows, proj[row + i, at + h] their history scores,
    to which prior[h] is added; state [Hv, K, V] is read only. out[row + i] gets [Hv · V].
    places: (row, at, first, size, key heads); unit: prior and scale of scores, a head each.
    """
    row, at, first, size, key_heads = places
    prior, sharpness = unit
    heads, keys, values = state.shape
    group = heads // key_heads
    scale = np.float32(1.0 / math.sqrt(keys))
    units = np.empty(size, np.float32)
    for h in range(heads):
        q_at, k_at = (h // group) * keys, (key_heads + h // group) * keys
        v_at = 2 * key_heads * keys + h * values
        for i in range(size):
            q = mixed[first + i, q_at : q_at + keys]
            history = proj[row + i, at + h] + prior[h]
            best = history
            for j in range(size):
                dot = ZERO
                for a in range(keys):
                    dot += q[a] * mixed[first + j, k_at + a]
                units[j] = dot * sharpness[h]
                best = max(best, units[j])
            history = exponential(history - best)
            total = history
            for j in range(size):
                units[j] = exponential(units[j] - best)
                total += units[j]
            o = out[row + i, h * values : (h + 1) * values]
            for c in range(values):
                o[c] = ZERO
            for a in range(keys):
                read = history * scale / total * q[a]
                for c in range(values):
                    o[c] += read * state[h, a, c]
            for j in range(size):
                share = units[j] / total
                for c in range(values):
                    o[c] += share * mixed[first + j, v_at + c]


@compiled
def gated_head_norm(
    heads: Array, proj: Array, at: int, count: int, weight: Array, eps: float
) -> None:
    """heads[r] [count · V] → norm(head) · weight · silu(z), z at proj[r, at:]; in place."""
    dim = weight.shape[0]
    for r in range(heads.shape[0]):
        for h in range(count):
            total = ZERO
            for c in range(h * dim, (h + 1) * dim):
                total += heads[r, c] * heads[r, c]
            scale = ONE / np.sqrt(total / np.float32(dim) + np.float32(eps))
            for c in range(dim):
                z = proj[r, at + h * dim + c]
                i = h * dim + c
                heads[r, i] = heads[r, i] * scale * weight[c] * (z / (ONE + exponential(-z)))


@compiled
def rotated_heads(
    proj: Array, row: int, at: int, stride: int, count: int, t: int, rows: int, size: int, dim: int,
    norm: Array, eps: float, cos: Array, sin: Array, history: int, scale: float,
) -> Array:  # fmt: skip
    """[count, rows, dim]: heads at proj[row + i, at + h · stride:], normalised where `norm` [dim]
    has items, rotated to their positions (tables [positions, half]), and scaled."""
    out = np.empty((count, rows, dim), np.float32)
    half = cos.shape[1]
    for i in range(rows):
        position = history + (i if i < t else t + (i - t) % size)
        for h in range(count):
            x = proj[row + i, at + h * stride : at + h * stride + dim]
            y = out[h, i]
            factor = np.float32(scale)
            if norm.shape[0]:
                total = ZERO
                for c in range(dim):
                    total += x[c] * x[c]
                factor *= ONE / np.sqrt(total / np.float32(dim) + np.float32(eps))
                for c in range(dim):
                    y[c] = x[c] * factor * norm[c]
            else:
                for c in range(dim):
                    y[c] = x[c] * factor
            for c in range(half):
                u, v = y[c], y[half + c]
                w, z = cos[position, c], sin[position, c]
                y[c] = u * w - v * z
                y[half + c] = v * w + u * z
    return out


@compiled
def key_panels(keys: Array, count: int) -> Array:
    """keys [≥ count, D] turned into panels [·, D, PANEL] for `panel_product`; none for no key."""
    dim = keys.shape[1]
    out = np.zeros((-(-count // PANEL), dim, PANEL), np.float32)
    for p in range(out.shape[0]):
        width = min(PANEL, count - p * PANEL)
        for c in range(dim):
            for i in range(width):
                out[p, c, i] = keys[p * PANEL + i, c]
    return out


@compiled
def _scores(q: Array, rows: int, keys: Array, first: int, last: int, out: Array, at: int) -> None:
    """out[r, at + l - first] = q[r] · keys[l] for the keys first..last-1."""
    dim = keys.shape[1]
    for key in range(first, last):
        for r in range(rows):
            dot = ZERO
            for c in range(dim):
                dot += q[r, c] * keys[key, c]
            out[r, at + key - first] = dot


@compiled
def _weigh(
    probs: Array, rows: int, at: int, values: Array, first: int, last: int, out: Array
) -> None:
    """out[r] += Σ_l probs[r, at + l - first] · values[l] for the values first..last-1."""
    dim = values.shape[1]
    if dim % PANEL == 0:
        for panel in range(0, dim, PANEL):
            panel_product(
                probs, at, probs.shape[1], rows, values, first * dim + panel, dim, last - first,
                out, panel, out.shape[1],
            )  # fmt: skip
        return
    for value in range(first, last):
        for r in range(rows):
            share = probs[r, at + value - first]
            for c in range(dim):
                out[r, c] += share * values[value, c]


@compiled
def _softmax(x: Array, count: int) -> None:
    best = x[0]
    for c in range(1, count):
        best = max(best, x[c])
    total = ZERO
    for c in range(count):
        x[c] = exponential(x[c] - best)
        total += x[c]
    for c in range(count):
        x[c] /= total


@compiled
def attend(
    q: Array, k: Array, v: Array, past_k: Array, past_v: Array, panels: Array, history: int, t: int,
    size: int,
) -> Array:  # fmt: skip
    """One head of one sequence: q, k, v [rows, D] (q scaled), past [capacity, D] → [rows, D].

    Clean rows see the history and the clean rows up to themselves; block rows see the history, all
    clean rows and their own block. `panels` are `key_panels` of the history, which pay off for
    more than a few rows, or none.
    """
    rows, dim = q.shape
    out = np.zeros((rows, dim), np.float32)
    scores = np.empty((QUERIES, t + size + history + PANEL), np.float32)
    row = 0
    while row < rows:
        clean = row < t
        block = row - (row - t) % max(size, 1)  # where the rows' own block begins
        count = min(QUERIES, (t if clean else block + size) - row)
        known = row + count if clean else t
        past = known if clean else known + size
        _scores(q[row:], count, k, 0, known, scores, 0)
        if not clean:
            _scores(q[row:], count, k, block, block + size, scores, known)
        for r in range(count):
            if clean:
                scores[r, row + r + 1 : known] = UNSEEN
            scores[r, past : past + history + PANEL] = ZERO
        for p in range(panels.shape[0]):
            panel_product(
                q, row * dim, dim, count, panels, p * dim * PANEL, PANEL, dim, scores,
                past + p * PANEL, scores.shape[1],
            )  # fmt: skip
        if panels.shape[0] == 0:
            _scores(q[row:], count, past_k, 0, history, scores, past)
        for r in range(count):
            _softmax(scores[r], past + history)
        o = out[row:]
        _weigh(scores, count, 0, v, 0, known, o)
        if not clean:
            _weigh(scores, count, known, v, block, block + size, o)
        _weigh(scores, count, past, past_v, 0, history, o)
        row += count
    return out
