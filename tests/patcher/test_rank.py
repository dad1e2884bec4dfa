"""The linear model of priorities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_patcher.rank import ModelScore, Weights, model_scores, ranked, unranked

LOGPROBS = st.dictionaries(st.text(max_size=20), st.floats(-200, 0), min_size=1, max_size=8)


@given(LOGPROBS)
def test_shares_are_a_distribution(logprobs: dict[str, float]) -> None:
    scores = model_scores(logprobs, "\0 not one of them")
    assert math.isclose(sum(math.exp(s.share) for s in scores.values()), 1.0, rel_tol=1e-6)
    assert scores.keys() == logprobs.keys()


@given(LOGPROBS, st.floats(-50, 0))
def test_the_present_line_only_normalises(logprobs: dict[str, float], present: float) -> None:
    scores = model_scores(logprobs | {"now": present}, "now")
    assert "now" not in scores
    for text, score in scores.items():
        assert score.gain == pytest.approx(logprobs[text] - present)


def test_nothing_scored_gives_nothing() -> None:
    assert model_scores({}, "") == {}
    assert model_scores({"now": -1.0}, "now") == {}


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-10, 0))
def test_suspicious_lines_rank_higher(first: float, second: float, prior: float) -> None:
    score = ModelScore(-3.0, -1.0, 2.0)
    if first < second:
        assert unranked(first, prior) <= unranked(second, prior)
        assert ranked(first, prior, score) <= ranked(second, prior, score)


def test_likelier_lines_rank_higher() -> None:
    scores = model_scores({"a + b": -1.0, "a - b": -4.0}, "")
    assert ranked(1.0, -5.0, scores["a + b"]) > ranked(1.0, -5.0, scores["a - b"])


def test_weights_are_factors() -> None:
    weights = Weights(location=0, prior=0, scored_prior=0, share=1, gain=2, scored=3)
    assert ranked(0.5, -5.0, ModelScore(-3.0, -1.5, 2.0), weights) == 5.5


def test_a_location_without_suspicion_is_finite() -> None:
    assert unranked(0.0, -1.0) > -math.inf
