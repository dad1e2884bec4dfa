"""Look-up drafts that grow: the law holds, limits hold, and copying goes on behind an edit."""

from __future__ import annotations

import itertools
import time
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.decode.test_decode import BANNED, EOM, VOCAB, random_model, start_from
from torch import Tensor

from clover_engine.api import CancelToken
from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally
from clover_engine.decode.lookup import Lookup
from clover_engine.model import Clover
from clover_engine.model.cache import REPLAY_ROWS
from clover_engine.model.rows import Layout

pytestmark = pytest.mark.usefixtures("one_thread")
TILE = 6
LONG = speculative.LONG_TILES * TILE
GREEDY = Sampling(banned=BANNED)
edits = st.lists(
    st.tuples(
        st.integers(0, 80),
        st.integers(0, 5),
        st.lists(st.integers(3, VOCAB - 1), max_size=5),
    ),
    max_size=4,
)


class Tiled:
    """Stands for a fast path: the model's own layers, but passes count in tiles."""

    tile = TILE

    def __init__(self, model: Clover) -> None:
        self.model = model

    def forward(self, ids: Tensor, layout: Layout, cache: Any, update: bool) -> Tensor:
        return self.model.rows(ids, layout, cache, update)

    def head(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.model.lm_head(hidden))


class Scripted:
    """In the model's and its cache's place: writes `text`, whatever it was given, and keeps
    count. Raises what a cache would where too many rows are undone."""

    fused: Any = None

    def __init__(self, text: list[int], tile: int = 0) -> None:
        self.text, self.length, self.rows = text, 0, list[int]()
        if tile:
            self.fused = Tiled(cast(Clover, self))
        self.after_pass: Any = lambda: None

    def __call__(self, ids: Tensor, *, cache: Scripted) -> tuple[Tensor, None]:
        rows = ids.shape[1]
        self.rows.append(rows)
        self.length += rows
        following = torch.tensor(self.text)[self.length - rows + 1 : self.length + 1]
        hidden = torch.nn.functional.one_hot(following, 1000).double()
        padded = torch.zeros(1, rows, 1000, dtype=torch.float64)
        padded[0, : len(hidden)] = 50 * hidden
        self.after_pass()
        return padded, None

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def keep(self, count: int) -> None:
        assert 1 <= count <= self.rows[-1] <= REPLAY_ROWS
        self.length -= self.rows[-1] - count

    def write(self, lookup: Lookup, limits: Limits, size: int = 8) -> Generated:
        first = torch.nn.functional.one_hot(torch.tensor(self.text[0]), 1000).double()
        start = Start(cast(Any, self), 50 * first)
        return speculative.decode(
            cast(Clover, self), start, limits, Sampling(), Tally(),
            block_size=size, lookup=lookup, ride=False,
        )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["hybrid", "dense", "moe"]),
    size=st.integers(1, 32),
    limit=st.integers(1, 90),
    edits=edits,
    tiled=st.booleans(),
    ride=st.booleans(),
    stop=st.booleans(),
    draft=st.booleans(),
)
@torch.inference_mode()
def test_long_drafts_leave_greedy_output_as_it_is(
    seed: int, kind: str, size: int, limit: int, edits: list[tuple[int, int, list[int]]],
    tiled: bool, ride: bool, stop: bool, draft: bool,
) -> None:  # fmt: skip
    """The original is what plain decoding writes, with some of it inserted, deleted, replaced."""
    model = random_model(seed, kind)
    limits = Limits(limit, frozenset({EOM}) if stop else frozenset())
    plain = autoregressive.decode(model, start_from(model, [3, 4]), limits, GREEDY, Tally())
    original = list(plain.tokens)
    for place, length, new in edits:
        original[place : place + length] = new
    lookup = Lookup([*original, EOM], [3, 4], [original] if draft else [])
    start, rows, tally = start_from(model, [3, 4]), list[int](), Tally()
    if tiled:
        model.fused = cast(Any, Tiled(model))
    model.register_forward_hook(lambda _model, _given, made: rows.append(made[0].shape[1]))
    out = speculative.decode(
        model, start, limits, GREEDY, tally, block_size=size, lookup=lookup, ride=ride
    )
    assert (out.tokens, out.reason) == (plain.tokens, plain.reason)
    assert out.probs == pytest.approx(plain.probs, abs=1e-9)
    assert max(rows, default=0) <= min(1 + limit, LONG if tiled else REPLAY_ROWS)
    assert tally.accepted <= tally.drafted and tally.forward_passes == len(rows)


@torch.inference_mode()
def test_sampling_with_long_drafts_keeps_the_distribution() -> None:
    """The fourth token's, which only drafts that have grown reach."""
    model, count, kinds = random_model(11, vocab=5), 600, [0, 2, 3, 4]
    sampling = Sampling(temperature=1.0, banned=BANNED)
    exact = torch.zeros(5, dtype=torch.float64)
    for tokens in itertools.product(kinds, repeat=3):
        hidden, _ = model(torch.tensor([[3, 4, *tokens]]))
        probs = sampling.probabilities(model.head(hidden[0, 1:]))
        chance = torch.tensor([probs[i, t] for i, t in enumerate(tokens)]).prod()
        exact += chance * probs[3]
    counts, accepted = torch.zeros(5, dtype=torch.float64), 0
    likely = autoregressive.decode(model, start_from(model, [3, 4]), Limits(6), GREEDY, Tally())
    fresh = start_from(model, [3, 4])
    snapshot = fresh.cache.snapshot()
    for seed in range(count):
        generator, tally = torch.Generator().manual_seed(seed), Tally()
        fresh.cache.restore(snapshot)
        out = speculative.decode(
            model, fresh, Limits(4), sampling, tally, block_size=2, ride=False,
            lookup=Lookup(likely.tokens, [3, 4]), generator=generator,
        )  # fmt: skip
        counts[out.tokens[3]] += 1
        accepted += tally.accepted
    assert accepted > count / 4
    assert torch.allclose(counts / count, exact, atol=0.06)


@pytest.mark.parametrize(
    ("tile", "expected"),
    [(0, [8, 16, 32, 64, 64, 16]), (TILE, [6, 12, *[LONG] * 7, 14])],
)
def test_drafts_double_while_they_stand_and_stay_within_limits(
    tile: int, expected: list[int]
) -> None:
    text = list(range(10, 300))
    model = Scripted(text, tile)
    out = model.write(Lookup(text, []), Limits(200))
    assert out.tokens == text[:200] and out.reason == "length"
    assert model.rows == expected


@pytest.mark.parametrize("tile", [0, TILE])
def test_a_rejected_draft_is_followed_by_a_short_one(tile: int) -> None:
    text = list(range(10, 300))
    original = [*text[:100], 5, *text[101:]]
    model = Scripted(text, tile)
    assert model.write(Lookup(original, []), Limits(200)).tokens == text[:200]
    wrong = next(i for i, end in enumerate(itertools.accumulate(model.rows)) if end > 100)
    short = TILE if tile else 8
    assert model.rows[wrong] > 2 * short
    assert model.rows[wrong + 1 : wrong + 4] == [1, short, 2 * short]  # 1: the new token


def test_a_path_that_long_passes_leave_keeps_short_drafts() -> None:
    text = list(range(10, 110))
    model = Scripted(text)
    model.fused = object()
    assert model.write(Lookup(text, []), Limits(90)).tokens == text[:90]
    assert set(model.rows[:-1]) == {8}


def test_cancelling_and_deadlines_wait_for_one_long_pass_at_most() -> None:
    text = list(range(10, 300))
    model, cancel = Scripted(text), CancelToken()
    model.after_pass = lambda: len(model.rows) == 4 and cancel.cancel()
    out = model.write(Lookup(text, []), Limits(200, cancel=cancel))
    assert out.reason == "cancelled" and len(model.rows) == 4
    assert out.tokens == text[: 1 + sum(model.rows)]
    model, limits = Scripted(text), Limits(200, deadline=time.monotonic() + 60)

    def late() -> None:
        limits.deadline = time.monotonic() - 1

    model.after_pass = late
    assert model.write(Lookup(text, []), limits).reason == "deadline"
    assert len(model.rows) == 1


def test_a_stop_string_within_a_long_draft_ends_the_text_there() -> None:
    text, told = list(range(10, 300)), list[int]()
    limits = Limits(200, stopped=lambda tokens: tokens[-1] == 77, on_token=told.append)
    out = Scripted(text).write(Lookup(text, []), limits)
    assert out.reason == "stop" and out.tokens == told == list(range(10, 78))


@given(
    length=st.integers(2, 80),
    place=st.integers(0, 79),
    removed=st.integers(0, 8),
    inserted=st.integers(0, 8),
    limit=st.integers(1, 70),
)
def test_the_original_goes_on_right_behind_an_edit(
    length: int, place: int, removed: int, inserted: int, limit: int
) -> None:
    """Where each token occurs once, the place is known: behind the token just written."""
    original = list(range(100, 100 + length))
    text = [*original[:place], *range(500, 500 + inserted), *original[place + removed :]]
    lookup = Lookup(original, [])
    for end in range(1, len(text)):
        last = text[end - 1]
        drafted = lookup.draft(text[:end], limit)
        at = original.index(last) + 1 if last in original else length
        assert drafted == original[at : at + limit]


@given(
    line=st.lists(st.integers(3, 6), min_size=1, max_size=6),
    times=st.integers(2, 8),
    replaced=st.lists(st.integers(0, 47), max_size=6),
)
def test_replaced_tokens_do_not_lead_to_another_of_many_equal_lines(
    line: list[int], times: int, replaced: list[int]
) -> None:
    original = [7, *[t for i in range(times) for t in (*line, 8)], 9]
    text = [99 if i in replaced else token for i, token in enumerate(original)]
    lookup = Lookup(original, [])
    for end in range(1, len(text)):
        drafted = lookup.draft(text[:end], len(text))
        if text[end - 1] != 99:
            assert drafted == original[end:]


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 10_000), st.integers(0, 40))
@settings(max_examples=80, deadline=None)
def test_greedy_acceptance_ends_at_the_first_difference(
    noise: list[int], seed: int, right: int
) -> None:
    """Wherever the difference is, the first place of a long draft and the last one included."""
    verified = torch.rand(len(noise) + 1, 5, generator=torch.Generator().manual_seed(seed)).softmax(
        -1
    )
    best = [max(range(5), key=lambda t: float(row[t])) for row in verified]
    draft = [*best[:right], *noise[right:]][: len(noise)]
    count = 0
    for i, token in enumerate(draft):
        if token != best[i]:
            break
        count += 1
    found = speculative.accept(draft, None, verified, Sampling(), None)
    assert found == (count, best[count], float(verified[count, best[count]]))
