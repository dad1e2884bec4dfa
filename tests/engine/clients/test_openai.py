"""OpenAI's interface: what is sent, what is read, and what is said where it cannot work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from clover_engine.api import InfillRequest, Snippet
from clover_engine.choice.servers import configured, served_engine
from clover_engine.choice.wanted import Wanted
from clover_engine.clients.openai import OpenAIEngine
from clover_engine.clients.sglang_stream import NOMINAL_CONFIDENCE
from clover_engine.errors import EngineUnavailable, RequestError, Unsupported
from clover_engine.generation import DecisionRequest, GenerateRequest, Message, Piece, Question
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.faults import Fault
from clover_engine.testing.server import FakeServer

HOLE = InfillRequest("def add(a, b):\n    ", "\n\nadd(1, 2)\n", max_tokens=16)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(["return a + b\n    done"])) as started:
        yield started


def test_a_hole_goes_out_with_the_marks_of_the_family(server: FakeServer) -> None:
    with OpenAIEngine(server.url) as engine:
        asked = replace(HOLE, snippets=(Snippet("x = 1\n", "x.py"),), stop=("\n",))
        result = engine.infill(asked)
    assert result.choices[0].text == "return a + b" and result.choices[0].finish_reason == "stop"
    assert result.model == "fake/Qwen2.5-Coder-0.5B"
    (body,) = server.bodies("/v1/completions")
    assert "<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n\nadd(1, 2)" in body["prompt"]
    assert "<|file_sep|>x.py\nx = 1\n" in body["prompt"]
    assert len(body["stop"]) <= 4 and body["temperature"] == 0 and "seed" not in body


def test_a_model_of_no_known_family_continues_the_prefix(server: FakeServer) -> None:
    server.model.name = "llama3:8b"
    with OpenAIEngine(server.url) as engine:
        engine.infill(HOLE)
    with OpenAIEngine(server.url, fim="starcoder") as engine:
        engine.infill(HOLE)
    plain, starcoder = server.bodies("/v1/completions")
    assert plain["prompt"] == HOLE.prefix
    assert starcoder["prompt"].startswith("<fim_prefix>")


def test_how_a_hole_is_written_can_be_set(server: FakeServer) -> None:
    server.model.name = "own-model"
    environ = {"CLOVER_OPENAI_URL": server.url, "CLOVER_OPENAI_FIM": "<P>{prefix}<S>{suffix}<M>"}
    chosen = configured("openai", Wanted(), environ)
    assert chosen is not None
    engine = served_engine(chosen)
    engine.infill(HOLE)
    engine.close()
    (body,) = server.bodies("/v1/completions")
    assert body["prompt"] == f"<P>{HOLE.prefix}<S>{HOLE.suffix}<M>"
    assert body["stop"] == ["<P>", "<S>", "<M>", "<|endoftext|>"]


def test_the_address_may_end_with_the_version(server: FakeServer) -> None:
    for url in (server.url, f"{server.url}/v1", f"{server.url}/v1/"):
        with OpenAIEngine(url) as engine:
            assert engine.infill(HOLE).choices[0].text.startswith("return")


def test_of_several_models_one_must_be_named(server: FakeServer) -> None:
    server.model.name, server.model.others = "qwen2.5-coder:7b", ("llama3:8b",)
    with OpenAIEngine(server.url) as engine:
        with pytest.raises(EngineUnavailable, match=r"qwen2\.5-coder:7b, llama3:8b; set the model"):
            engine.infill(HOLE)
        health = engine.health()
        assert not health.ready and "set the model" in health.detail
    with OpenAIEngine(server.url, model="qwen2.5-coder:7b") as engine:
        assert engine.health().model == "qwen2.5-coder:7b"
        engine.infill(HOLE)
    assert server.bodies("/v1/completions")[0]["model"] == "qwen2.5-coder:7b"


def test_confidence_is_the_servers_or_a_nominal_one(server: FakeServer) -> None:
    with OpenAIEngine(server.url) as engine:
        told = engine.infill(HOLE).choices[0].confidence
        server.model.is_diffusion = True  # sends no log-probabilities
        untold = engine.infill(HOLE).choices[0].confidence
    assert 0 < told < 1 and told != NOMINAL_CONFIDENCE
    assert untold == NOMINAL_CONFIDENCE


def test_a_prompt_that_is_too_long_is_asked_again_with_less(server: FakeServer) -> None:
    said = "This model's maximum context length is 512 tokens."
    server.faults.append(Fault("status", path="/v1/completions", status=400, message=said, times=2))
    with OpenAIEngine(server.url) as engine:
        engine.infill(replace(HOLE, prefix="x = 1\n" * 3000 + HOLE.prefix))
    sizes = [len(body["prompt"]) for body in server.bodies("/v1/completions")]
    assert len(sizes) == 3 and sizes[0] > 1.8 * sizes[1] > 3 * sizes[2]


def test_other_refusals_are_passed_on(server: FakeServer) -> None:
    wrong = Fault("status", path="/v1/completions", status=400, message="max_tokens must be even")
    server.faults.append(wrong)
    with (
        OpenAIEngine(server.url) as engine,
        pytest.raises(RequestError, match="max_tokens must be even"),
    ):
        engine.infill(HOLE)


def test_a_key_is_sent_and_its_refusal_is_said(server: FakeServer) -> None:
    server.api_key = "sesame"
    with OpenAIEngine(server.url, api_key="sesame") as engine:
        assert engine.health().ready
    with (
        OpenAIEngine(server.url) as engine,
        pytest.raises(EngineUnavailable, match="refuses the API key"),
    ):
        engine.infill(HOLE)


def test_a_conversation_with_thinking(server: FakeServer) -> None:
    server.model.thinking, server.model.splits_thinking = "let me see", False
    pieces: list[Piece] = []
    with OpenAIEngine(server.url) as engine:
        request = GenerateRequest((Message("user", "Why? <|im_end|>"),), temperature=0.5, seed=3)
        result = engine.generate(request, on_piece=pieces.append)
    assert result.text == "return a + b\n    done" and result.thinking == "let me see"
    (body,) = server.bodies("/v1/chat/completions")
    assert "<|im_end|>" not in body["messages"][0]["content"]
    assert body["seed"] == 3 and "chat_template_kwargs" not in body


@pytest.mark.parametrize("joint", [True, False])
def test_decisions(server: FakeServer, joint: bool) -> None:
    server.model.on_prompt = lambda prompt, _: "1: B\n2: A" if "2." in prompt else "1: B"
    asked = (Question("Colour?", ("red", "blue")), Question("Size?", ("s", "m")))
    with OpenAIEngine(server.url) as engine:
        found = engine.decide(DecisionRequest("The sky.", asked, joint=joint)).decisions
    assert [decision.option for decision in found] == ([1, 0] if joint else [1, 1])
    assert all(sum(decision.probabilities) == pytest.approx(1) for decision in found)
    server.model.on_prompt = lambda *_: "I do not know."
    with OpenAIEngine(server.url) as engine, pytest.raises(Unsupported, match="name an option"):
        engine.decide(DecisionRequest("The sky.", asked, joint=joint))


@pytest.mark.parametrize("kind", ["garbage", "types", "cut", "huge", "stall"])
def test_broken_streams_are_errors_in_words(server: FakeServer, kind: str) -> None:
    from clover_engine.clients.http import HttpLimits
    from clover_engine.errors import EngineError

    server.faults.append(Fault(kind, path="/v1/completions", after=1))  # type: ignore[arg-type]
    limits = HttpLimits(idle_s=0.5, total_s=5.0, max_event=2**16)
    with OpenAIEngine(server.url, limits=limits) as engine, pytest.raises(EngineError) as caught:
        engine.infill(HOLE)
    assert server.url in str(caught.value) and "\n" not in str(caught.value)
