"""The compiled parts against the equations of `model.block`, one by one, over random shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clover_engine.cpu import fused_parts as compiled
from clover_engine.model import block
from clover_engine.model.rule import delta_rule

pytestmark = pytest.mark.usefixtures("one_thread")
TAPS = 4


class Layer:
    """Random rows and weights of one sequence: t clean rows, then b blocks of `size`."""

    def __init__(self, shape: dict[str, int], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.t, self.b, self.size = shape["t"], shape["b"], shape["size"]
        key_heads, group, keys, values = (shape[n] for n in ("kh", "group", "keys", "values"))
        self.heads = block.Heads(key_heads, key_heads * group, keys, values)
        self.channels = 2 * key_heads * keys + self.heads.v_heads * values
        self.rows = self.t + self.b * self.size

        def randn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw)

        hv = self.heads.v_heads
        self.inputs = randn(1, TAPS - 1 + self.rows, self.channels)
        self.taps = block.Convolution(randn(self.channels, TAPS), randn(self.channels, TAPS))
        self.state = randn(1, hv, keys, values)
        self.step, self.strength, self.score = (
            randn(self.rows, hv),
            randn(self.rows, hv),
            randn(self.rows, hv),
        )
        self.bias, self.rate = randn(hv), randn(hv)
        self.unit = (randn(hv), randn(hv).abs() + 0.5)
        # As a layer's projection has them: what follows the channels and the gate's z.
        self.proj = torch.cat([self.strength, self.step, self.score], dim=1)

    def mixed(self) -> Any:
        taps = (_array(self.taps.causal.T), _array(self.taps.right.T))
        shape = (self.t, self.b, self.size)
        units = 2 * self.heads.k_heads
        return compiled.convolve(_array(self.inputs[0]), taps, shape, units, self.heads.k_dim)


def _array(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.numpy())


shapes = st.fixed_dictionaries(
    {
        "t": st.integers(0, 9), "b": st.integers(0, 3), "size": st.integers(1, 9),
        "kh": st.integers(1, 2), "group": st.integers(1, 2), "keys": st.sampled_from([4, 8]),
        "values": st.sampled_from([4, 12]),
    }
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(shape=shapes, seed=st.integers(0, 999))
@torch.no_grad()
def test_the_compiled_parts_compute_the_equations(shape: dict[str, int], seed: int) -> None:
    layer = Layer(shape, seed)
    t, heads = layer.t, layer.heads
    mixed = layer.mixed()
    out = np.zeros((max(1, layer.rows), heads.v_heads * heads.v_dim), np.float32)
    held, after = layer.state, _array(layer.state[0].clone())
    tail = layer.inputs[:, t : t + TAPS - 1]
    if t:
        inputs = layer.inputs[:, : TAPS - 1 + t]
        found = block.gates(layer.step[None, :t], layer.strength[None, :t], layer.bias, layer.rate)
        wanted = block.clean_rows(inputs, held, layer.taps.causal, found, heads, 16)
        kept = [np.empty((heads.v_heads, t, n), np.float32) for n in (heads.k_dim, heads.v_dim)]
        rates = [np.empty((heads.v_heads, t), np.float32) for _ in range(2)]
        constants = (_array(-layer.rate.exp()), _array(layer.bias))
        places = (0, 0, t, heads.k_heads)
        compiled.clean_heads(
            mixed, _array(layer.proj), places, constants, after, (*kept, *rates), out
        )
        _close(out[:t], wanted.out[0].flatten(1))
        _close(after, wanted.end[0])
        for count in {0, t // 2, t}:
            again = compiled.rewound(
                _array(layer.state), *(x[None] for x in (*kept, *rates)), count
            )
            _close(again, wanted.after([count]).state)
        held = wanted.end
    for number in range(layer.b):
        first = t + number * layer.size
        rows = layer.inputs[:, TAPS - 1 + first : TAPS - 1 + first + layer.size]
        score = layer.score[None, first : first + layer.size]
        unit = block.HistoryUnit(score, *layer.unit)
        blocks = block.block_rows(rows, block.Memory(tail, held), layer.taps, unit, heads)
        prior = layer.unit[0] * math.log(layer.size)
        places_of_block = (first, 2 * heads.v_heads, first, layer.size, heads.k_heads)
        compiled.block_heads(
            mixed, _array(layer.proj), places_of_block,
            (_array(prior), _array(layer.unit[1])), after, out,
        )  # fmt: skip
        _close(out[first : first + layer.size], blocks[0].flatten(1))


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3), seed=st.integers(0, 999))
@torch.no_grad()
def test_a_padded_batch_is_its_blocks(sizes: list[int], seed: int) -> None:
    """`mask`: every block as it is alone, its own size in γ·log B."""
    layer = Layer({"t": 0, "b": 1, "size": max(sizes), "kh": 1, "group": 2, "keys": 8,
                   "values": 4}, seed)  # fmt: skip
    n, most = len(sizes), max(sizes)
    mask = torch.arange(most) < torch.tensor(sizes)[:, None]
    draw = torch.Generator().manual_seed(seed + 1)
    rows = torch.randn(n, most, layer.channels, generator=draw) * mask[..., None]
    score = torch.randn(n, most, layer.heads.v_heads, generator=draw)
    memory = block.Memory(
        torch.randn(n, TAPS - 1, layer.channels, generator=draw),
        torch.randn(n, layer.heads.v_heads, 8, 4, generator=draw),
    )
    unit = block.HistoryUnit(score, *layer.unit)
    together = block.block_rows(rows, memory, layer.taps, unit, layer.heads, mask)
    for i, size in enumerate(sizes):
        own = block.HistoryUnit(score[i : i + 1, :size], *layer.unit)
        held = block.Memory(memory.tail[i : i + 1], memory.state[i : i + 1])
        alone = block.block_rows(rows[i : i + 1, :size], held, layer.taps, own, layer.heads)
        torch.testing.assert_close(together[i, :size], alone[0], rtol=1e-4, atol=1e-5)


def test_the_chunks_of_the_rule_do_not_matter() -> None:
    layer = Layer({"t": 9, "b": 0, "size": 1, "kh": 1, "group": 1, "keys": 8, "values": 4}, 1)
    found = block.gates(layer.step[None], layer.strength[None], layer.bias, layer.rate)
    args = (layer.inputs, layer.state, layer.taps.causal, found, layer.heads)
    one, many = block.clean_rows(*args, 1), block.clean_rows(*args, 16)
    torch.testing.assert_close(one.out, many.out, rtol=1e-4, atol=1e-5)
    k, v, g, beta = one.writes
    _, end, _ = delta_rule(k, k, v, g, beta, layer.state, 3)
    torch.testing.assert_close(end, one.end, rtol=1e-4, atol=1e-5)


def _close(found: Any, wanted: Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=2e-4, atol=2e-5)
