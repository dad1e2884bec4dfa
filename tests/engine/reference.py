"""The Clover model a second time: slow, in plain loops, one row and one head at a time.

Written from the equations (docs/architecture.md, "The model") and from nothing of
`clover_engine.model`: it takes a configuration, which it only reads numbers from, and raw weights.
One sequence, no cache, float64 throughout. A weight of block rows that is absent (`.history.`,
`.conv1d.right`) means that its term is not there at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Weights = Mapping[str, Vector]
Block = tuple[int, Sequence[int]]
"""How many tokens of the history a block reads, and its ids (-1: the mask's own embedding)."""


def run(
    config: Any, weights: Weights, tokens: Sequence[int], blocks: Sequence[Block] = ()
) -> tuple[list[Vector], list[list[Vector]]]:
    """Final hidden states of all clean rows, and of every block's rows."""
    clean = [embedding(weights, token) for token in tokens]
    noisy = [[embedding(weights, token) for token in ids] for _, ids in blocks]
    starts = [start for start, _ in blocks]
    for index, kind in enumerate(config.layer_types):
        layer = Part(weights, f"model.layers.{index}.")
        mixer = attention if kind == "full_attention" else deltanet
        before = layer.vector("input_layernorm.weight")
        after = layer.vector("post_attention_layernorm.weight")
        mixed, mixed_noisy = mixer(
            config,
            layer.below("self_attn." if kind == "full_attention" else "linear_attn."),
            [rms(config, x, before) for x in clean],
            [[rms(config, x, before) for x in rows] for rows in noisy],
            starts,
        )
        mlp = layer.below("mlp.")

        def finish(x: Vector, y: Vector, mlp: Part = mlp, after: Vector = after) -> Vector:
            middle = x + y
            normed = rms(config, middle, after)
            return middle + (experts if config.num_experts else dense)(config, mlp, normed)

        clean = [finish(x, y) for x, y in zip(clean, mixed, strict=True)]
        noisy = [
            [finish(x, y) for x, y in zip(xs, ys, strict=True)]
            for xs, ys in zip(noisy, mixed_noisy, strict=True)
        ]
    last = weights["model.norm.weight"]
    return [rms(config, x, last) for x in clean], [
        [rms(config, x, last) for x in rows] for rows in noisy
    ]


class Part:
    """The weights below a prefix."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self.weights, self.prefix = weights, prefix

    def below(self, prefix: str) -> Part:
        return Part(self.weights, self.prefix + prefix)

    def vector(self, name: str) -> Vector:
        return self.weights[self.prefix + name]

    def has(self, name: str) -> bool:
        return self.prefix + name in self.weights

    def linear(self, name: str, x: Vector) -> Vector:
        y: Vector = self.vector(name + ".weight") @ x
        return y + self.vector(name + ".bias") if self.has(name + ".bias") else y


def embedding(weights: Weights, token: int) -> Vector:
    if token == -1:
        return weights["model.mask_embedding"]
    row: Vector = weights["model.embed_tokens.weight"][token]
    return row


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def mixture(scores: Sequence[float], values: Sequence[Vector]) -> Vector:
    """softmax(scores) · values."""
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    total = np.zeros_like(values[0])
    for share, value in zip(shares, values, strict=True):
        total = total + share / sum(shares) * value
    return total


def rms(config: Any, x: Vector, weight: Vector) -> Vector:
    normed: Vector = x / np.sqrt(np.mean(x * x) + config.rms_norm_eps)
    return normed * (1.0 + weight if config.norm_unit_offset else weight)


def dense(config: Any, mlp: Part, x: Vector) -> Vector:
    return mlp.linear("down_proj", silu(mlp.linear("gate_proj", x)) * mlp.linear("up_proj", x))


def experts(config: Any, mlp: Part, x: Vector) -> Vector:
    logits = mlp.linear("gate", x)
    shares = np.exp(logits - logits.max())
    shares = shares / shares.sum()
    best = sorted(range(config.num_experts), key=lambda e: -shares[e])[: config.num_experts_per_tok]
    total = sum(shares[e] for e in best) if config.norm_topk_prob else 1.0
    out = np.zeros_like(x)
    width = config.moe_intermediate_size
    for e in best:
        gate_up = mlp.vector("experts.gate_up_proj")[e]
        inner = silu(gate_up[:width] @ x) * (gate_up[width:] @ x)
        out = out + shares[e] / total * (mlp.vector("experts.down_proj")[e] @ inner)
    if config.shared_expert_intermediate_size:
        share = sigmoid(mlp.linear("shared_expert_gate", x))
        out = out + share * dense(config, mlp.below("shared_expert."), x)
    return out


# ---- full attention -------------------------------------------------------------------------


def attention(
    config: Any,
    part: Part,
    clean: list[Vector],
    noisy: list[list[Vector]],
    starts: list[int],
) -> tuple[list[Vector], list[list[Vector]]]:
    def keys(x: Vector, position: int) -> list[Vector]:
        return heads("k_proj", "k_norm.weight", config.num_key_value_heads, x, position)

    def heads(name: str, norm: str, count: int, x: Vector, position: int) -> list[Vector]:
        flat = part.linear(name, x)
        step = len(flat) // count  # twice head_dim where q_proj also holds the output gate
        split = [flat[h * step : h * step + config.head_dim] for h in range(count)]
        if config.qk_norm:
            split = [rms(config, head, part.vector(norm)) for head in split]
        return [turn(config, head, position) for head in split]

    def values(x: Vector) -> list[Vector]:
        flat, dim = part.linear("v_proj", x), config.head_dim
        return [flat[h * dim : (h + 1) * dim] for h in range(config.num_key_value_heads)]

    def row(x: Vector, position: int, ks: list[list[Vector]], vs: list[list[Vector]]) -> Vector:
        queries = heads("q_proj", "q_norm.weight", config.num_attention_heads, x, position)
        outs = []
        for h, q in enumerate(queries):
            kv = h // (config.num_attention_heads // config.num_key_value_heads)
            scores = [float(q @ k[kv]) / math.sqrt(config.head_dim) for k in ks]
            out = mixture(scores, [v[kv] for v in vs])
            if config.output_gate:
                both = part.linear("q_proj", x)[2 * h * config.head_dim :]
                out = out * sigmoid(both[config.head_dim : 2 * config.head_dim])
            outs.append(out)
        return part.linear("o_proj", np.concatenate(outs))

    history_k = [keys(x, position) for position, x in enumerate(clean)]
    history_v = [values(x) for x in clean]
    out = [row(x, i, history_k[: i + 1], history_v[: i + 1]) for i, x in enumerate(clean)]
    out_noisy = []
    for start, rows in zip(starts, noisy, strict=True):
        block_k = [keys(x, start + i) for i, x in enumerate(rows)]
        block_v = [values(x) for x in rows]
        ks, vs = history_k[:start] + block_k, history_v[:start] + block_v
        out_noisy.append([row(x, start + i, ks, vs) for i, x in enumerate(rows)])
    return out, out_noisy


def turn(config: Any, head: Vector, position: int) -> Vector:
    """Rotates the pairs (i, i + half) of the first `partial_rotary_factor` of a head."""
    dim = int(config.head_dim * config.partial_rotary_factor)
    half = dim // 2
    out = head.copy()
    for i in range(half):
        angle = position * config.rope_theta ** (-2 * i / dim)
        a, b = head[i], head[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


# ---- gated delta net ------------------------------------------------------------------------


def deltanet(
    config: Any,
    part: Part,
    clean: list[Vector],
    noisy: list[list[Vector]],
    starts: list[int],
) -> tuple[list[Vector], list[list[Vector]]]:
    key_dim, value_dim = config.linear_key_head_dim, config.linear_value_head_dim
    key_heads, value_heads = config.linear_num_key_heads, config.linear_num_value_heads
    causal, width = part.vector("conv1d.weight"), config.linear_conv_kernel_dim

    def convolved(before: list[Vector], own: list[Vector], i: int, right: bool) -> Vector:
        """Row i of `own` from the width-1 inputs before it and, in blocks, the width after it."""
        out = np.zeros_like(own[i])
        line = before + own
        for j in range(width):
            at = len(before) + i - (width - 1) + j
            if at >= 0:
                out = out + causal[:, 0, j] * line[at]
        if right and part.has("conv1d.right"):
            for j in range(width):
                if i + 1 + j < len(own):
                    out = out + part.vector("conv1d.right")[:, j] * own[i + 1 + j]
        return np.asarray(silu(out))

    def heads(mixed: Vector) -> tuple[list[Vector], list[Vector], list[Vector]]:
        """q and k of unit length and v, for every value head."""
        qs, ks, vs = [], [], []
        for h in range(value_heads):
            own = h // (value_heads // key_heads)
            q = mixed[own * key_dim : (own + 1) * key_dim]
            k = mixed[(key_heads + own) * key_dim : (key_heads + own + 1) * key_dim]
            first = 2 * key_heads * key_dim + h * value_dim
            qs.append(q / np.sqrt(q @ q + 1e-6))
            ks.append(k / np.sqrt(k @ k + 1e-6))
            vs.append(mixed[first : first + value_dim])
        return qs, ks, vs

    def project(x: Vector, outs: list[Vector]) -> Vector:
        z = part.linear("in_proj_z", x).reshape(value_heads, value_dim)
        normed = []
        for h, out in enumerate(outs):
            unit = out / np.sqrt(np.mean(out * out) + config.rms_norm_eps)
            normed.append(unit * part.vector("norm.weight") * silu(z[h]))
        return part.linear("out_proj", np.concatenate(normed))

    inputs = [part.linear("in_proj_qkv", x) for x in clean]
    states = [[np.zeros((key_dim, value_dim)) for _ in range(value_heads)]]
    result = []
    for i, x in enumerate(clean):
        qs, ks, vs = heads(convolved([], inputs, i, right=False))
        beta = sigmoid(part.linear("in_proj_b", x))
        step = np.log1p(np.exp(part.linear("in_proj_a", x) + part.vector("dt_bias")))
        g = -np.exp(part.vector("A_log")) * step
        after, outs = [], []
        for h in range(value_heads):
            state = math.exp(g[h]) * states[-1][h]
            state = state + np.outer(ks[h], beta[h] * (vs[h] - state.T @ ks[h]))
            after.append(state)
            outs.append(state.T @ qs[h] / math.sqrt(key_dim))
        states.append(after)
        result.append(project(x, outs))

    result_noisy = []
    for start, rows in zip(starts, noisy, strict=True):
        own = [part.linear("in_proj_qkv", x) for x in rows]
        split = [heads(convolved(inputs[:start], own, i, right=True)) for i in range(len(rows))]
        outs_of_block = []
        for i, x in enumerate(rows):
            outs = []
            for h in range(value_heads):
                q = split[i][0][h]
                scale = math.sqrt(key_dim)
                history = 0.0
                if part.has("history.scale"):
                    scale = part.vector("history.scale")[h]
                if part.has("history.score.weight"):
                    history += float(part.linear("history.score", x)[h])
                if part.has("history.calibration"):
                    history += float(part.vector("history.calibration")[h]) * math.log(len(rows))
                readout = states[start][h].T @ q / math.sqrt(key_dim)
                scores = [scale * float(q @ other[1][h]) for other in split]
                outs.append(mixture([history, *scores], [readout, *(o[2][h] for o in split)]))
            outs_of_block.append(project(x, outs))
        result_noisy.append(outs_of_block)
    return result, result_noisy
