"""How many bytes a model takes: weights by part, caches, working memory, bytes read per pass.

Plain arithmetic over `CloverConfig`; no torch, nothing is loaded. `parts` counts exactly what
`clover_engine.model` builds (a test compares it with real checkpoints, byte for byte).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clover_engine.errors import CheckpointError
from clover_engine.model.config import CloverConfig

PartName = Literal[
    "embeddings", "attention", "deltanet", "block rows", "experts", "router", "shared expert",
    "mlp", "norms", "head",
]  # fmt: skip

KEPT_BITS = 16
"""Parameters that quantisation leaves alone: router, norms, convolutions, small projections."""
STATE_BYTES = 4
"""DeltaNet states are float32, in this engine and by default in SGLang."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """`count` weight matrices of `rows` × `columns`; quantisation groups run along the columns."""

    rows: int
    columns: int
    count: int = 1
    embedding: bool = False
    """Token embedding or head, which quantisation treats apart."""

    @property
    def parameters(self) -> int:
        return self.count * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of weights over all layers. Only `matrices` are quantised."""

    name: PartName
    matrices: tuple[Matrix, ...] = ()
    kept: int = 0
    """Parameters that always keep 16 bits (or the checkpoint's own precision)."""

    @property
    def parameters(self) -> int:
        return self.kept + sum(m.parameters for m in self.matrices)


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits of a matrix's weights. Below 16 it is the format of `clover_engine.model.quant`, with
    that module's defaults: 8 bits with a float32 scale a row, 4 bits with a bfloat16 scale and a
    zero point of a byte for each group of 128 columns; embedding and head in 8 bits a row."""

    bits: Literal[32, 16, 8, 4] = 16
    group_size: int | None = None
    """0: the whole row; None: 128 for 4 bits, else 0."""
    symmetric: bool = False
    """4 bits without zero points."""
    embeddings: bool = True
    """Embedding and head are quantised as well."""

    @property
    def quantised(self) -> bool:
        return self.bits < KEPT_BITS

    @property
    def group(self) -> int:
        return self.group_size if self.group_size is not None else 128 * (self.bits == 4)

    def matrix_bytes(self, matrix: Matrix) -> int:
        rows, columns = matrix.count * matrix.rows, matrix.columns
        if not self.quantised or (matrix.embedding and not self.embeddings):
            return matrix.parameters * max(self.bits, KEPT_BITS) // 8
        if matrix.embedding:
            return rows * (columns + 4)
        size = self.group or columns + columns % 2 * (self.bits == 4)
        groups = -(-columns // size)
        per_group = 4 if self.bits == 8 else 2 + (not self.symmetric)
        return rows * groups * (size * self.bits // 8 + per_group)

    def part_bytes(self, part: Part) -> int:
        kept = part.kept * max(self.bits, KEPT_BITS) // 8
        return kept + sum(self.matrix_bytes(m) for m in part.matrices)

    def __str__(self) -> str:
        if not self.quantised:
            return {32: "float32", 16: "bfloat16"}[self.bits]
        return f"int{self.bits}, " + (f"groups of {self.group}" if self.group else "by rows")


def parts(config: CloverConfig) -> tuple[Part, ...]:
    """Every parameter of the model, once."""
    vocabulary = (Matrix(config.vocab_size, config.hidden_size, embedding=True),)
    full = sum(kind == "full_attention" for kind in config.layer_types)
    linear = len(config.layer_types) - full
    found = [Part("embeddings", vocabulary)]
    if full:
        found.append(_attention(config, full))
    if linear:
        found.append(_deltanet(config, linear))
    if blocks := _block_rows(config, linear):
        found.append(Part("block rows", kept=blocks))
    found += _mlp(config)
    norms = (2 * len(config.layer_types) + 1) * config.hidden_size
    found.append(Part("norms", kept=norms))
    if not config.tie_word_embeddings:
        found.append(Part("head", vocabulary))
    return tuple(found)


def _attention(c: CloverConfig, layers: int) -> Part:
    query, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    wide = query * (2 if c.output_gate else 1)
    biases = (wide + 2 * kv) * c.attention_bias + c.hidden_size * c.output_bias
    kept = layers * (biases + 2 * c.head_dim * c.qk_norm)
    matrices = (
        Matrix(wide, c.hidden_size, layers),
        Matrix(kv, c.hidden_size, 2 * layers),
        Matrix(c.hidden_size, query, layers),
    )
    return Part("attention", matrices, kept)


def _deltanet(c: CloverConfig, layers: int) -> Part:
    heads, value = c.linear_num_value_heads, c.linear_num_value_heads * c.linear_value_head_dim
    channels = _channels(c)
    small = 2 * heads * (c.hidden_size + 1) + c.linear_value_head_dim  # b, a, dt, A, norm
    kept = layers * (channels * c.linear_conv_kernel_dim + small)
    matrices = (
        Matrix(channels, c.hidden_size, layers),
        Matrix(value, c.hidden_size, layers),
        Matrix(c.hidden_size, value, layers),
    )
    return Part("deltanet", matrices, kept)


def _channels(c: CloverConfig) -> int:
    key, value = c.linear_num_key_heads * c.linear_key_head_dim, c.linear_num_value_heads
    return 2 * key + value * c.linear_value_head_dim


def _block_rows(c: CloverConfig, linear: int) -> int:
    """What block rows add: history unit, right convolution branch, mask embedding, adapter."""
    heads = c.linear_num_value_heads
    history = heads * (c.hidden_size + 3)  # score's weight and bias, calibration, scale
    right = _channels(c) * c.linear_conv_kernel_dim
    query, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    ends = 2 * c.hidden_size + query * (2 if c.output_gate else 1) + query + 2 * keys
    ends += 2 * c.hidden_size + 3 * (c.hidden_size + c.intermediate_size)  # both ends of all seven
    adapter = len(c.layer_types) * c.adapter_rank * ends
    return linear * (history + right) + c.hidden_size * c.mask_embedding + adapter


def _mlp(c: CloverConfig) -> Iterator[Part]:
    layers, hidden = len(c.layer_types), c.hidden_size
    if not c.num_experts:
        width = c.intermediate_size
        yield Part("mlp", (Matrix(2 * width, hidden, layers), Matrix(hidden, width, layers)))
        return
    width, count = c.moe_intermediate_size, layers * c.num_experts
    yield Part("experts", (Matrix(2 * width, hidden, count), Matrix(hidden, width, count)))
    yield Part("router", kept=layers * c.num_experts * hidden)
    if shared := c.shared_expert_intermediate_size:
        matrices = (Matrix(2 * shared, hidden, layers), Matrix(hidden, shared, layers))
        yield Part("shared expert", matrices, kept=layers * hidden)


def parameter_count(config: CloverConfig) -> int:
    return sum(part.parameters for part in parts(config))


def active_parameters(config: CloverConfig) -> int:
    """Parameters that one token's pass multiplies with: chosen experts only, no embeddings."""
    total = 0
    for part in parts(config):
        if part.name == "experts":
            total += part.parameters * config.num_experts_per_tok // config.num_experts
        elif part.name != "embeddings":
            total += part.parameters
    vocabulary = config.vocab_size * config.hidden_size
    return total + (vocabulary if config.tie_word_embeddings else 0)


def weight_bytes(config: CloverConfig, precision: Precision) -> dict[PartName, int]:
    """Bytes of each part."""
    return {part.name: precision.part_bytes(part) for part in parts(config)}


def expert_bytes(config: CloverConfig, precision: Precision) -> int:
    """One routed expert of one layer; 0 for a dense model."""
    if not config.num_experts:
        return 0
    experts = weight_bytes(config, precision)["experts"]
    return experts // (config.num_experts * len(config.layer_types))


def kv_bytes_per_token(config: CloverConfig, element_bytes: int = 2) -> int:
    """Keys and values of all attention layers for one token of context."""
    full = sum(kind == "full_attention" for kind in config.layer_types)
    return full * 2 * config.num_key_value_heads * config.head_dim * element_bytes


def state_bytes(config: CloverConfig, element_bytes: int = 2) -> int:
    """DeltaNet state and convolution tail of one sequence, whatever its length."""
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    state = config.linear_num_value_heads * config.linear_key_head_dim
    tail = _channels(config) * (config.linear_conv_kernel_dim - 1) if linear else 0
    return linear * (state * config.linear_value_head_dim * STATE_BYTES + tail * element_bytes)


def activation_bytes(config: CloverConfig, rows: int, logit_rows: int) -> int:
    """Estimate of the widest moment of a pass over `rows` rows, in bfloat16, with float32 where
    the model computes in it; `logit_rows` of them get logits and a softmax of these."""
    c, hybrid = config, config.hybrid
    width = c.num_experts_per_tok * (3 * c.moe_intermediate_size + c.hidden_size)
    shared = 3 * c.shared_expert_intermediate_size
    mlp = (width + shared) * 2 if c.num_experts else 3 * c.intermediate_size * 2
    query = c.num_attention_heads * c.head_dim
    attention = (query * (3 if c.output_gate else 2) + 2 * c.num_key_value_heads * c.head_dim) * 2
    heads = c.linear_num_value_heads
    wide = heads * (2 * c.linear_key_head_dim + 2 * c.linear_value_head_dim) * 4
    deltanet = (_channels(c) * 6 + wide) if hybrid else 0
    residual = 3 * c.hidden_size * 2
    return rows * (residual + max(mlp, attention, deltanet)) + 2 * logit_rows * c.vocab_size * 4


def distinct_experts(config: CloverConfig, rows: int) -> float:
    """Expected number of a layer's experts that `rows` rows use, if each row's choice were
    uniform and independent. Real routing is skewed, so this is an upper estimate."""
    if not config.num_experts:
        return 0.0
    share = config.num_experts_per_tok / config.num_experts
    return float(config.num_experts * (1 - (1 - share) ** rows))


def pass_bytes(
    config: CloverConfig, precision: Precision, sequences: int, rows: int, history: int
) -> int:
    """Bytes that one pass must read from memory: `rows` rows for each of `sequences` sequences
    that have `history` tokens of context each. Weights are read once for all of them."""
    weights = weight_bytes(config, precision)
    read = sum(size for name, size in weights.items() if name not in ("embeddings", "experts"))
    if config.tie_word_embeddings:
        read += weights["embeddings"]
    touched = distinct_experts(config, sequences * rows) * len(config.layer_types)
    caches = sequences * (history * kv_bytes_per_token(config) + state_bytes(config))
    return int(read + touched * expert_bytes(config, precision) + caches)


def pass_flops(config: CloverConfig, sequences: int, rows: int, history: int) -> int:
    """Multiplications and additions of such a pass, two for each parameter and row, with the
    attention to the history."""
    full = sum(kind == "full_attention" for kind in config.layer_types)
    attention = 4 * full * config.num_attention_heads * config.head_dim * history
    return sequences * rows * (2 * active_parameters(config) + attention)


_PART_PATTERNS: tuple[tuple[str, PartName], ...] = (
    (r"\.history\.|conv1d\.right|mask_embedding|^adapter\.", "block rows"),
    (r"shared_expert", "shared expert"),
    (r"\.mlp\.experts\.", "experts"),
    (r"\.mlp\.gate\.", "router"),
    (r"\.mlp\.", "mlp"),
    (r"\.linear_attn\.", "deltanet"),
    (r"\.self_attn\.", "attention"),
    (r"embed_tokens", "embeddings"),
    (r"lm_head", "head"),
    (r"norm", "norms"),
)


def stored_bytes(directory: Path) -> dict[PartName, int]:
    """Bytes of each part in a checkpoint's safetensors files, read from their headers only.

    Tensors that this engine does not use (vision, multi-token prediction) are left out. Empty
    where there are no weights. Raises `CheckpointError`.
    """
    found: dict[PartName, int] = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, size in _tensors(path):
            part = next((p for pattern, p in _PART_PATTERNS if re.search(pattern, name)), None)
            if part is not None and not re.match(r"(model\.)?(visual|mtp)\.", name):
                found[part] = found.get(part, 0) + size
    return found


def _tensors(path: Path) -> Iterator[tuple[str, int]]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > 100_000_000:  # the format's own limit
                raise ValueError("header too long")
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                yield name, int(end) - int(start)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is truncated or corrupt ({error}); fetch the checkpoint again"
        ) from error
