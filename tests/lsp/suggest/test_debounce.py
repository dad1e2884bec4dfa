"""The wait after a keystroke."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_lsp.context.types import Place
from clover_lsp.suggest.debounce import LONGEST_S, Debounce, Rhythm, is_immediate, wait_s


def at(prefix: str) -> Place:
    return Place("file:///a", "python", prefix, "\n")


def test_a_fast_engine_is_asked_at_once_and_a_slow_one_after_a_pause() -> None:
    fast, slow = (Rhythm((0.15,) * 8, latency) for latency in (0.005, 1.5))
    assert wait_s(fast) < 0.02
    assert 0.15 < wait_s(slow) <= LONGEST_S
    assert wait_s(Rhythm((0.15,) * 8, 0.0)) == 0.0


def test_it_follows_how_fast_someone_types() -> None:
    waits = [wait_s(Rhythm((interval,) * 8, 0.3)) for interval in (0.06, 0.12, 0.25)]
    assert waits == sorted(waits) and waits[0] < waits[-1]
    assert wait_s(Rhythm((0.1, 0.1, 0.1, 30.0), 0.3)) == wait_s(Rhythm((0.1, 0.1, 0.1), 0.3))


def test_suggestions_that_are_accepted_come_sooner() -> None:
    rare, often = (wait_s(Rhythm((0.1,), 0.3, share)) for share in (0.0, 0.9))
    assert often < rare


@pytest.mark.parametrize("prefix", ["", "x = 1\n", "def f():\n    ", "foo.", "foo(", "x = ", "a, "])
def test_no_wait_where_something_begins(prefix: str) -> None:
    assert is_immediate(at(prefix))


def test_a_wait_inside_words() -> None:
    assert not is_immediate(at("def f():\n    retur"))
    assert is_immediate(at("def f():\n    retur"), invoked=True)


def test_the_rhythm_is_learnt() -> None:
    debounce = Debounce()
    assert debounce.wait_s(at("nam")) == 0.0  # nothing is known of the engine
    for i in range(10):
        debounce.typed(i * 0.1)
    debounce.answered(0.4)
    before = debounce.wait_s(at("nam"))
    for _ in range(4):
        debounce.decided(accepted=True)
    assert 0 < debounce.wait_s(at("nam")) < before
    assert debounce.rhythm().intervals_s == pytest.approx((0.1,) * 9)
    assert debounce.wait_s(at("nam."), invoked=False) == 0.0


@given(
    st.lists(st.floats(allow_nan=False), max_size=20),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
)
def test_it_is_never_negative_nor_long(
    intervals: list[float], latency: float, acceptance: float
) -> None:
    assert 0 <= wait_s(Rhythm(intervals, latency, acceptance)) <= LONGEST_S
