"""The client against a real llama-server with a real model (SmolLM2, which has no marks for
holes): what the scripted server in `fake_server.py` only claims."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clover_engine.api import CancelToken, InfillRequest
from clover_engine.clients.llamacpp import LlamaCppEngine
from clover_engine.errors import EngineUnavailable
from clover_engine.generation import DecisionRequest, GenerateRequest, Message, Piece, Question

HARNESS = sys.modules["llamacpp_harness"]
PREFIX = "def fibonacci(n):\n    if n < 2:\n        return n\n    return "
SUFFIX = "\n\nprint(fibonacci(10))\n"
LINE = InfillRequest(PREFIX, SUFFIX, stop=("\n",), max_tokens=24)


def test_a_line_is_filled(engine: LlamaCppEngine) -> None:
    first, again = engine.infill(LINE), engine.infill(LINE)
    [choice] = first.choices
    assert "fibonacci" in choice.text and "\n" not in choice.text
    assert choice.finish_reason == "stop" and 0.3 < choice.confidence <= 1
    assert first.model == "smollm2" and first.stats.tokens > 3
    assert again.choices[0].text == choice.text, "greedy"
    assert again.stats.cached_tokens > first.stats.prefill_tokens // 2, "its cache is used"


def test_healing_goes_on_from_the_middle_of_a_word(engine: LlamaCppEngine) -> None:
    healed = engine.infill(
        InfillRequest(PREFIX[:-7], SUFFIX, stop=("\n",), must_start_with="    return fib")
    ).choices[0]
    assert healed.text.startswith("    return fibonacci")
    assert 0.2 < healed.confidence <= 1 and healed.finish_reason == "stop"
    strange = 'x = "ä\\\t\U0001f600'
    odd = engine.infill(InfillRequest("", must_start_with=strange, max_tokens=4)).choices[0]
    assert odd.text.startswith(strange)


def test_samples_follow_their_seeds(engine: LlamaCppEngine) -> None:
    request = InfillRequest("names = [", temperature=1.2, n=3, seed=5, max_tokens=12)
    texts = [choice.text for choice in engine.infill(request).choices]
    assert len(set(texts)) == 3
    assert [c.text for c in engine.infill(request).choices] == texts


def test_text_that_is_too_long_is_cut(engine: LlamaCppEngine) -> None:
    prefix = "".join(f"value_{i} = {i}\n" for i in range(300)) + PREFIX
    [choice] = engine.infill(InfillRequest(prefix, SUFFIX, stop=("\n",))).choices
    assert "fibonacci" in choice.text


def test_a_chat_streams(engine: LlamaCppEngine) -> None:
    pieces: list[Piece] = []
    message = Message("user", "Say hello in one short sentence.")
    request = GenerateRequest((message,), max_new_tokens=24, thinking=False)
    result = engine.generate(request, on_piece=pieces.append)
    assert result.text and "".join(p.text for p in pieces) == result.text
    assert len(pieces) > 1 and result.thinking == "" and result.stats.tokens > 1


@pytest.mark.parametrize("joint", [True, False])
def test_decisions_have_probabilities(engine: LlamaCppEngine, joint: bool) -> None:
    questions = (
        Question("Which language is this?", ("Python", "French", "Music")),
        Question("Does it loop?", ("yes", "no")),
    )
    result = engine.decide(DecisionRequest("for x in range(3): print(x)", questions, joint))
    for decision, question in zip(result.decisions, questions, strict=True):
        assert len(decision.probabilities) == len(question.options)
        assert math.fsum(decision.probabilities) == pytest.approx(1)
        assert 0 < max(decision.probabilities) < 1
        assert decision.probabilities[decision.option] == max(decision.probabilities)


def test_giving_up_frees_the_slot(real: Any, engine: LlamaCppEngine) -> None:
    long = InfillRequest("The numbers: 1, 2, 3,", max_tokens=1500)
    token = CancelToken()
    done: list[Any] = []
    call = threading.Thread(target=lambda: done.append(engine.infill(long, token)))
    call.start()
    until(lambda: any(decoded(slot) > 3 for slot in real.slots()))
    token.cancel()
    call.join(30)
    assert done[0].choices[0].finish_reason == "cancelled"
    until(lambda: not any(slot["is_processing"] for slot in real.slots()))
    [choice] = engine.infill(
        InfillRequest("The numbers: 1, 2, 3,", max_tokens=1500, deadline_s=3.0)
    ).choices
    assert choice.finish_reason == "deadline" and choice.text
    until(lambda: not any(slot["is_processing"] for slot in real.slots()))


def test_loading_keys_and_the_end(tmp_path: Path) -> None:
    if not HARNESS.is_there():
        pytest.skip(HARNESS.MISSING)
    server = HARNESS.LlamaServerProcess(
        tmp_path / "log", ["--api-key", "k-1", "--slots"], wait=False
    )
    try:
        with LlamaCppEngine(server.url, api_key="k-1") as engine:
            seen = {engine.health().detail}
            until(lambda: seen.add(engine.health().detail) or "" in seen)
            assert any("refused" in detail or "Loading" in detail for detail in seen if detail)
            assert engine.infill(LINE).choices[0].text
        with LlamaCppEngine(server.url, api_key="k-2") as stranger:
            health = stranger.health()
            assert not health.ready and "API key" in health.detail
        with LlamaCppEngine(server.url, api_key="k-1") as engine:
            engine.infill(LINE)
            server.process.kill()
            server.process.wait(10)
            with pytest.raises(EngineUnavailable):
                engine.infill(LINE)
    finally:
        server.close()


def decoded(slot: Mapping[str, Any]) -> int:
    """Tokens that the slot has generated for the request that it works on."""
    found = slot.get("next_token", [{}])
    state = found[0] if isinstance(found, list) else found
    return int(state.get("n_decoded", 0)) if slot["is_processing"] else 0


def until(look: Any) -> None:
    end = time.monotonic() + 60
    while not look():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
