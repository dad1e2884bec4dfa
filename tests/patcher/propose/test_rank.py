"""The linear model of priorities."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_patcher.propose.rank import (
    BOUND,
    ModelScore,
    Weights,
    model_scores,
    prior_priority,
    scored_priority,
)

LOGPROBS = st.dictionaries(st.text(max_size=20), st.floats(-200, 0), min_size=1, max_size=8)


@given(LOGPROBS)
def test_a_hole_as_a_whole_neither_gains_nor_loses(logprobs: dict[str, float]) -> None:
    scores = model_scores(logprobs, "\0 not one of them")
    assert scores.keys() == logprobs.keys()
    values = [s.centred for s in scores.values()]
    assert median(values) == pytest.approx(0.0, abs=1e-9)
    assert max(map(abs, values)) <= BOUND


@given(LOGPROBS, st.floats(-50, 0))
def test_the_present_line_changes_nothing(logprobs: dict[str, float], present: float) -> None:
    logprobs.pop("now", None)
    scores = model_scores(logprobs | {"now": present}, "now")
    assert scores == model_scores(logprobs, "now")


def test_nothing_scored_gives_nothing() -> None:
    assert model_scores({}, "") == {}
    assert model_scores({"now": -1.0}, "now") == {}


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-10, 0))
def test_suspicious_lines_rank_higher(first: float, second: float, prior: float) -> None:
    score = ModelScore(-3.0, -1.0)
    if first < second:
        assert prior_priority(first, prior) <= prior_priority(second, prior)
        assert scored_priority(first, prior, score) <= scored_priority(second, prior, score)


def test_likelier_lines_rank_higher() -> None:
    scores = model_scores({"a + b": -1.0, "a - b": -4.0}, "")
    assert scored_priority(1.0, -5.0, scores["a + b"]) > scored_priority(1.0, -5.0, scores["a - b"])


def test_weights_are_factors() -> None:
    weights = Weights(location=0, prior=0, scored_prior=2, centred=3)
    assert scored_priority(0.5, -5.0, ModelScore(-3.0, 1.5), weights) == -5.5


def test_a_location_without_suspicion_is_finite() -> None:
    assert prior_priority(0.0, -1.0) > -math.inf
