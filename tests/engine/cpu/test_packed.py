"""Packed 4-bit steps against the model's own layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import Quant, write_gguf
from torch import Tensor

from clover_engine.checkpoint.convert import convert
from clover_engine.checkpoint.weights import load_model
from clover_engine.cpu import packed as packed_module
from clover_engine.cpu.packed import GROUP, MAX_ROWS, PackedStep, fits, load_packed
from clover_engine.model import Cache, Clover

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are Q4_1's, with an adapter."""
    folder = tmp_path_factory.mktemp("packed")
    write_gguf(folder / "m.gguf", Quant.Q4_1)
    convert(folder / "m.gguf", folder / "clover", adapter_rank=2)
    return folder / "clover"


class _Exact:
    """The product without rounding, so that only the step's own logic differs."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weight = torch.cat([w.float() for w in weights])

    def __call__(self, x: Tensor) -> Tensor:
        return x.float() @ self.weight.T


@pytest.fixture
def exact(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Clover, Clover]:
    """The model in float32 without and with the fast path, both computing exactly."""
    monkeypatch.setattr(packed_module, "_Packed", _Exact)
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.float)
    plain, fast = load_model(checkpoint), load_model(checkpoint)
    fast.fused = PackedStep(fast)
    return plain, fast


def ids(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 259, (1, count), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 2, MAX_ROWS, MAX_ROWS + 1])
def test_steps_are_the_models_own(exact: tuple[Clover, Clover], rows: int) -> None:
    """Hidden states and what they leave in the cache, from an empty one and a filled one on."""
    caches = [Cache(model.config) for model in exact]
    for part in (ids(rows, 1), ids(20, 2), ids(rows, 3), ids(1, 4)):
        wanted, got = (m(part, cache=c)[0] for m, c in zip(exact, caches, strict=True))
        assert float((wanted - got).abs().max()) <= 2e-4
        assert caches[0].length == caches[1].length
    for own, other in zip(caches[0].layers, caches[1].layers, strict=True):
        for kept, other_kept in zip(own.view(), other.view(), strict=True):  # type: ignore[union-attr]
            assert float((kept - other_kept).abs().max()) <= 2e-4


@torch.inference_mode()
def test_a_step_without_update_and_a_partial_acceptance_leave_the_cache_right(
    exact: tuple[Clover, Clover],
) -> None:
    caches = [Cache(model.config) for model in exact]
    found = []
    for model, cache in zip(exact, caches, strict=True):
        model(ids(10), cache=cache)
        model(ids(3, 5), cache=cache, update=False)
        model(ids(5, 6), cache=cache)
        cache.keep(2)
        found.append(model(ids(2, 7), cache=cache)[0])
    assert caches[1].length == 14
    assert float((found[0] - found[1]).abs().max()) <= 2e-4


@torch.inference_mode()
def test_a_block_rides_along_without_changing_the_clean_rows(exact: tuple[Clover, Clover]) -> None:
    block = torch.full((1, 1, 4), -1)
    found, alone = [], []
    for model in exact:
        cache = Cache(model.config)
        model(ids(6), cache=cache)
        found.append(model(ids(2), block, cache))
        assert cache.length == 8
        found.append(model(ids(1, 3), cache=cache))
        cache = Cache(model.config)
        model(ids(6), cache=cache)
        alone.append(model(ids(2), cache=cache)[0])
    for wanted, got in zip(found[:2], found[2:], strict=True):
        for rows, other in zip(wanted, got, strict=True):
            assert torch.allclose(rows, other, atol=2e-4)
    assert torch.equal(found[2][0], alone[1])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), out=st.sampled_from([16, 48]), groups=st.integers(1, 3),
       scale=st.floats(1e-3, 1e3))  # fmt: skip
def test_a_product_rounds_each_group_by_half_a_level(
    seed: int, out: int, groups: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, groups * GROUP, generator=generator) * scale
    product = packed_module._Packed([weight])
    parts = weight.view(out, groups, GROUP)
    level = (parts.amax(-1) - parts.amin(-1)) / 15
    # Half a level, and what bfloat16 makes of the scale, the offset and the sum.
    bound = (0.5 * level + 2**-7 * (parts.abs().amax(-1) + 8 * level))[..., None]
    got = product(torch.eye(groups * GROUP, dtype=torch.bfloat16)).T.float().view_as(parts)
    assert bool(((got - parts).abs() <= bound).all())


@torch.inference_mode()
def test_a_q4_1_model_keeps_its_best_tokens(checkpoint: Path) -> None:
    """The levels are the file's own: what differs is bfloat16."""
    plain, fast = load_model(checkpoint), load_packed(checkpoint)
    assert isinstance(fast.fused, PackedStep)
    caches = Cache(plain.config), Cache(fast.config)
    tokens, gaps = ids(40)[0].tolist(), []
    for token in tokens:
        one = torch.tensor([[token]])
        wanted, got = (
            model.head(model(one, cache=cache)[0])[0, 0].float()
            for model, cache in zip((plain, fast), caches, strict=True)
        )
        gaps.append(float((wanted - got).abs().mean() / wanted.std()))
    assert sorted(gaps)[len(gaps) // 2] < 0.05


def test_other_models_are_refused(checkpoint: Path, lively: Callable[..., None]) -> None:
    model = load_model(checkpoint)
    assert fits(model)
    for change in ({"qk_norm": True}, {"output_gate": True}, {"attention_bias": True},
                   {"partial_rotary_factor": 0.5}):  # fmt: skip
        other = Clover(model.config.with_(**change))
        assert not fits(other)
        with pytest.raises(ValueError, match="Llama-shaped"):
            PackedStep(other)
