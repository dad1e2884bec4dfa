"""The fast path on CPUs: a dense float32 Clover with packed weights, one compiled call a layer.

It computes what `Clover.forward` computes (float32 rounding apart) on the same `Cache`, and either
may go on where the other stopped. Weights are copied: a model that is trained on needs a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clover_engine.cpu import fused_layers as compiled
from clover_engine.cpu.fused_parts import rewound
from clover_engine.cpu.kernels import PANEL, TILE, Array, fits_bfloat16, pack
from clover_engine.cpu.waves import Waves
from clover_engine.model.attention import Attention
from clover_engine.model.cache import REPLAY_ROWS, Cache, KVLayer, StateLayer
from clover_engine.model.clover import Clover, Layer
from clover_engine.model.deltanet import GatedDeltaNet
from clover_engine.model.layers import MLP, RMSNorm
from clover_engine.model.rows import Layout

NOTHING = np.zeros(0, np.float32)
WAVE_ROWS = 32
"""A long pass of clean rows is cut into pieces of this many, which follow each other through the
layers on several threads."""
MOST_THREADS = 4


class Fused:
    """Packed weights of a model for which `accelerate.fits` holds."""

    tile = TILE
    """So many rows of a pass cost little more than one."""

    def __init__(self, model: Clover, threads: int = 1) -> None:
        config = model.config
        self.hidden, self.vocab = config.hidden_size, config.vocab_size
        self.eps = config.rms_norm_eps
        self.lowest = -1 if config.mask_embedding else 0
        matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
        narrow = all(fits_bfloat16(_array(weight)) for weight in matrices)
        self.table = _array(model.model.embed_tokens.weight)
        self.mask = _array(model.model.mask_embedding) if config.mask_embedding else NOTHING
        self.norm = _scale(model.model.norm)
        self.layers: list[_DeltaNet | _Attention] = []
        for layer in model.model.layers:
            assert isinstance(layer, Layer)
            kind = _DeltaNet if layer.linear else _Attention
            self.layers.append(kind(layer, self.hidden, self.eps, narrow))
        self.output = pack(_array(model.lm_head.weight), narrow)
        self._rotary = model.rotary
        self._tables: tuple[Array, Array] | None = None
        self._config = config
        self._waves = Waves(max(1, min(threads, MOST_THREADS)))

    def warm(self) -> None:
        """Compiles, or loads, everything that a pass may need."""
        cache = Cache(self._config)
        with torch.no_grad():
            for layout in (Layout(3), Layout(2, 1, 4)):
                ids = torch.zeros(1, layout.rows, dtype=torch.long)
                hidden = self.forward(ids, layout, cache, True)
                cache.advanced(layout.clean)
            cache.keep(1)
            self.head(hidden[0])

    def forward(self, ids: Tensor, layout: Layout, cache: Cache | None, update: bool) -> Tensor:
        """ids [N, rows] → final hidden states [N, rows, hidden]; see `Clover.forward`, of which
        this is the part between the checks and `Cache.advanced`.

        Raises IndexError for ids outside the vocabulary.
        """
        flat = ids.reshape(-1).numpy()
        if flat.min() < self.lowest or flat.max() >= self.vocab:
            raise IndexError(f"token ids must be {self.lowest}..{self.vocab - 1}")
        history = cache.length if cache is not None else 0
        tables = self._rotary_tables(history + layout.clean + layout.block_size)
        long = layout.clean > REPLAY_ROWS and layout.rows == layout.clean == len(flat)
        if long and self._waves.threads > 1 and cache is not None and update:
            x = self._in_waves(flat, cache, tables)
        else:
            x = self._embed(flat)
            shape = (ids.shape[0], layout.clean, layout.blocks, layout.block_size)
            memories: Sequence[KVLayer | StateLayer | None] = (
                cache.layers if cache is not None else [None] * len(self.layers)
            )
            write = update and cache is not None and layout.clean > 0
            for layer, memory in zip(self.layers, memories, strict=True):
                layer.run(x, shape, memory, write, tables)
        out = compiled.normed_rows(x, self.hidden, self.norm, self.eps)
        return torch.from_numpy(out).view(*ids.shape, self.hidden)

    def _embed(self, ids: Array) -> Array:
        width = -(-self.hidden // PANEL) * PANEL
        out: Array = compiled.embed(ids, self.table, self.mask, width)
        return out

    def _in_waves(self, ids: Array, cache: Cache, tables: tuple[Array, Array]) -> Array:
        """Appends ids [rows] to `cache`; the residual stream [rows, width] after all layers."""
        pieces = [self._embed(ids[at : at + WAVE_ROWS]) for at in range(0, len(ids), WAVE_ROWS)]

        def step(piece: int, layer: int) -> None:
            shape = (1, len(pieces[piece]), 0, 0)
            self.layers[layer].run(pieces[piece], shape, cache.layers[layer], True, tables)

        self._waves.run(len(pieces), len(self.layers), step)
        for memory in cache.layers:
            if isinstance(memory, StateLayer):
                memory.replay = {}  # it is of the last piece alone
        return np.concatenate(pieces)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., hidden]."""
        rows = np.ascontiguousarray(hidden.reshape(-1, self.hidden).numpy())
        logits = torch.from_numpy(compiled.head(rows, self.output))
        return logits[:, : self.vocab].view(*hidden.shape[:-1], self.vocab)

    def _rotary_tables(self, positions: int) -> tuple[Array, Array]:
        """cos and sin [≥ positions, half the rotated channels]."""
        if self._tables is None or self._tables[0].shape[0] < positions:
            half = self._rotary.dim // 2
            cos, sin = self._rotary.table(torch.arange(max(512, 2 * positions)), torch.float32)
            self._tables = _array(cos[:, :half]), _array(sin[:, :half])
        return self._tables


class _DeltaNet:
    def __init__(self, layer: Layer, hidden: int, eps: float, narrow: bool) -> None:
        net: GatedDeltaNet = layer.linear_attn
        self.hidden, self.eps = hidden, eps
        self.heads, self.keys, self.values = net.v_heads, net.k_dim, net.v_dim
        self.key_heads = net.k_heads
        parts = (net.in_proj_qkv, net.in_proj_z, net.in_proj_b, net.in_proj_a, net.history.score)
        panels = (
            pack(np.concatenate([_array(p.weight) for p in parts]), narrow),
            pack(_array(net.out_proj.weight), narrow),
        )
        vectors = (
            _scale(layer.input_layernorm),
            _array(-net.A_log.exp()),
            _array(net.dt_bias),
            _array(net.history.score.bias),
            _array(net.history.calibration),
            _array(net.history.scale),
            _array(net.norm.weight),
            NOTHING,
        )
        convolution = _array(net.conv1d.weight[:, 0].T), _array(net.conv1d.right.T)
        self.weights = compiled.DeltaNetWeights(panels, vectors, convolution, _mlp(layer, narrow))
        self.no_tail = np.zeros((1, net.conv1d.width - 1, convolution[0].shape[1]), np.float32)
        self.no_state = np.zeros((1, self.heads, self.keys, self.values), np.float32)

    def run(
        self,
        x: Array,
        shape: tuple[int, int, int, int],
        memory: KVLayer | StateLayer | None,
        write: bool,
        _rotary: tuple[Array, Array],
    ) -> None:
        """One pass over x [rows, width], in place; shape: (n, clean, blocks, block size)."""
        assert memory is None or isinstance(memory, StateLayer)
        n, t, b, size = shape
        tail, state = self.no_tail, self.no_state
        if memory is not None and memory.tail is not None and memory.state is not None:
            tail, state = _array(memory.tail), _array(memory.state)
        inputs = np.empty((n, tail.shape[1] + t + b * size, tail.shape[2]), np.float32)
        after = np.empty((n if t else 0, *state.shape[1:]), np.float32)
        kept = (
            np.empty((n, self.heads, t, self.keys), np.float32),
            np.empty((n, self.heads, t, self.values), np.float32),
        )
        rates = (np.empty((n, self.heads, t), np.float32), np.empty((n, self.heads, t), np.float32))
        compiled.deltanet_layer(
            x, (*shape, self.hidden, self.key_heads), self.eps, self.weights,
            compiled.Before(tail, state), compiled.Written(inputs, after, kept, rates),
        )  # fmt: skip
        if write and memory is not None:
            seen = torch.from_numpy(inputs)[:, : tail.shape[1] + t]
            if t > REPLAY_ROWS:
                memory.advance(seen[:, t:].clone(), torch.from_numpy(after), {})
                return
            replay: dict[str, Any] = {"rows": t, "inputs": seen, "state": memory.state}
            replay["rewind"] = partial(_rewound, state, *kept, *rates)
            memory.advance(seen[:, t:], torch.from_numpy(after), replay)


class _Attention:
    def __init__(self, layer: Layer, hidden: int, eps: float, narrow: bool) -> None:
        net: Attention = layer.self_attn
        self.hidden, self.eps = hidden, eps
        self.heads, self.dim, self.gated = net.heads, net.dim, net.gated
        parts = (net.q_proj, net.k_proj, net.v_proj)
        panels = (
            pack(np.concatenate([_array(p.weight) for p in parts]), narrow),
            pack(_array(net.o_proj.weight), narrow),
        )
        biases = [_array(p.bias) for p in parts if p.bias is not None]
        vectors = (
            _scale(layer.input_layernorm),
            _scale(net.q_norm),
            _scale(net.k_norm),
            np.concatenate(biases) if biases else NOTHING,
            NOTHING if net.o_proj.bias is None else _array(net.o_proj.bias),
        )
        self.weights = compiled.AttentionWeights(panels, vectors, _mlp(layer, narrow))
        self.nothing = np.zeros((1, net.kv_heads, 0, self.dim), np.float32)

    def run(
        self,
        x: Array,
        shape: tuple[int, int, int, int],
        memory: KVLayer | StateLayer | None,
        write: bool,
        rotary: tuple[Array, Array],
    ) -> None:
        """One pass over x [rows, width], in place; shape: (n, clean, blocks, block size)."""
        assert memory is None or isinstance(memory, KVLayer)
        n, t, _, _ = shape
        k = v = self.nothing
        history = memory.length if memory is not None else 0
        if write and memory is not None:
            like = torch.empty(n, k.shape[1], 0, self.dim)
            k, v = (_array(part) for part in memory.room(like, t))
        elif memory is not None and memory.k is not None and memory.v is not None:
            k, v = _array(memory.k), _array(memory.v)
        compiled.attention_layer(
            x, (*shape, self.hidden, self.heads, self.dim, int(self.gated), history, int(write)),
            self.eps, self.weights, rotary, (k, v),
        )  # fmt: skip
        if write and memory is not None:
            memory.length += t


def _rewound(*parts: Any) -> Tensor:
    """The states after the first so many rows of a pass; `fused_parts.rewound`."""
    return torch.from_numpy(rewound(*parts))


def _mlp(layer: Layer, narrow: bool) -> tuple[Array, Array, Array, Array]:
    """Norm, gate beside up (each of whole panels), down, and no bias."""
    mlp = layer.mlp
    assert isinstance(mlp, MLP)
    gate, up = (pack(_array(p.weight), narrow) for p in (mlp.gate_proj, mlp.up_proj))
    down = pack(_array(mlp.down_proj.weight), narrow)
    return _scale(layer.post_attention_layernorm), np.concatenate([gate, up]), down, NOTHING


def _scale(norm: nn.Module) -> Array:
    """What a norm multiplies by; empty for none."""
    if not isinstance(norm, RMSNorm):
        return NOTHING
    return _array(norm.weight + 1.0 if norm.unit_offset else norm.weight)


def _array(tensor: Tensor) -> Array:
    """A C-contiguous float32 array, of the tensor's own memory where it is one."""
    return np.ascontiguousarray(tensor.detach().numpy())
