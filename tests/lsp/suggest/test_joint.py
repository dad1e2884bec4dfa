"""What several proposers know together: laws that hold for every answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_engine.gate import SMALL
from clover_lsp.context.types import Place
from clover_lsp.suggest.choose import proposed
from clover_lsp.suggest.joint import PROPOSERS, joint, proposer
from clover_lsp.suggest.shape import Plan, plan
from clover_lsp.suggest.types import Draft, Suggestion

CHANCE = st.floats(0.01, 0.99)
PROPOSALS = st.lists(st.tuples(st.sampled_from(PROPOSERS), st.sampled_from("abc"), CHANCE))


@given(PROPOSALS)
def test_every_text_gets_a_probability_and_order_does_not_matter(
    given: list[tuple[str, str, float]],
) -> None:
    found = joint(given)
    assert set(found) == {text for _, text, _ in given}
    assert all(0 < p < 1 for p in found.values())
    assert joint(reversed(given)) == pytest.approx(found)


@given(PROPOSALS, st.sampled_from(PROPOSERS), CHANCE, CHANCE)
def test_a_proposer_that_is_surer_makes_its_text_more_probable(
    given: list[tuple[str, str, float]], who: str, p: float, q: float
) -> None:
    low, high = sorted((p, q))
    assert joint([*given, (who, "new", low)])["new"] <= joint([*given, (who, "new", high)])["new"]


def test_two_that_agree_are_believed_more_than_either() -> None:
    alone = joint([("look-up", "x", 0.5), ("large", "y", 0.5)])
    together = joint([("look-up", "x", 0.5), ("large", "x", 0.5)])
    assert together["x"] > max(alone.values())


@given(CHANCE)
def test_one_alone_and_models_that_were_never_measured_are_taken_at_their_word(p: float) -> None:
    assert joint([("large", "x", p)]) == {"x": p}
    assert joint([("look-up", "x", p), ("", "x", 0.3)]) == {"x": max(p, 0.3)}


def test_proposers_by_origin_and_model() -> None:
    assert proposer(Suggestion("x", 0.5, "lookup")) == "look-up"
    assert proposer(Suggestion("x", 0.5, "model", model=SMALL)) == "small"
    assert proposer(Suggestion("x", 0.5, "prefetch", model="coder-0.5b")) == "large"
    assert proposer(Suggestion("x", 0.5, "model", model="somebody/else-7b")) == ""


def test_agreement_lifts_a_text_above_the_others() -> None:
    place = Place("file:///a", "python", "items = []\nprint(", ")\n")
    shape = plan(place)
    assert isinstance(shape, Plan)
    drafts = [
        Draft("len(items))", 0.5, "lookup"),
        Draft("items)", 0.45, "lookup"),
        Draft(shape.must_start_with + "items)", 0.45, "model", model="coder-0.5b"),
    ]
    best = proposed(drafts, place, shape)[0]
    assert best.text == "items" and best.confidence > 0.5
