"""The linear model of priorities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_patcher.propose.rank import BOUND, DEFAULT, ModelScore, Weights, model_scores, priority

LOGPROBS = st.dictionaries(st.text(max_size=20), st.floats(-200, 0), min_size=1, max_size=8)


@given(LOGPROBS, st.floats(-200, 0))
def test_scores_are_relative_to_what_stands_there(
    logprobs: dict[str, float], stands: float
) -> None:
    scores = model_scores(logprobs | {"now": stands}, "now")
    assert scores.keys() == logprobs.keys() - {"now"}
    for text, score in scores.items():
        assert score.delta == max(-BOUND, min(BOUND, logprobs[text] - stands))


@given(LOGPROBS)
def test_without_what_stands_there_nothing_is_scored(logprobs: dict[str, float]) -> None:
    assert model_scores(logprobs, "\0 not one of them") == {}


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-10, 0))
def test_suspicious_lines_rank_higher(first: float, second: float, prior: float) -> None:
    score = ModelScore(-3.0, -1.0)
    if first < second:
        assert priority(first, prior) <= priority(second, prior)
        assert priority(first, prior, score, -2.0) <= priority(second, prior, score, -2.0)


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_likelier_edits_rank_higher(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert priority(1, -5, ModelScore(-9, low)) <= priority(1, -5, ModelScore(-9, high))
    assert priority(1, -5, None, low) <= priority(1, -5, None, high)


def test_a_line_that_is_odd_as_it_stands_comes_first() -> None:
    """The old rule, relative to the median of the line's contents, did not see this."""
    odd = model_scores({"a[i]": -3.0, "a[j]": -4.0, "a[k]": -12.0}, "a[k]")["a[i]"]
    usual = model_scores({"b = 1": -3.0, "b = 2": -4.0, "b = 3": -2.0}, "b = 3")["b = 1"]
    assert priority(1, -3, odd) > priority(1, -3, usual)


def test_an_edit_that_was_not_scored_is_taken_for_a_typical_one() -> None:
    typical = ModelScore(-9.0, DEFAULT.typical_model)
    assert (
        priority(1, -3) == priority(1, -3, typical) == priority(1, -3, None, DEFAULT.typical_counts)
    )


def test_weights_are_factors() -> None:
    weights = Weights(1, 2, 3, 4, typical_model=-1, typical_counts=-2)
    expected = 1 * math.log(0.5) - 2 * 5 + 3 * (1.5 + 1) + 4 * (0.5 + 2)
    assert priority(0.5, -5, ModelScore(-3, 1.5), 0.5, weights) == pytest.approx(expected)


def test_a_location_without_suspicion_is_finite() -> None:
    assert priority(0.0, -1.0) > -math.inf
