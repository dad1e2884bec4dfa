"""From drafts to what is shown, and the calibrated gate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_engine.api import Infill, InfillResult
from clover_engine.gate import SHOWN_CONFIDENCE, is_shown, model_probability
from clover_lsp.context.types import Lookup, Place
from clover_lsp.suggest.choose import (
    SEVERAL,
    choose,
    engine_drafts,
    is_sure,
    lookup_drafts,
    model_drafts,
    proposed,
)
from clover_lsp.suggest.scene import at_popup
from clover_lsp.suggest.shape import Plan, plan
from clover_lsp.suggest.types import Draft, Popup, Suggestion

PLACE = Place("file:///a", "python", "items = []\nprint(", ")\n")


def request(place: Place = PLACE, heal: bool = False) -> Plan:
    found = plan(place, heal=heal)
    assert isinstance(found, Plan)
    return found


def texts(found: tuple[Suggestion, ...]) -> list[str]:
    return [s.text for s in found]


DRAFTS = [
    Draft("items)", 0.4, "model"),
    Draft("len(items))", 0.8, "lookup"),
    Draft("items", 0.6, "lookup"),
    Draft(" ", 0.9, "model"),
    Draft("other", 0.1, "model"),
]


def test_one_text_by_itself_and_several_when_asked() -> None:
    assert texts(choose(proposed(DRAFTS, PLACE, request()))) == ["len(items)"]
    found = choose(proposed(DRAFTS, PLACE, request()), invoked=True)
    assert texts(found) == ["len(items)", "items", "other"]
    assert [s.confidence for s in found] == [0.8, 0.6, 0.1]
    assert [s.origin for s in found] == ["lookup", "lookup", "model"]


def test_nothing_rather_than_rubbish() -> None:
    unsure = [Draft("items", SHOWN_CONFIDENCE - 0.01, "model")]
    assert not choose(proposed(unsure, PLACE, request()))
    assert texts(choose(proposed(unsure, PLACE, request()), least=0.2)) == ["items"]
    assert texts(choose(proposed(unsure, PLACE, request()), invoked=True)) == ["items"]


def test_what_is_shown_already_stays_first() -> None:
    kept = (Suggestion("items[0]", 0.3, "reuse"),)
    assert texts(choose(proposed(DRAFTS, PLACE, request()), kept=kept)) == ["items[0]"]
    assert texts(choose(proposed(DRAFTS, PLACE, request()), kept=kept, invoked=True))[:2] == [
        "items[0]",
        "len(items)",
    ]
    many = [Draft(f"items[{i}]", 0.5, "model") for i in range(20)]
    assert len(choose(proposed(many, PLACE, request()), invoked=True)) == SEVERAL


def test_deleted_texts_make_room_for_the_next() -> None:
    assert texts(choose(proposed(DRAFTS, PLACE, request(), deleted=["len(items)"]))) == ["items"]


def test_a_popup_s_item_is_extended() -> None:
    place = Place("file:///a", "python", "x = it", "\n")
    popup = Popup("items", 2)
    asked = request(at_popup(place, popup))
    (found,) = choose(proposed([Draft("[0]", 0.5, "model")], place, asked, popup))
    assert (found.text, found.replace_before) == ("items[0]", 2)


def test_the_engine_s_drafts_begin_where_its_prefix_ends() -> None:
    place = Place("file:///a", "python", "x = it", "\n")
    asked = request(place, heal=True)
    found = [Lookup("ems[0]\r\ny = 1", 4, 1, 0, "a.py")]
    (draft,) = engine_drafts(found, asked)
    assert asked.prefix + draft == "x = items[0]\ny = 1"
    # and a look-up by itself follows the cursor
    assert texts(choose(proposed(lookup_drafts(found, asked), place, asked), invoked=True)) == [
        "ems[0]"
    ]


def test_look_ups_of_several_lines_only_where_a_block_opens() -> None:
    found = [Lookup("a = 1\n    return a", 9, 3, 0, "a.py", 4)]
    body = Place("file:///a", "python", "def f():\n    ", "\n")
    assert lookup_drafts(found, request(body))[0].text == "a = 1\n    return a"
    assert lookup_drafts(found, request())[0].text == "a = 1"


def test_evidence_makes_look_ups_sure() -> None:
    weak, contested, strong = (
        Lookup("items[0]", 2, 1, 0, "a.py"),
        Lookup("items[0]", 12, 1, 9, "a.py", 6),
        Lookup("items[0]", 40, 3, 0, "a.py", 12),
    )
    probabilities = [lookup_drafts([found], request())[0].confidence for found in
                     (weak, contested, strong)]  # fmt: skip
    assert probabilities[2] > max(probabilities[:2])
    assert is_sure(lookup_drafts([strong], request()))
    assert not is_sure(lookup_drafts([weak, contested], request()))


def test_cut_off_generation_is_known() -> None:
    result = InfillResult((Infill("a", 0.9, "eom"), Infill("b", 0.9, "length")))
    drafts = model_drafts(result, "prefetch")
    assert [d.complete for d in drafts] == [True, False]
    assert {d.origin for d in drafts} == {"prefetch"}


MODELS = pytest.mark.parametrize("model", ["clover-nano", "another", ""])


@MODELS
def test_the_gate_wants_text_and_certainty(model: str) -> None:
    assert is_shown(Infill("x", 0.999, "eom"), model)
    assert not is_shown(Infill("x", 0.1, "eom"), model)
    assert not is_shown(Infill(" \n", 1.0, "eom"), model)


@MODELS
@given(st.floats(0, 1), st.floats(0, 1), st.text(max_size=40))
def test_a_surer_model_is_more_often_right(model: str, one: float, other: float, text: str) -> None:
    low, high = sorted((one, other))
    probabilities = [model_probability(sure, text, model) for sure in (low, high)]
    assert 0 <= probabilities[0] <= probabilities[1] <= 1


@MODELS
@pytest.mark.parametrize("longer", ["a + b", "f(a, b, c)"])
def test_longer_texts_are_less_often_right(model: str, longer: str) -> None:
    assert model_probability(0.9, longer, model) < model_probability(0.9, "a", model)


def test_a_curve_is_used_for_its_own_model_only() -> None:
    result = InfillResult((Infill("f(a, b)", 0.9, "eom"),), model="clover-nano")
    [nano] = model_drafts(result)
    [other] = model_drafts(replace(result, model="another"))
    assert nano.confidence == model_probability(0.9, "f(a, b)", "clover-nano")
    assert other.confidence == 0.9 ** (1 + 1.25 * 6) != nano.confidence


@given(st.floats(0, 1), st.text(max_size=40))
def test_no_unmeasured_model_is_more_often_right_than_one_token_is(sure: float, text: str) -> None:
    assert model_probability(sure, text) <= sure
