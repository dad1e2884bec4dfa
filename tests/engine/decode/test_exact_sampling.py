"""Sampled self-speculation is plain sampling, whatever the drafts are and however they are cut."""

from __future__ import annotations

import math
import random
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.decode.chances import Markov, assert_distributed

from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally, seeded
from clover_engine.decode.lookup import Lookup

pytestmark = pytest.mark.usefixtures("one_thread")
ROUNDS = 600


def cases(count: int) -> list[Any]:
    """Random options, of which every kind occurs."""
    found = []
    for seed in range(count):
        chosen = random.Random(seed)
        sampling = Sampling(
            temperature=chosen.choice([0.4, 1.0, 1.0, 1.7]),
            top_p=chosen.choice([1.0, 1.0, 0.8, 0.95]),
            top_k=chosen.choice([0, 0, 2, 3]),
            min_p=chosen.choice([0.0, 0.0, 0.1]),
        )
        threshold = chosen.choice([0.0, 0.3, 0.3, 0.45, 0.6, 0.9])
        drafts = chosen.choice([[], [[chosen.randrange(4) for _ in range(5)]]])
        found.append(pytest.param(seed, sampling, threshold, drafts, id=str(seed)))
    return found


@pytest.mark.parametrize(("seed", "sampling", "threshold", "drafts"), cases(8))
@torch.inference_mode()
def test_self_speculation_samples_as_plain_decoding_does(
    seed: int, sampling: Sampling, threshold: float, drafts: list[list[int]]
) -> None:
    model = Markov(seed, vocab=4, block=4)

    def draw(number: int) -> list[int]:
        out = speculative.decode(
            cast(Any, model), Start(cast(Any, model), model.after[1]), Limits(3), sampling,
            Tally(), block_size=4, draft_threshold=threshold,
            lookup=Lookup([], [], drafts) if drafts else None, generator=seeded(number),
        )  # fmt: skip
        return out.tokens

    assert_distributed(draw, model.sequences(1, 3, sampling), ROUNDS)


@torch.inference_mode()
def test_the_test_itself_would_see_a_cut_by_the_drawn_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut_by_what_is_drawn(
        ahead: Any, threshold: float, sampling: Sampling, generator: Any
    ) -> Any:
        drawn = sampling.pick(ahead, generator)
        sure = ahead.gather(-1, drawn[:, None])[:, 0] >= threshold
        length = int(sure.long().cumprod(0).sum())
        return drawn[:length].tolist(), ahead[:length]

    monkeypatch.setattr(speculative, "draw", cut_by_what_is_drawn)
    with pytest.raises(AssertionError):
        test_the_example_of_a_wrong_cut(0.3)
    found = [case.values for case in cases(8) if case.values[2] >= 0.3]
    with pytest.raises(AssertionError):
        for values in found:
            test_self_speculation_samples_as_plain_decoding_does(*values)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.45])
def test_the_example_of_a_wrong_cut(threshold: float) -> None:
    """p = (.5, .5, 0), q = (.5, .25, .25): drafts cut by what was drawn gave .751 and .249."""
    p = torch.tensor([[0.5, 0.5, 0.0]] * 2)
    q = torch.tensor([[0.5, 0.25, 0.25]])
    sampling = Sampling(temperature=1.0)

    def draw(number: int) -> list[int]:
        generator = seeded(number)
        draft, drafted = speculative.draw(q, threshold, sampling, generator)
        accepted, known, _ = speculative.accept(
            draft, drafted, p[: 1 + len(draft)], sampling, generator
        )
        return [draft[0] if accepted else known]

    assert_distributed(draw, {(0,): 0.5, (1,): 0.5, (2,): 0.0}, 1500)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(
        st.floats(-1e4, 1e4, width=32) | st.just(-math.inf), min_size=2, max_size=9
    ).filter(lambda row: max(row[:2]) > -math.inf),
    temperature=st.floats(0, 1e308) | st.sampled_from([0.0, 5e-324, 1e-300, 1e-6, 1e39]),
    top_p=st.floats(0, 1, exclude_min=True) | st.sampled_from([5e-324, 1e-300, 1.0]),
    top_k=st.integers(0, 2**40),
    min_p=st.floats(0, 1),
    penalty=st.floats(0, 2, exclude_min=True),
    wide=st.booleans(),
)
def test_any_options_give_a_distribution(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float,
    penalty: float, wide: bool,
) -> None:  # fmt: skip
    banned = torch.arange(2, len(logits))
    sampling = Sampling(temperature, top_p, banned, top_k, min_p, penalty)
    row = torch.tensor([logits], dtype=torch.float64 if wide else torch.float32)
    probs = sampling.probabilities(sampling.penalised(row, [0, len(logits) - 1]))[0]
    assert bool((probs >= 0).all()) and float(probs.sum()) == pytest.approx(1, abs=1e-4)
    token = int(sampling.pick(probs, seeded(1)))
    assert token < 2 and probs[token] > 0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), p=st.floats(0.05, 1), m=st.floats(0, 1))
def test_top_k_top_p_and_min_p_keep_what_they_say(seed: int, k: int, p: float, m: float) -> None:
    """Against one loop over the tokens in order."""
    row = torch.randn(6, generator=seeded(seed)).double() * 2
    plain = row.softmax(-1).tolist()
    order = sorted(range(6), key=lambda i: -plain[i])
    kept, before = dict[int, float](), 0.0
    for rank, token in enumerate(order):
        if rank == 0 or (rank < k and before < p and plain[token] >= m * plain[order[0]]):
            kept[token] = plain[token]
        before += plain[token]
    probs = Sampling(1.0, p, None, k, m).probabilities(row)
    if k == 1:
        assert int(probs.argmax()) == order[0]
        return
    expected = torch.tensor([kept.get(i, 0.0) for i in range(6)]).double()
    assert torch.allclose(probs, expected / expected.sum(), atol=1e-9)


def test_a_penalty_makes_repetition_rarer_row_by_row() -> None:
    sampling = Sampling(1.0, repetition_penalty=2.0)
    rows = torch.tensor([[2.0, -2.0, 1.0]] * 3)
    found = sampling.penalised(rows, [0], [1, 2])
    assert found.tolist() == [[1.0, -2.0, 1.0], [1.0, -4.0, 1.0], [1.0, -4.0, 0.5]]
    assert rows.tolist() == [[2.0, -2.0, 1.0]] * 3
    assert Sampling(1.0).penalised(rows, [0]) is rows


@pytest.mark.parametrize("seed", [0, 7, -1, -(2**70), 2**63, 2**64 + 3, 2**200])
def test_any_seed_is_one(seed: int) -> None:
    def draw() -> list[int]:
        model = Markov(1, vocab=4, block=4)
        start = Start(cast(Any, model), model.after[0])
        args = (cast(Any, model), start, Limits(6), Sampling(1.0), Tally())
        return autoregressive.decode(*args, seeded(seed)).tokens

    assert draw() == draw()
