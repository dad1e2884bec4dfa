"""The cache's law: after any calls it is as if only the tokens that remain had been run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor

from clover_engine.model import Cache, Clover, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
Lively = Callable[..., None]
EXACT = 1e-9
VOCABULARY = 13
LIMIT = 64
"""The longest pass that can be partly undone."""


def config(layers: str) -> CloverConfig:
    kinds = {"g": "linear_attention", "a": "full_attention"}
    values: dict[str, Any] = {"layer_types": tuple(kinds[letter] for letter in layers)}
    return CloverConfig(
        vocab_size=VOCABULARY,
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=8,
        qk_norm=True,
        output_gate=True,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=3,
        linear_value_head_dim=4,
        mask_embedding=True,
        **values,
    )


@pytest.fixture(scope="module", params=["gag", "aa"])
def model(request: pytest.FixtureRequest, lively: Lively) -> Clover:
    torch.manual_seed(0)
    made = Clover(config(request.param)).double().eval()
    lively(made)
    return made


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def ids(rows: int, seed: int = 0, batch: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (batch, rows), generator=generator)


BLOCK = torch.tensor([[[3, -1, -1, 5], [-1, -1, 2, 2]]])
PROBE = torch.tensor([[1, 4, 2]])


def probe(model: Clover, cache: Cache) -> tuple[Tensor, Tensor]:
    """What the next pass would give, clean and block rows; changes nothing."""
    clean, noisy = model(PROBE, BLOCK, cache, update=False)
    alone = model(None, BLOCK, cache)[1]
    return torch.cat([clean.flatten(), noisy.flatten()]), alone


def fresh(model: Clover, tokens: Tensor) -> Cache:
    cache = Cache(model.config)
    if tokens.shape[1]:
        model(tokens, cache=cache)
    return cache


def assert_same(model: Clover, cache: Cache, tokens: Tensor) -> None:
    assert cache.length == tokens.shape[1]
    for got, wanted in zip(probe(model, cache), probe(model, fresh(model, tokens)), strict=True):
        assert float((got - wanted).abs().max()) <= EXACT


def content(cache: Cache) -> list[Tensor]:
    """Copies of everything that the cache holds."""
    kept: list[Tensor] = []
    for layer in cache.layers:
        if hasattr(layer, "length"):
            assert layer.length == cache.length
            kept += [part.clone() for part in layer.view()] if layer.length else []
        else:
            kept += [part.clone() for part in (layer.tail, layer.state) if part is not None]
    return kept


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# ---- any sequence of calls --------------------------------------------------------------------


class CacheMachine(RuleBasedStateMachine):
    """Beside the cache stands a plain list of the tokens that should be in it."""

    model: Clover
    snapshots = Bundle("snapshots")

    @initialize(target=snapshots)
    def start(self) -> Any:
        self.cache = Cache(self.model.config)
        self.tokens: list[int] = []
        self.last = 0
        self.written: list[list[int]] = []
        return multiple()

    @rule(
        rows=st.one_of(st.integers(1, 9), st.sampled_from([LIMIT, LIMIT + 1])),
        seed=st.integers(0, 99),
    )
    def append(self, rows: int, seed: int) -> None:
        new = ids(rows, seed)
        self.model(new, cache=self.cache)
        self.tokens += new[0].tolist()
        self.last = rows

    @precondition(lambda self: 0 < self.last <= LIMIT)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, self.last))
        self.cache.keep(count)
        if count < self.last:
            self.cut(len(self.tokens) - self.last + count)

    @precondition(lambda self: self.last > LIMIT)
    @rule(data=st.data())
    def keep_of_a_long_pass(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, self.last - 1))
        with pytest.raises(ValueError, match="cannot be partly undone"):
            self.cache.keep(count)

    @rule(off=st.sampled_from([-1, 1, 50]))
    def keep_out_of_range(self, off: int) -> None:
        with pytest.raises(ValueError, match="keep"):
            self.cache.keep(-1 if off < 0 else self.last + off)

    @rule()
    def denoise(self) -> None:
        self.model(None, BLOCK, self.cache)

    @rule(target=snapshots)
    def snapshot(self) -> Any:
        """A snapshot, and its tokens; `self.written` learns of later cuts below it."""
        taken = list(self.tokens)
        self.written.append(taken)
        return self.cache.snapshot(), taken

    @rule(pair=snapshots)
    def restore(self, pair: Any) -> None:
        snap, taken = pair
        if any(taken is alive for alive in self.written):
            self.cache.restore(snap)
            self.cut(len(taken))
            assert self.tokens == taken
        else:
            with pytest.raises(ValueError, match="rolled back"):
                self.cache.restore(snap)

    @rule(pair=consumes(snapshots))
    def forget(self, pair: Any) -> None:
        self.written = [alive for alive in self.written if alive is not pair[1]]

    def cut(self, length: int) -> None:
        """Snapshots beyond the cut are void from now on."""
        self.tokens = self.tokens[:length]
        self.written = [taken for taken in self.written if len(taken) <= length]
        self.last = 0

    @invariant()
    def as_if_run_afresh(self) -> None:
        if hasattr(self, "cache"):
            assert_same(self.model, self.cache, torch.tensor([self.tokens], dtype=torch.long))


def test_any_calls_leave_what_a_fresh_run_would(model: Clover) -> None:
    machine = type("Machine", (CacheMachine,), {"model": model})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


# ---- one by one -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 63, 64])
def test_keep_a_part_of_the_longest_pass(model: Clover, count: int) -> None:
    tokens = ids(5 + LIMIT)
    cache = fresh(model, tokens[:, :5])
    model(tokens[:, 5:], cache=cache)
    cache.keep(count)
    assert_same(model, cache, tokens[:, : 5 + count])


def test_keep_a_part_of_the_first_pass(model: Clover) -> None:
    for count in range(4):
        cache = fresh(model, ids(3))
        cache.keep(count)
        assert_same(model, cache, ids(3)[:, :count])


def test_keep_counts_the_last_pass_that_appended(model: Clover) -> None:
    """Denoising and passes without update in between do not count."""
    cache = fresh(model, ids(9))
    model(None, BLOCK, cache)
    model(ids(2, seed=1), None, cache, update=False)
    cache.keep(4)
    assert_same(model, cache, ids(9)[:, :4])


def test_keep_twice_has_nothing_left_to_undo(model: Clover) -> None:
    cache = fresh(model, ids(9))
    cache.keep(4)
    with pytest.raises(ValueError, match="keep"):
        cache.keep(2)
    cache.keep(0)  # nothing of nothing
    assert_same(model, cache, ids(9)[:, :4])


def test_keep_refuses_and_changes_nothing(model: Clover) -> None:
    cache = fresh(model, ids(LIMIT + 1))
    before = content(cache)
    for count in (-1, LIMIT + 2, 3, 0):
        with pytest.raises(ValueError):
            cache.keep(count)
    cache.keep(LIMIT + 1)
    assert equal(before, content(cache))


def test_keep_works_on_a_fused_pass(model: Clover) -> None:
    """Verification: clean rows and the next draft's blocks in one pass."""
    cache = fresh(model, ids(6))
    model(ids(4, seed=1), BLOCK, cache)
    cache.keep(2)
    assert_same(model, cache, torch.cat([ids(6), ids(4, seed=1)[:, :2]], dim=1))


def test_restore_goes_back_any_number_of_times(model: Clover) -> None:
    cache = fresh(model, ids(7))
    snap = cache.snapshot()
    for seed in range(3):
        model(ids(80, seed=seed), cache=cache)
        cache.restore(snap)
        assert_same(model, cache, ids(7))


def test_restore_ends_the_last_pass(model: Clover) -> None:
    """The rows that `keep` could have undone are gone."""
    cache = fresh(model, ids(7))
    snap = cache.snapshot()
    model(ids(5, seed=1), cache=cache)
    cache.restore(snap)
    for count in (1, 3, 5):
        with pytest.raises(ValueError, match="keep"):
            cache.keep(count)
    assert_same(model, cache, ids(7))


def test_a_snapshot_of_the_empty_cache(model: Clover) -> None:
    cache = Cache(model.config)
    snap = cache.snapshot()
    model(ids(70), cache=cache)
    cache.restore(snap)
    assert_same(model, cache, ids(0))
    model(ids(5, seed=3), cache=cache)
    assert_same(model, cache, ids(5, seed=3))


def test_a_snapshot_whose_rows_were_cut_stays_invalid(model: Clover) -> None:
    cache = fresh(model, ids(5))
    early = cache.snapshot()
    model(ids(6, seed=1), cache=cache)
    late = cache.snapshot()
    cache.keep(5)  # one row of `late` is gone …
    model(ids(6, seed=2), cache=cache)  # … and written over
    before = content(cache)
    with pytest.raises(ValueError, match="rolled back"):
        cache.restore(late)
    assert equal(before, content(cache))
    cache.restore(early)
    assert_same(model, cache, ids(5))


def test_denoising_leaves_the_cache_bit_for_bit(model: Clover) -> None:
    cache = fresh(model, ids(40))
    before = content(cache)
    for seed in range(3):
        model(None, ids(16, seed, batch=2).view(2, 2, 8), cache, update=False)
        model(None, BLOCK, cache)
        model(ids(3, seed), BLOCK, cache, update=False)
    assert cache.length == 40
    assert equal(before, content(cache))
    cache.keep(11)  # and the last pass can still be undone
    assert_same(model, cache, ids(40)[:, :11])


def test_one_cache_serves_many_rows(model: Clover) -> None:
    cache = fresh(model, ids(30))
    before = content(cache)
    clean, blocks = ids(5, 1, batch=3), BLOCK.repeat(3, 1, 1)
    blocks[1, 0, 0] = 7
    got_clean, got_blocks = model(clean, blocks, cache, update=False)
    one_clean = model(clean[:, :1], None, cache, update=False)[0]
    for n in range(3):
        own_clean, own_blocks = model(clean[n : n + 1], blocks[n : n + 1], cache, update=False)
        assert float((got_clean[n] - own_clean[0]).abs().max()) <= EXACT
        assert float((got_blocks[n] - own_blocks[0]).abs().max()) <= EXACT
        assert float((one_clean[n, 0] - own_clean[0, 0]).abs().max()) <= EXACT
    assert equal(before, content(cache))


def test_a_batch_of_sequences_in_one_cache(model: Clover) -> None:
    tokens = ids(33, batch=3)
    cache = fresh(model, tokens[:, :20])
    model(tokens[:, 20:30], cache=cache)
    cache.keep(6)
    got = model(tokens[:, 26:], cache=cache)[0]
    wanted = model(tokens)[0][:, 26:]
    assert float((got - wanted).abs().max()) <= EXACT
    assert cache.length == 33


def test_a_shared_cache_cannot_be_appended_to_by_many(model: Clover) -> None:
    cache = fresh(model, ids(8))
    before = content(cache)
    with pytest.raises(ValueError, match="batch"):
        model(ids(3, batch=2), cache=cache)
    assert cache.length == 8
    assert equal(before, content(cache))


def test_a_cache_of_a_batch_serves_no_other_batch(model: Clover) -> None:
    cache = fresh(model, ids(8, batch=2))
    with pytest.raises(ValueError, match="batch"):
        model(None, BLOCK.repeat(3, 1, 1), cache, update=False)


def test_nbytes_grows_with_what_is_held(model: Clover) -> None:
    cache = Cache(model.config)
    assert cache.nbytes() == 0
    model(ids(10), cache=cache)
    little = cache.nbytes()
    model(ids(500), cache=cache)
    held = sum(part.nelement() * part.element_size() for part in content(cache))
    assert cache.nbytes() >= held > 0
    assert cache.nbytes() > little or "full_attention" not in model.config.layer_types
