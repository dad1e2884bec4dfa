"""Block rows (and clean rows) against the slow reference of `reference.py`, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.engine.layers import hybrid, layer_parts
from torch import Tensor

from clover_engine.checkpoint.weights import load_model, save_model
from clover_engine.model import Cache, Clover, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = 1e-9
VOCABULARY = 11
Lively = Callable[..., None]
slow = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


def weights_of(model: Clover, without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        name: tensor.detach().numpy()
        for name, tensor in model.state_dict().items()
        if not any(part in name for part in without)
    }


def hybrid_config(layers: str = "gaga", **changes: Any) -> CloverConfig:
    values: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "intermediate_size": 16,
        "partial_rotary_factor": 0.5,
        "norm_unit_offset": True,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 5,
        "shared_expert_intermediate_size": 7,
    }
    return hybrid(layers, **(values | changes))


def make(config: CloverConfig, lively: Lively, seed: int = 0) -> Clover:
    torch.manual_seed(seed)
    model = Clover(config).double().eval()
    lively(model, seed)
    return model


def ids(*shape: int, seed: int = 0, mask: bool = False) -> Tensor:
    """Random tokens; with `mask`, about a third of them are [MASK]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-5 if mask else 0, VOCABULARY, shape, generator=generator).clamp(min=-1)


@st.composite
def configs(draw: st.DrawFn) -> CloverConfig:
    kv_heads = draw(st.integers(1, 2))
    return hybrid_config(
        draw(st.text("ga", min_size=1, max_size=3)),
        hidden_size=draw(st.sampled_from([6, 10])),
        num_attention_heads=kv_heads * draw(st.integers(1, 2)),
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 8])),
        rope_theta=draw(st.sampled_from([100.0, 10_000.0])),
        num_experts=draw(st.sampled_from([0, 3])),
        shared_expert_intermediate_size=draw(st.sampled_from([0, 3])),
        norm_topk_prob=draw(st.booleans()),
        **layer_parts(draw),
    )


@dataclass(frozen=True)
class Pass:
    """A cached history in chunks, then one pass of clean rows and blocks."""

    chunks: tuple[int, ...]
    clean: int
    blocks: int
    size: int
    starts: tuple[int, ...] | None
    """Of every block, how many of this pass's clean rows it reads."""
    batch: int
    update: bool

    @property
    def history(self) -> int:
        return sum(self.chunks)


@st.composite
def passes(draw: st.DrawFn, aligned: bool) -> Pass:
    chunks = tuple(draw(st.lists(st.integers(1, 7), max_size=2)))
    clean, size = draw(st.integers(0, 9)), draw(st.integers(1, 5))
    blocks = draw(st.integers(0 if clean else 1, 3))
    starts = None
    if blocks and draw(st.booleans()):
        places = [*range(0, clean, size), clean] if aligned else list(range(clean + 1))
        starts = tuple(draw(st.sampled_from(places)) for _ in range(blocks))
    event(f"starts {'given' if starts else 'at the end'}, cached {bool(chunks)}")
    return Pass(chunks, clean, blocks, size, starts, draw(st.integers(1, 2)), draw(st.booleans()))


def check(model: Clover, reference: ModuleType, run: Pass, without: tuple[str, ...] = ()) -> None:
    """One pass of the model equals the reference, row by row."""
    total = run.history + run.clean
    tokens = ids(run.batch, total, seed=1)
    noisy = ids(run.batch, run.blocks, run.size, seed=2, mask=model.config.mask_embedding)
    starts = run.starts and tuple(run.history + start for start in run.starts)
    with torch.no_grad():
        cache, at = Cache(model.config), 0
        for rows in run.chunks:
            model(tokens[:, at : at + rows], cache=cache)
            at += rows
        got_clean, got_blocks = model(
            tokens[:, at:] if run.clean else None,
            noisy if run.blocks else None,
            cache if run.history else None,
            update=run.update,
            starts=starts,
        )
    assert got_clean.shape == (run.batch, run.clean, model.config.hidden_size)
    for n in range(run.batch):
        blocks = [(starts[b] if starts else total, noisy[n, b].tolist()) for b in range(run.blocks)]
        clean, block_rows = reference.run(
            model.config, weights_of(model, without), tokens[n].tolist(), blocks
        )
        for got, row in zip(got_clean[n], clean[run.history :], strict=True):
            assert abs(got.numpy() - row).max() <= EXACT
        if run.blocks:
            for got_rows, rows in zip(got_blocks[n], block_rows, strict=True):
                for got, row in zip(got_rows, rows, strict=True):
                    assert abs(got.numpy() - row).max() <= EXACT


@slow
@given(data=st.data(), seed=st.integers(0, 1000))
def test_every_pass_equals_the_reference(
    data: st.DataObject, seed: int, reference: ModuleType, lively: Lively
) -> None:
    config = data.draw(configs())
    run = data.draw(passes(aligned=config.hybrid))
    check(make(config, lively, seed), reference, run)


CASES = {
    "no history": Pass((), 0, 2, 4, None, 1, True),
    "fused": Pass((), 7, 1, 4, None, 2, True),
    "fused after a cache": Pass((3, 6), 5, 2, 3, None, 1, True),
    "only blocks after a cache": Pass((6,), 0, 2, 3, None, 1, True),
    "shorter history than the convolution": Pass((2,), 0, 1, 4, None, 1, True),
    "training": Pass((), 12, 3, 4, (0, 4, 8), 1, True),
    "training, rest without a block": Pass((), 11, 2, 4, (4, 8), 1, True),
    "training after a cache": Pass((5,), 8, 2, 4, (4, 0), 1, True),
    "starts at an odd end": Pass((), 6, 2, 4, (4, 6), 1, True),
    "starts at an even end": Pass((), 8, 2, 4, (8, 0), 1, True),
    "a long pass": Pass((), 70, 1, 2, None, 1, True),
}


@pytest.mark.parametrize("run", CASES.values(), ids=list(CASES))
def test_named_passes_equal_the_reference(run: Pass, reference: ModuleType, lively: Lively) -> None:
    check(make(hybrid_config("ga"), lively), reference, run)


def test_a_mask_from_the_vocabulary_equals_the_reference(
    reference: ModuleType, lively: Lively
) -> None:
    config = hybrid_config("ga", mask_embedding=False, mask_token_id=3)
    model = make(config, lively)
    assert model.mask_id == 3
    check(model, reference, Pass((4,), 3, 1, 4, None, 1, True))


# ---- what the new parameters do ---------------------------------------------------------------


@pytest.mark.parametrize("run", [CASES["fused"], CASES["training"]], ids=["fused", "training"])
def test_at_initial_values_the_new_terms_change_nothing(
    run: Pass, reference: ModuleType, lively: Lively
) -> None:
    torch.manual_seed(0)
    model = Clover(hybrid_config("gag")).double()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lively(model)
    new = (".history.", ".conv1d.right")
    kept = {name: tensor for name, tensor in state.items() if any(part in name for part in new)}
    assert kept
    model.load_state_dict(kept, strict=False)
    check(model, reference, run, without=new)


@pytest.mark.parametrize("part", ["history.score", "history.calibration", "conv1d.right"])
def test_every_new_term_counts_when_it_is_trained(
    part: str, reference: ModuleType, lively: Lively
) -> None:
    model = make(hybrid_config("ga"), lively)
    run = Pass((6,), 0, 1, 3, None, 1, True)
    with pytest.raises(AssertionError):
        check(model, reference, run, without=(part,))


def test_calibration_is_for_the_block_size(reference: ModuleType, lively: Lively) -> None:
    """γ·log B is nothing for a block of one row, and something for a block of two."""
    model = make(hybrid_config("ga"), lively)
    check(model, reference, Pass((6,), 0, 1, 1, None, 1, True), without=("calibration",))
    with pytest.raises(AssertionError):
        check(model, reference, Pass((6,), 0, 1, 2, None, 1, True), without=("calibration",))


# ---- who sees whom ----------------------------------------------------------------------------


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("layers", ["gaga", "g", "a"])
def test_clean_rows_do_not_notice_block_rows(layers: str, lively: Lively) -> None:
    model = make(hybrid_config(layers), lively)
    tokens = ids(2, 12)
    with torch.no_grad():
        alone, nothing = model(tokens)
        fused, _ = model(tokens, ids(2, 2, 4, seed=1, mask=True))
        other, _ = model(tokens, ids(2, 2, 4, seed=2, mask=True))
        training, _ = model(tokens, ids(2, 3, 4, seed=3, mask=True), starts=(0, 4, 8))
    assert nothing.numel() == 0
    assert difference(alone, fused) <= 1e-12
    assert difference(fused, other) <= 1e-12
    assert difference(alone, training) <= 1e-12


@pytest.mark.parametrize("layers", ["gaga", "g", "a"])
def test_block_rows_do_not_see_later_clean_rows(layers: str, lively: Lively) -> None:
    model = make(hybrid_config(layers), lively)
    tokens, noisy = ids(1, 12), ids(1, 3, 4, seed=1, mask=True)
    later = tokens.clone()
    later[:, 8:] = (later[:, 8:] + 1) % VOCABULARY
    with torch.no_grad():
        _, before = model(tokens, noisy, starts=(0, 4, 8))
        _, after = model(later, noisy, starts=(0, 4, 8))
        _, at_end = model(tokens, noisy)
        _, at_later_end = model(later, noisy)
    assert difference(before, after) <= 1e-12
    assert difference(at_end, at_later_end) > 1e-3


@pytest.mark.parametrize("layers", ["gaga", "g", "a"])
def test_every_row_of_a_block_sees_every_other_and_no_other_block(
    layers: str, lively: Lively
) -> None:
    model = make(hybrid_config(layers), lively)
    tokens, noisy = ids(1, 6), ids(1, 2, 6, seed=1)
    with torch.no_grad():
        _, before = model(tokens, noisy)
        for changed in range(6):
            other = noisy.clone()
            other[0, 0, changed] = -1
            _, after = model(tokens, other)
            moved = (after - before).abs().amax(dim=-1)[0]  # [block, row]
            assert (moved[0] > 1e-6).all(), f"row {changed} is not seen by all: {moved[0]}"
            assert moved[1].max() <= 1e-12


# ---- starts that a pass cannot serve ----------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "starts"),
    [
        ("ga", (4, 9)),  # before the end of the cached history
        ("ga", (10, 19)),  # after the end of the clean rows
        ("ga", (10, 12)),  # between the places whose state is at hand
        ("ga", (10,)),  # one for two blocks
        ("a", (-1, 9)),
        ("a", (10, 19)),
    ],
)
def test_starts_out_of_reach_are_refused(
    layers: str, starts: tuple[int, ...], lively: Lively
) -> None:
    model = make(hybrid_config(layers), lively)
    cache = Cache(model.config)
    with torch.no_grad():
        model(ids(1, 10), cache=cache)
        with pytest.raises(ValueError, match="start"):
            model(ids(1, 8), ids(1, 2, 4), cache, starts=starts)
    assert cache.length == 10


# ---- a base checkpoint ------------------------------------------------------------------------


@pytest.mark.parametrize("layers", ["gaga", "a"])
def test_new_parameters_leave_clean_rows_bit_for_bit(
    layers: str, lively: Lively, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    base = Clover(hybrid_config(layers)).eval()
    lively(base)
    save_model(base, tmp_path)
    model = load_model(tmp_path)
    for part in (".history.", ".conv1d.right", "mask_embedding"):
        lively(model, 1, only=part, by=3.0)
    tokens = ids(2, 40)
    with torch.no_grad():
        assert torch.equal(model(tokens)[0], base(tokens)[0])
        caches = Cache(base.config), Cache(base.config)
        for at in range(0, 40, 8):
            rows = tokens[:, at : at + 8]
            assert torch.equal(model(rows, cache=caches[0])[0], base(rows, cache=caches[1])[0])
        blocks = torch.tensor([[[4, -1, 3, -1]]]).expand(2, -1, -1)
        moved = difference(model(None, blocks, caches[0])[1], base(None, blocks, caches[1])[1])
    assert moved > 1e-3
