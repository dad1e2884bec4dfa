"""The fast path of a model whose weights stay as a GGUF file has them: 4 to 8 bits, packed once.

It is used like `Fused` (`Clover.fused`), on the same `Cache`, and is the model's only path: the
network's own layers have no weights. Activations are rounded to 8 bits, 32 by 32; all else is
float32. The embedding is read from the mapped file, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clover_engine.checkpoint.blocks import GROUPED, PLAIN, values_of
from clover_engine.checkpoint.ggufread import RawTensor
from clover_engine.cpu.fused_layers import normed_rows
from clover_engine.cpu.grouped_kernels import MOST_ROWS, PANEL, grouped_product
from clover_engine.cpu.grouped_layers import attended, biased, gated, normed, quantised
from clover_engine.cpu.grouped_pack import Grouped, can_pack, pack_grouped
from clover_engine.cpu.kernels import Array
from clover_engine.cpu.waves import Waves
from clover_engine.model.cache import Cache, KVLayer
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig
from clover_engine.model.rows import Layout

WAVE_ROWS = 32
MANY = 4 * MOST_ROWS
"""Passes of so many rows are cut into pieces, which follow each other on several threads."""
MOST_THREADS = 8
HEAD_ROWS = 64
"""Rows whose logits are computed at once."""
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def fits(config: CloverConfig, tensors: Mapping[str, RawTensor]) -> bool:
    """Whether all matrices have a packed layout and the network the shape of Qwen2 or Llama."""
    plain = not (config.hybrid or config.num_experts or config.output_gate or config.qk_norm)
    plain = plain and config.rotary_dim == config.head_dim and not config.output_bias
    if not plain or config.norm_unit_offset or config.base_model_type == "llama":
        return False  # llama.cpp turns Llama's rows of q and k into another order
    matrices = [t for name, t in tensors.items() if name != "token_embd.weight" and _is_matrix(t)]
    sizes = (config.hidden_size, config.intermediate_size, config.head_dim)
    return (
        all(size % 32 == 0 for size in sizes)
        and all(can_pack(t) and t.shape[0] % PANEL == 0 for t in matrices)
        and "token_embd.weight" in tensors
        and tensors["token_embd.weight"].kind in (*GROUPED, *PLAIN)
    )


def _is_matrix(tensor: RawTensor) -> bool:
    return len(tensor.shape) == 2


class GroupedStep:
    """Packed weights of a model for which `fits` holds."""

    tile = MOST_ROWS
    """Rows of a pass that cost 1.7 times as much as one; after that rows cost alike."""

    def __init__(self, model: Clover, tensors: Mapping[str, RawTensor], threads: int = 1) -> None:
        config = model.config
        self._config, self.hidden, self.vocab = config, config.hidden_size, config.vocab_size
        self._eps, self._rotary = config.rms_norm_eps, model.rotary
        self._table = tensors["token_embd.weight"]
        self._norm = _vector(tensors["output_norm.weight"])
        head = tensors.get("output.weight", self._table)
        self._head = pack_grouped(head, threads)
        self._layers = [_Layer(config, i, tensors, threads) for i in range(len(config.layer_types))]
        self._tables: tuple[Array, Array] | None = None
        self._waves = Waves(max(1, min(threads, MOST_THREADS)))

    @property
    def nbytes(self) -> int:
        """Of all packed weights."""
        return self._head.nbytes + sum(layer.nbytes for layer in self._layers)

    def warm(self) -> None:
        """Compiles, or loads, everything that a pass may need."""
        cache = Cache(self._config)
        with torch.inference_mode():
            for rows in (1, 3):
                ids = torch.zeros(1, rows, dtype=torch.long)
                self.forward(ids, Layout(rows), cache, True)
                cache.advanced(rows)
            self.head(torch.zeros(1, self.hidden))

    def forward(self, ids: Tensor, layout: Layout, cache: Cache | None, update: bool) -> Tensor:
        """ids [N, rows] → final hidden states [N, rows, hidden], as `Clover.forward` has them.

        Raises IndexError for ids outside the vocabulary, ValueError for block rows.
        """
        if layout.blocks:
            raise ValueError("this model has no masked rows")
        flat = ids.reshape(-1).numpy()
        if flat.min() < 0 or flat.max() >= self.vocab:
            raise IndexError(f"token ids must be 0..{self.vocab - 1}")
        n, t = ids.shape
        history = cache.length if cache is not None else 0
        tables = self._rotary_tables(history + t)
        if n == 1 and t >= MANY and self._waves.threads > 1 and cache is not None and update:
            x = self._in_waves(flat, cache, tables)
        else:
            x = self._embed(flat)
            memories: Sequence[Any] = (
                cache.layers if cache is not None else [None] * len(self._layers)
            )
            write = update and cache is not None
            for layer, memory in zip(self._layers, memories, strict=True):
                layer.run(x, (n, t), memory, write, tables)
        out = normed_rows(x[: n * t], self.hidden, self._norm, self._eps)
        return torch.from_numpy(out).view(n, t, self.hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., hidden]."""
        rows = hidden.reshape(-1, self.hidden).numpy()
        own = self._head
        width = own.panels * PANEL
        out = np.empty((len(rows), self.vocab), np.float32)
        for at in range(0, len(rows), HEAD_ROWS):
            part = rows[at : at + HEAD_ROWS]
            x = quantised(_padded(part))
            logits = np.zeros((MOST_ROWS * len(x), width), np.float32)

            def share(
                index: int, count: int = len(part), x: Array = x, logits: Array = logits
            ) -> None:
                first, last = (own.panels * i // self._waves.threads for i in (index, index + 1))
                _add(own, x, count, logits, 0, (first, last))

            self._waves.share(share)
            out[at : at + len(part)] = logits[: len(part), : self.vocab]
        return torch.from_numpy(out).view(*hidden.shape[:-1], self.vocab)

    def _embed(self, ids: Array) -> Array:
        return _padded(values_of(self._table, ids))

    def _in_waves(self, ids: Array, cache: Cache, tables: tuple[Array, Array]) -> Array:
        """Appends ids [rows] to `cache`, in pieces on several threads; x after all layers."""
        most = min(WAVE_ROWS, -(-len(ids) // self._waves.threads // MOST_ROWS) * MOST_ROWS)
        starts = range(0, len(ids), most)
        pieces = [self._embed(ids[at : at + most]) for at in starts]
        sizes = [min(most, len(ids) - at) for at in starts]

        def step(piece: int, layer: int) -> None:
            shape, memory = (1, sizes[piece]), cache.layers[layer]
            assert isinstance(memory, KVLayer)
            self._layers[layer].run(pieces[piece], shape, memory, True, tables)

        self._waves.run(len(pieces), len(self._layers), step)
        return np.concatenate([x[:size] for x, size in zip(pieces, sizes, strict=True)])

    def _rotary_tables(self, positions: int) -> tuple[Array, Array]:
        """cos and sin [≥ positions, half the channels]."""
        if self._tables is None or self._tables[0].shape[0] < positions:
            half = self._rotary.dim // 2
            cos, sin = self._rotary.table(torch.arange(max(1024, 2 * positions)), torch.float32)
            self._tables = (
                np.ascontiguousarray(cos[:, :half].numpy()),
                np.ascontiguousarray(sin[:, :half].numpy()),
            )
        return self._tables


class _Layer:
    def __init__(
        self, config: CloverConfig, index: int, tensors: Mapping[str, RawTensor], threads: int
    ) -> None:
        c = config
        self._heads = (c.num_attention_heads, c.num_key_value_heads, c.head_dim)
        self._wide, self._eps = c.intermediate_size, c.rms_norm_eps
        names = [f"blk.{index}.{name}" for name in _MATRICES]
        self._matrices = [pack_grouped(tensors[f"{n}.weight"], threads) for n in names]
        biases = [_vector(tensors[f"{n}.bias"]) for n in names[:3] if f"{n}.bias" in tensors]
        self._bias = np.concatenate(biases) if biases else np.zeros(0, np.float32)
        self._norm = _vector(tensors[f"blk.{index}.attn_norm.weight"])
        self._norm_mid = _vector(tensors[f"blk.{index}.ffn_norm.weight"])
        self._nothing = np.zeros((1, c.num_key_value_heads, 0, c.head_dim), np.float32)

    @property
    def nbytes(self) -> int:
        return sum(matrix.nbytes for matrix in self._matrices)

    def run(
        self,
        x: Array,
        shape: tuple[int, int],
        memory: KVLayer | None,
        write: bool,
        rotary: tuple[Array, Array],
    ) -> None:
        """One pass over x [rows padded, hidden], in place; shape: (n, rows of each)."""
        n, t = shape
        k = v = self._nothing
        history = memory.length if memory is not None else 0
        if write and memory is not None:
            like = torch.empty(n, k.shape[1], 0, k.shape[3])
            k, v = (part.numpy() for part in memory.room(like, t))
        elif memory is not None and memory.k is not None and memory.v is not None:
            k, v = memory.k.numpy(), memory.v.numpy()
        q, key, value, out, gate, up, down = self._matrices
        heads, kv_heads, dim = self._heads
        rows, narrow = n * t, kv_heads * dim
        h = normed(x, self._norm, self._eps)
        proj = biased(len(x), heads * dim + 2 * narrow, self._bias)
        _add(q, h, rows, proj)
        _add(key, h, rows, proj, heads * dim)
        _add(value, h, rows, proj, heads * dim + narrow)
        mixed = attended(proj, (n, t, *self._heads), rotary, k, v, history, write)
        _add(out, mixed, rows, x)
        h = normed(x, self._norm_mid, self._eps)
        both = np.zeros((len(x), 2 * self._wide), np.float32)
        _add(gate, h, rows, both)
        _add(up, h, rows, both, self._wide)
        _add(down, gated(both), rows, x)
        if write and memory is not None:
            memory.length += t


def _add(
    matrix: Grouped, x: Array, rows: int, out: Array, column: int = 0,
    panels: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """out[:rows, column:] += x @ matrix, or @ the panels first..last-1 of it."""
    first, last = panels or (0, matrix.panels)
    grouped_product(
        matrix.kind, matrix.codes, matrix.scales, x, rows, first, last, out, column
    )  # fmt: skip


def _vector(tensor: RawTensor) -> Array:
    return values_of(tensor).reshape(-1)


def _padded(rows: Array) -> Array:
    """Rows up to a multiple of 4, zeros after the given ones."""
    out = np.zeros((-(-len(rows) // MOST_ROWS) * MOST_ROWS, rows.shape[1]), np.float32)
    out[: len(rows)] = rows
    return out
