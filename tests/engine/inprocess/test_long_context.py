"""Long histories with tiny weights: chunked prefill, memory as planned, rows at 128K positions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clover_engine.capacity.sizes import kv_bytes_per_token, state_bytes
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.model.cache import KVLayer, StateLayer

pytestmark = pytest.mark.usefixtures("one_thread")
FULL = 131072


def network(seed: int = 0) -> Clover:
    torch.manual_seed(seed)
    model = Clover(
        CloverConfig(
            vocab_size=64, hidden_size=16,
            layer_types=("linear_attention", "full_attention", "linear_attention"),
            num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24,
            output_gate=True, qk_norm=True, linear_num_key_heads=1, linear_num_value_heads=2,
            linear_key_head_dim=8, linear_value_head_dim=8, max_position_embeddings=FULL,
            mask_token_id=1,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def ids(count: int, seed: int = 0) -> Tensor:
    return torch.randint(2, 64, (1, count), generator=torch.Generator().manual_seed(seed))


def prefill(model: Clover, tokens: Tensor, chunk: int) -> tuple[Cache, Tensor]:
    """The cache and the last row [hidden]."""
    cache = Cache(model.config)
    for at in range(0, tokens.shape[1], chunk):
        hidden, _ = model(tokens[:, at : at + chunk], cache=cache)
    return cache, hidden[0, -1]


def old_cache(model: Clover, length: int) -> Cache:
    """A cache as `length` random tokens might have left it, without running them."""
    generator = torch.Generator().manual_seed(7)
    config, cache = model.config, Cache(model.config)
    channels = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    channels += config.linear_num_value_heads * config.linear_value_head_dim
    for layer in cache.layers:
        if isinstance(layer, KVLayer):
            shape = (1, config.num_key_value_heads, length, config.head_dim)
            layer.append(*(torch.randn(shape, generator=generator) for _ in range(2)))
        else:
            tail = torch.randn(
                (1, config.linear_conv_kernel_dim - 1, channels), generator=generator
            )
            heads = (config.linear_num_value_heads, config.linear_key_head_dim)
            state = torch.randn((1, *heads, config.linear_value_head_dim), generator=generator)
            layer.advance(tail, 0.3 * state, {})
    cache.advanced(length)
    return cache


@given(st.integers(1, 700), st.integers(65, 900))
@settings(max_examples=8, deadline=None)
@torch.inference_mode()
def test_chunks_of_any_size_leave_the_same_memory(first: int, second: int) -> None:
    model, tokens = network(), ids(1800)
    one, last = prefill(model, tokens, first + 64)
    two, other = prefill(model, tokens, second)
    torch.testing.assert_close(last, other, atol=2e-4, rtol=1e-3)
    for a, b in zip(one.layers, two.layers, strict=True):
        if isinstance(a, StateLayer) and isinstance(b, StateLayer):
            torch.testing.assert_close(a.state, b.state, atol=2e-4, rtol=1e-3)
        elif isinstance(a, KVLayer) and isinstance(b, KVLayer):
            torch.testing.assert_close(a.view()[0], b.view()[0], atol=2e-4, rtol=1e-3)


@torch.inference_mode()
def test_memory_is_what_the_planner_says() -> None:
    model = network()
    wide = model.config.with_(layer_types=("linear_attention", "linear_attention"))
    assert kv_bytes_per_token(wide) == 0
    for length in (4096, 16384):
        cache, _ = prefill(model, ids(length), 512)
        planned = length * kv_bytes_per_token(model.config, 4) + state_bytes(model.config, 4)
        kv = [layer for layer in cache.layers if isinstance(layer, KVLayer)]
        used = sum(2 * 4 * layer.view()[0].numel() for layer in kv)
        used += sum(
            4 * (la.tail.numel() + la.state.numel())
            for la in cache.layers
            if isinstance(la, StateLayer) and la.tail is not None and la.state is not None
        )
        assert used == pytest.approx(planned, rel=0.01)
        assert cache.nbytes() <= 2.1 * planned, "buffers hold at most twice what is used"


def test_appending_copies_each_row_a_bounded_number_of_times() -> None:
    layer, moved, buffer = KVLayer(), 0, 0
    row = torch.zeros(1, 1, 128, 8)
    for _ in range(FULL // 128):
        before = layer.length
        layer.append(row, row)
        assert layer.k is not None
        if layer.k.data_ptr() != buffer:
            buffer, moved = layer.k.data_ptr(), moved + before
    assert layer.length == FULL
    assert moved <= 2 * FULL


@torch.inference_mode()
def test_rows_at_the_end_of_128k_do_not_depend_on_how_they_come() -> None:
    model, tokens = network(), ids(40, seed=3)
    whole = model(tokens, cache=old_cache(model, FULL - 64))[0][0]
    cache = old_cache(model, FULL - 64)
    rows = [model(tokens[:, i : i + 1], cache=cache)[0][0] for i in range(40)]
    torch.testing.assert_close(torch.cat(rows), whole, atol=1e-4, rtol=1e-3)
    assert cache.length == FULL - 24


@given(st.integers(0, 24), st.integers(1, 16))
@settings(max_examples=6, deadline=None)
@torch.inference_mode()
def test_rolling_back_at_128k_is_exact(kept: int, size: int) -> None:
    model, tokens = network(), ids(24, seed=5)
    cache = old_cache(model, FULL - 64)
    snapshot = cache.snapshot()
    model(tokens, torch.full((1, 1, size), 1), cache)
    cache.keep(kept)
    fresh = old_cache(model, FULL - 64)
    if kept:
        model(tokens[:, :kept], cache=fresh)
    block = torch.full((1, 1, size), 1)
    torch.testing.assert_close(
        model(None, block, cache)[1], model(None, block, fresh)[1], atol=1e-4, rtol=1e-3
    )
    cache.restore(snapshot)
    again = model(None, block, old_cache(model, FULL - 64))[1]
    torch.testing.assert_close(model(None, block, cache)[1], again, atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_a_blocks_rows_read_all_of_128k() -> None:
    """What stands at the very start of the history still reaches a block at its end."""
    model, block = network(), torch.full((1, 1, 8), 1)
    cache = old_cache(model, FULL - 64)
    before = model(None, block, cache)[1]
    layer = cache.layers[1]
    assert isinstance(layer, KVLayer) and layer.v is not None
    layer.v[:, :, 0] += 1e4
    assert not torch.allclose(before, model(None, block, cache)[1])
