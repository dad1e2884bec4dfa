"""The fast path computes what the model computes, whatever the shape, the rows and the cache."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.layers import VOCABULARY, hybrid, layer_parts
from torch import Tensor

from clover_engine.api import InfillRequest
from clover_engine.cpu.accelerate import accelerate, fits
from clover_engine.cpu.fused import Fused
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.worker.local import checkpoint_path

pytestmark = pytest.mark.usefixtures("one_thread")
CLOSE = 1e-5
Lively = Callable[..., None]
slow = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=True,
)


def config(layers: str = "ga", **changes: Any) -> CloverConfig:
    return hybrid(layers, **({"intermediate_size": 20} | changes))


@st.composite
def configs(draw: st.DrawFn) -> CloverConfig:
    """Our own hybrids and Llama- or Qwen-shaped models, none of their sizes a multiple of much."""
    kv_heads = draw(st.integers(1, 2))
    return config(
        draw(st.text("ga", min_size=1, max_size=3)),
        hidden_size=draw(st.sampled_from([6, 10, 64])),
        intermediate_size=draw(st.sampled_from([5, 64, 70])),
        num_attention_heads=kv_heads * draw(st.integers(1, 3)),
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 12, 64])),
        mask_embedding=draw(st.booleans()),
        mask_token_id=draw(st.sampled_from([None, 3])),
        **layer_parts(draw),
    )


def pair(
    shape: CloverConfig, lively: Lively, narrow: bool = False, seed: int = 0
) -> tuple[Clover, Clover]:
    """The same weights twice, the second with the fast path; `narrow` ones bfloat16 can hold.
    Attention stays soft enough for rounding errors to stay small."""
    torch.manual_seed(seed)
    plain = Clover(shape).eval()
    lively(plain, seed, by=0.1)
    if narrow:
        plain = plain.to(torch.bfloat16).to(torch.float32)
    fast = Clover(shape).eval()
    fast.load_state_dict(plain.state_dict())
    assert fits(fast)
    fast.fused = Fused(fast)
    return plain, fast


def in_double(model: Clover) -> Clover:
    exact = Clover(model.config).eval()
    exact.load_state_dict(model.state_dict())
    return exact.double()


@dataclass(frozen=True)
class Step:
    """A pass of clean rows and blocks, and how many of the rows are kept afterwards."""

    clean: int
    blocks: int
    size: int
    kept: int
    update: bool
    seed: int

    def ids(self, model: Clover, batch: int = 1) -> tuple[Tensor | None, Tensor | None]:
        generator = torch.Generator().manual_seed(self.seed)
        clean = torch.randint(0, VOCABULARY, (batch, self.clean), generator=generator)
        shape = (batch, self.blocks, self.size)
        blocks = torch.randint(0, VOCABULARY, shape, generator=generator)
        blocks[torch.rand(shape, generator=generator) < 0.5] = max(model.mask_id, 0)
        if model.mask_id < 0 and model.config.mask_embedding:
            blocks[torch.rand(shape, generator=generator) < 0.5] = -1
        return (clean if self.clean else None), (blocks if self.blocks else None)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    clean = draw(st.one_of(st.integers(0, 8), st.sampled_from([13, 64, 65, 70])))
    blocks = draw(st.integers(0 if clean else 1, 2))
    kept = draw(st.integers(0, clean)) if clean <= 64 else clean
    return Step(
        clean, blocks, draw(st.integers(1, 9)), kept, draw(st.booleans()), draw(st.integers(0, 99))
    )


def assert_close(got: Tensor, wanted: Tensor, exact: Tensor) -> None:
    """`got` is as `wanted` is, and its rounding errors are of the same order.

    Random weights can be ill-conditioned: what float32 loses there shows in `wanted` as well, but
    one of the two may be lucky: a factor of 10.04 was seen once, so the draws are always the same.
    """
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.numel():
        scale = max(1.0, float(exact.abs().max()))
        allowed = CLOSE * scale + 10 * float((wanted - exact).abs().max())
        assert float((got - exact).abs().max()) <= allowed


def run(model: Clover, cache: Cache | None, step: Step, batch: int = 1) -> list[Tensor]:
    clean, blocks = step.ids(model, batch)
    with torch.no_grad():
        hidden = model(clean, blocks, cache, update=step.update)
        return [*hidden, *(model.head(rows) for rows in hidden)]


def kept(cache: Cache, step: Step) -> None:
    if step.update and step.clean:
        cache.keep(step.kept)


@slow
@given(
    shape=configs(),
    narrow=st.booleans(),
    passes=st.lists(steps(), min_size=1, max_size=4),
    switch=st.integers(0, 15),
)
def test_any_passes_agree(
    shape: CloverConfig, narrow: bool, passes: list[Step], switch: int, lively: Lively
) -> None:
    """Also where the two take turns on one cache: bit i of `switch` says who runs pass i there."""
    plain, fast = pair(shape, lively, narrow)
    assert fast.fused is not None and (fast.fused.output.dtype == "uint16") == narrow
    caches = [Cache(shape) for _ in range(4)]
    exact = in_double(plain)
    for i, step in enumerate(passes):
        models = exact, plain, fast, fast if switch >> i & 1 else plain
        truth, wanted, *others = (
            run(model, cache, step) for model, cache in zip(models, caches, strict=True)
        )
        for got in others:
            for parts in zip(got, wanted, truth, strict=True):
                assert_close(*parts)
        for cache in caches:
            kept(cache, step)
        assert len({cache.length for cache in caches}) == 1


@slow
@given(shape=configs(), step=steps(), history=st.integers(0, 5), batch=st.integers(2, 3))
def test_batches_agree(
    shape: CloverConfig, step: Step, history: int, batch: int, lively: Lively
) -> None:
    """A batch over the history of one sequence, over its own, and over none."""
    plain, fast = pair(shape, lively)
    reading = Step(step.clean, step.blocks, step.size, step.clean, False, step.seed)
    alone, together = Step(history, 0, 0, history, True, 1), Step(3, 0, 0, 3, True, 2)
    results = []
    for model in (fast, plain, in_double(plain)):
        shared, own = Cache(shape), Cache(shape)
        if history:
            run(model, shared, alone)
        run(model, own, together, batch)
        found = [*run(model, shared, reading, batch), *run(model, None, step, batch)]
        found += run(model, own, step, batch)
        kept(own, step)
        results.append(found + run(model, own, together, batch))
    for parts in zip(*results, strict=True):
        assert_close(*parts)


@slow
@given(rows=st.integers(65, 200), history=st.integers(0, 3), threads=st.integers(2, 4))
def test_long_passes_agree_on_several_threads(
    rows: int, history: int, threads: int, lively: Lively
) -> None:
    plain, fast = pair(config("gag"), lively)
    fast.fused = Fused(fast, threads)
    models = fast, plain, in_double(plain)
    caches = [Cache(plain.config) for _ in models]
    passes = [Step(history, 0, 0, history, True, 1)] if history else []
    passes += [Step(rows, 0, 0, rows, True, 2), Step(2, 1, 4, 1, True, 3)]
    for step in passes:
        found = (run(model, cache, step) for model, cache in zip(models, caches, strict=True))
        for parts in zip(*found, strict=True):
            assert_close(*parts)
        for cache in caches:
            kept(cache, step)


def test_snapshots_come_back(lively: Lively) -> None:
    plain, fast = pair(config("gag"), lively)
    found = []
    for model in (fast, plain, in_double(plain)):
        cache = Cache(plain.config)
        run(model, cache, Step(5, 0, 0, 5, True, 1))
        mark = cache.snapshot()
        run(model, cache, Step(7, 1, 3, 4, True, 2))
        cache.keep(4)
        cache.restore(mark)
        found.append(run(model, cache, Step(2, 1, 4, 2, True, 3)))
    for parts in zip(*found, strict=True):
        assert_close(*parts)


def test_the_shipped_model_decodes_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy, in real code, by plain decoding and with drafts."""
    fast = EmbeddedEngine.load(checkpoint_path(), 1)
    monkeypatch.setenv("CLOVER_FUSED", "0")
    plain = EmbeddedEngine.load(checkpoint_path(), 1)
    assert fast.model.fused is not None and plain.model.fused is None
    source = inspect.getsource(textwrap)
    for at in range(2000, 12_000, 2000):
        request = InfillRequest(source[at - 600 : at], source[at + 40 : at + 200], max_tokens=16)
        plainly = replace(request, mode="ar")
        wanted = plain.infill(plainly).choices[0].text
        assert fast.infill(plainly).choices[0].text == wanted
        assert fast.infill(replace(request, mode="speculative")).choices[0].text == wanted


def test_ids_outside_the_vocabulary_are_refused(lively: Lively) -> None:
    _, fast = pair(config(mask_embedding=False), lively)
    for bad in (-1, VOCABULARY, 2**40):
        with torch.no_grad(), pytest.raises(IndexError, match="token ids must be 0..36"):
            fast(torch.tensor([[1, bad]]))


def test_gradients_take_the_plain_path(lively: Lively) -> None:
    _, fast = pair(config(), lively)
    hidden, _ = fast(torch.tensor([[1, 2, 3]]))
    hidden.sum().backward()
    assert fast.model.embed_tokens.weight.grad is not None


@pytest.mark.parametrize("kind", ["experts", "double", "bfloat16", "hooked", "replaced"])
def test_only_what_fits_is_accelerated(kind: str, lively: Lively) -> None:
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4}
    model = Clover(config(**(experts if kind == "experts" else {}))).eval()
    if kind in ("double", "bfloat16"):
        model = model.to(torch.float64 if kind == "double" else torch.bfloat16)
    if kind == "hooked":
        model.model.layers[0].mlp.down_proj.register_forward_hook(lambda *_: None)
    if kind == "replaced":
        model.model.layers[0].mlp.down_proj = torch.nn.Bilinear(2, 2, 2)
    assert not fits(model)
    assert accelerate(model) is None


def test_the_environment_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOVER_FUSED", "0")
    assert accelerate(Clover(config()).eval()) is None


def test_it_comes_on_in_the_background() -> None:
    model = Clover(config()).eval()
    thread = accelerate(model, 2)
    assert thread is not None
    thread.join()
    assert model.fused is not None


def test_a_failure_leaves_the_plain_path_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Fused) -> None:
        raise RuntimeError("no room\nfor code")

    monkeypatch.setattr(Fused, "warm", broken)
    model = Clover(config()).eval()
    thread = accelerate(model)
    assert thread is not None
    thread.join()
    assert model.fused is None
    assert "the fast path is off (RuntimeError: no room for code)" in caplog.text
    assert model(torch.tensor([[1]]))[0].shape == (1, 1, 12)
