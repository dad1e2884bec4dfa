"""Block rows and taken-back clean rows of the plugin, against the model's own layer. No server."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.clover import DENSE, MOE, SHAPE
from torch import Tensor

from clover_engine.model import block
from clover_engine.model.cache import StateLayer
from clover_engine.model.config import CloverConfig
from clover_engine.model.deltanet import GatedDeltaNet
from clover_engine.model.rows import Layout
from clover_engine.serving.rows import Rows, active, using

HISTORY = 11


class Requests:
    """Several requests of one layer: each with a history of its own, read by this layer's cache."""

    def __init__(self, shape: dict[str, object], counts: list[int], seed: int) -> None:
        torch.manual_seed(seed)
        config = CloverConfig(**SHAPE, **shape)
        self.layer = GatedDeltaNet(config)
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        self.rows = Rows("block", tuple(counts))
        self.x = torch.randn(sum(counts), config.hidden_size)
        self.caches = []
        for _ in counts:
            cache = StateLayer()
            self.layer(torch.randn(1, HISTORY, config.hidden_size), Layout(HISTORY), cache, True)
            self.caches.append(cache)
        layer = self.layer
        self.heads = layer.heads
        self.conv = layer.conv1d.weight[:, 0]
        self.mixed = self.rows.pad(layer.in_proj_qkv(self.x))
        self.mask = self.rows.mask(self.x.device)
        self.tails = torch.cat([c.tail for c in self.caches if c.tail is not None])
        self.states = torch.cat([c.state for c in self.caches if c.state is not None])

    @property
    def memory(self) -> block.Memory:
        return block.Memory(self.tails, self.states)

    def gates(self) -> block.Gates:
        layer, x = self.layer, self.x
        found = block.gates(layer.in_proj_a(x), layer.in_proj_b(x), layer.dt_bias, layer.A_log)
        return block.Gates(*(self.rows.pad(gate) for gate in found))

    def finish(self, heads: Tensor) -> Tensor:
        """Head outputs [N, M, Hv, V] through the output norm and projection: [rows, hidden]."""
        flat = self.rows.flatten(heads)
        z = self.layer.in_proj_z(self.x).view_as(flat)
        out: Tensor = self.layer.out_proj(self.layer.norm(flat, z).flatten(1))
        return out

    def alone(self, clean: bool) -> Tensor:
        """What the model's own layer computes, one request at a time: [rows, hidden]."""
        outs = []
        for x, cache in zip(self.rows.split(self.x), self.caches, strict=True):
            layout = Layout(len(x)) if clean else Layout(0, 1, len(x))
            outs.append(self.layer(x[None], layout, cache, clean)[0])
        return torch.cat(outs)


counts = st.lists(st.integers(1, 9), min_size=1, max_size=4)
shapes = st.sampled_from([DENSE, MOE])


@settings(max_examples=25, deadline=None)
@given(shapes, counts, st.integers(0, 99))
@torch.no_grad()
def test_block_rows_equal_the_models(
    shape: dict[str, object], counts: list[int], seed: int
) -> None:
    r = Requests(shape, counts, seed)
    history = r.layer.history
    unit = block.HistoryUnit(r.rows.pad(history.score(r.x)), history.calibration, history.scale)
    weights = block.Convolution(r.conv, r.layer.conv1d.right)
    out = block.block_rows(r.mixed, r.memory, weights, unit, r.heads, r.mask)
    torch.testing.assert_close(r.finish(out), r.alone(clean=False), rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(shapes, counts, st.integers(0, 99), st.data())
@torch.no_grad()
def test_clean_rows_equal_the_models_and_keep_any_prefix(
    shape: dict[str, object], counts: list[int], seed: int, data: st.DataObject
) -> None:
    r = Requests(shape, counts, seed)
    kept = [data.draw(st.integers(0, count)) for count in counts]
    before = r.tails.clone(), r.states.clone()
    inputs = torch.cat([r.tails, r.mixed], dim=1)
    done = block.clean_rows(inputs, r.states, r.conv, r.gates(), r.heads, 16)
    tails, states = done.after(kept)
    torch.testing.assert_close(r.finish(done.out), r.alone(clean=True), rtol=1e-4, atol=1e-5)
    for cache, count, tail, state in zip(r.caches, kept, tails, states, strict=True):
        cache.keep(count)
        assert cache.tail is not None and cache.state is not None
        torch.testing.assert_close(tail[None], cache.tail, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(state[None], cache.state, rtol=1e-4, atol=1e-5)
    assert torch.equal(before[0], r.tails) and torch.equal(before[1], r.states)


def test_padding_and_flattening_are_inverse() -> None:
    rows = Rows("clean", (2, 1, 3))
    flat = torch.arange(12.0).view(6, 2) + 1
    padded = rows.pad(flat)
    assert padded.shape == (3, 3, 2)
    assert padded[1, 1:].eq(0).all() and padded[0, 2].eq(0).all()
    assert torch.equal(rows.flatten(padded), flat)
    assert [len(part) for part in rows.split(flat)] == [2, 1, 3]


def test_rows_are_active_inside_their_pass_only() -> None:
    rows = Rows("block", (4,))
    with pytest.raises(RuntimeError, match="stop"), using(rows):
        assert active() is rows
        raise RuntimeError("stop")
    assert active() is None
