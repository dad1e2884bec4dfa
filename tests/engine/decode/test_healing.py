"""Token healing: a text that begins with what stands before the hole already."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import InfillRequest
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.decode.healing import Pieces, heal
from clover_engine.errors import RequestError
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.testing.fakes import FakeEngine
from clover_engine.worker.local import checkpoint_path

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def engine() -> EmbeddedEngine:
    return EmbeddedEngine.load(checkpoint_path(), 1)


PREFIX = "class Point:\n    def __init__(self, left, top):\n        self.left = left\n"


@settings(max_examples=40, deadline=None)
@given(
    required=st.text(st.sampled_from("abcreturnsf .(\n\t日🍀"), max_size=12),
    mode=st.sampled_from(["ar", "speculative", "threshold"]),
)
def test_every_mode_begins_with_what_is_asked_for(
    engine: EmbeddedEngine, required: str, mode: str
) -> None:
    request = InfillRequest(
        PREFIX, "", must_start_with=required, max_tokens=4, mode=mode  # type: ignore[arg-type]
    )  # fmt: skip
    (choice,) = engine.infill(request).choices
    assert choice.text.startswith(required)
    assert 0 <= choice.confidence <= 1


def test_a_cut_word_goes_on_as_a_whole_one(engine: EmbeddedEngine) -> None:
    whole = InfillRequest(PREFIX + "        ", "", max_tokens=8, mode="ar", stop=("\n",))
    (expected,) = engine.infill(whole).choices
    assert len(expected.text) > 4
    cut = InfillRequest(
        PREFIX, "", must_start_with="        " + expected.text[:2], max_tokens=8, mode="ar",
        stop=("\n",),
    )  # fmt: skip
    (healed,) = engine.infill(cut).choices
    assert healed.text.startswith("        " + expected.text[:2])
    assert healed.text.removeprefix("        ")[:4] == expected.text[:4]


def test_agreeing_tokens_are_found_both_ways(engine: EmbeddedEngine) -> None:
    pieces = Pieces(engine.tok, {engine.prompt.eom})
    found = {engine.tok.piece(i) for i in pieces.agreeing(b"retu")}
    assert b"return" in found and b"r" in found and b"s" not in found
    assert all(p.startswith(b"retu") or b"retu".startswith(p) for p in found)
    every = {engine.tok.piece(i) for i in range(engine.tok.vocab_size)}
    assert {p for p in every if p.startswith(b"retu")} <= found


@torch.inference_mode()
def test_forced_tokens_have_no_choice_and_cost_no_confidence(engine: EmbeddedEngine) -> None:
    tokens = engine.tok.encode(PREFIX)
    tally = Tally()
    begun = engine.prefix.start(tokens, Limits(8), Tally())[0]
    pieces = Pieces(engine.tok, set())
    one = [i for i in range(engine.tok.vocab_size) if engine.tok.piece(i) == b"\x00"]
    assert pieces.agreeing(b"\x00") == one  # one byte that no longer token begins with
    done, after = heal(
        engine.model, Start(begun.cache, begun.logits), b"\x00\x00", pieces, Limits(8), Sampling(),
        tally,
    )  # fmt: skip
    assert done.tokens == one * 2 and done.probs == pytest.approx([1.0, 1.0])
    assert after.logits is not begun.logits and tally.forward_passes == 2


def test_drafts_are_counted_from_the_same_place(engine: EmbeddedEngine) -> None:
    plain = InfillRequest(PREFIX, "", must_start_with="        se", max_tokens=12, mode="ar")
    (expected,) = engine.infill(plain).choices
    request = InfillRequest(
        PREFIX, "", must_start_with="        se", max_tokens=12, mode="speculative",
        drafts=(expected.text,),
    )  # fmt: skip
    result = engine.infill(request)
    assert result.choices[0].text == expected.text
    assert result.stats.accepted >= 6


def test_the_fake_obeys_too_and_too_much_is_refused(engine: EmbeddedEngine) -> None:
    fake = FakeEngine(infills=["n x", "return x"])
    request = InfillRequest("", "", must_start_with="retur")
    assert fake.infill(request).choices[0].text == "return x"
    assert fake.infill(request).choices[0].text == "return x"
    with pytest.raises(RequestError, match="must_start_with"):
        engine.infill(InfillRequest("", "", must_start_with="x" * 129))
