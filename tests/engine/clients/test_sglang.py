"""What only the client of SGLang does: its requests, what it makes of answers, other models."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.clients.asked import ASK, HOLE, QUESTIONS

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    Engine,
    InfillRequest,
    ScoreRequest,
    Snippet,
)
from clover_engine.clients.sglang import SGLangEngine
from clover_engine.clients.sglang_stream import NOMINAL_CONFIDENCE
from clover_engine.errors import RequestCancelled, Unsupported
from clover_engine.generation import DecisionRequest, GenerateRequest, Message, TextEngine
from clover_engine.testing.faults import Fault
from clover_engine.testing.server import FakeServer


def test_is_both_kinds_of_engine(engine: SGLangEngine) -> None:
    assert isinstance(engine, Engine) and isinstance(engine, TextEngine)


def test_the_prompt_is_the_family_s(engine: SGLangEngine, server: FakeServer) -> None:
    result = engine.infill(replace(HOLE, snippets=(Snippet("x = 1", "x.py"),), stop=("\n",)))
    assert result.choices[0].text == "return a + b" and result.model == "Qwen2.5-Coder-0.5B"
    (body,) = server.bodies("/generate")
    assert body["text"].endswith("<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n<|fim_middle|>")
    assert body["text"].startswith("<|file_sep|>x.py\nx = 1\n")
    assert body["sampling_params"]["stop"][0] == "\n"
    assert re.fullmatch("[0-9a-f]{32}", body["rid"])


def test_health_runs_nothing(engine: SGLangEngine, server: FakeServer) -> None:
    health = engine.health()
    assert (health.ready, health.name, health.model) == (True, "sglang", "Qwen2.5-Coder-0.5B")
    assert {seen.method for seen in server.seen} == {"GET"}
    assert not [seen.path for seen in server.seen if "health" in seen.path]


def test_what_the_user_sets_wins(server: FakeServer) -> None:
    with SGLangEngine(server.url, model="mine", fim="codestral") as engine:
        assert engine.infill(HOLE).model == "mine"
    assert server.bodies("/generate")[0]["text"] == "[SUFFIX]\n[PREFIX]def add(a, b):\n    "


@pytest.mark.parametrize(
    ("marks", "prompt"),
    [
        (["<doc>", "<suf>", "<pre>", "<mid>"], "<doc><suf>\n<pre>def add(a, b):\n    <mid>"),
        (
            ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
            "<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n<|fim_middle|>",
        ),
        (["<nothing>"], "def add(a, b):\n    "),
    ],
    ids=["its own tokenizer", "converted", "no marks"],
)
def test_clover_s_layout_follows_its_tokenizer(
    marks: list[str], prompt: str, server: FakeServer
) -> None:
    server.model.name, server.model.model_type = "clover-35b", "clover"
    server.model.architectures, server.model.marks = ["CloverForBlockDiffusion"], marks
    with SGLangEngine(server.url) as engine:
        engine.infill(HOLE)
    assert server.bodies("/generate")[0]["text"] == prompt


def test_confidence_is_the_mean_probability_of_what_is_kept(
    engine: SGLangEngine, server: FakeServer
) -> None:
    whole = engine.infill(HOLE).choices[0]
    begun = engine.infill(replace(HOLE, stop=(" +",))).choices[0]
    assert begun.text == "return a"
    assert 0 < whole.confidence < 1 and begun.confidence != whole.confidence
    server.model.is_diffusion = True
    with SGLangEngine(server.url) as diffusion:
        assert diffusion.infill(HOLE).choices[0].confidence == NOMINAL_CONFIDENCE


@pytest.mark.parametrize("is_incremental", [False, True])
def test_both_ways_to_stream(is_incremental: bool, server: FakeServer) -> None:
    server.model.is_incremental = is_incremental
    with SGLangEngine(server.url) as engine:
        both = engine.infill(replace(HOLE, n=2, temperature=0.5))
        assert [c.text for c in both.choices] == ["return a + b"] * 2
        assert both.choices[0].confidence == both.choices[1].confidence > 0


def test_only_clover_s_algorithm_is_told_how_to_decode(server: FakeServer) -> None:
    asked = replace(HOLE, mode="threshold", threshold=0.7)
    server.model.is_diffusion = True
    with SGLangEngine(server.url) as engine:
        engine.infill(asked)
    server.model.algorithm = "Clover"
    with SGLangEngine(server.url) as engine:
        engine.infill(asked)
        engine.generate(replace(ASK, mode="ar"))
    stock, clover = (body["sampling_params"] for body in server.bodies("/generate"))
    assert "custom_params" not in stock
    assert clover["custom_params"] == {"mode": "threshold", "threshold": 0.7}
    assert server.bodies("/v1/chat/completions")[0]["custom_params"] == {"mode": "ar"}


def test_samples_have_seeds_of_their_own(engine: SGLangEngine, server: FakeServer) -> None:
    server.model.texts = ["zero", "one", "two", "three"]
    result = engine.infill(replace(HOLE, n=3, temperature=0.5, seed=1))
    assert [choice.text for choice in result.choices] == ["one", "two", "three"]


def test_a_stop_string_that_the_server_misses(engine: SGLangEngine, server: FakeServer) -> None:
    """Block diffusion looks for them once a block: what is too much is cut here, and aborted."""
    server.model.answer = lambda prompt, sampling: (  # type: ignore[method-assign]
        ["x", " = 1", "\n", "y", " = 2", " + 3"], {"type": "length"}
    )  # fmt: skip
    server.step_s = 0.01
    choice = engine.infill(replace(HOLE, stop=("\n",))).choices[0]
    assert (choice.text, choice.finish_reason) == ("x = 1", "stop")
    assert server.wait(lambda s: bool(s.aborted))


def test_cancelling_aborts_on_the_server(engine: SGLangEngine, server: FakeServer) -> None:
    server.model.texts, server.step_s = ["word " * 500], 0.01
    cancel = CancelToken()

    def stop() -> None:
        server.wait(lambda s: s.streams == 1)
        server.pause(0.2)
        cancel.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    result = engine.infill(replace(HOLE, max_tokens=400, n=2, temperature=0.1), cancel)
    thread.join()
    assert {choice.finish_reason for choice in result.choices} == {"cancelled"}
    assert result.choices[0].text.startswith("word word")
    assert server.wait(lambda s: set(s.aborted) == set(s.bodies("/generate")[0]["rid"]))
    assert server.wait(lambda s: s.streams == 0)


def test_what_the_server_aborts(engine: SGLangEngine, server: FakeServer) -> None:
    server.model.texts, server.step_s = ["word " * 500], 0.01

    def abort() -> None:
        server.wait(lambda s: bool(s.bodies("/generate")))
        server.aborted.append(server.bodies("/generate")[0]["rid"])

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(Exception, match="failed: Aborted; ask again or see its log"):
        engine.infill(replace(HOLE, max_tokens=400))
    thread.join()


@given(text=st.text(alphabet="ab \n漢é", min_size=1, max_size=4), context=st.integers(100, 700))
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_prompt_fits(text: str, context: int, server: FakeServer) -> None:
    """However long the text, the server never has to refuse it."""
    server.model.context = context
    with SGLangEngine(server.url) as engine:
        for request in (
            InfillRequest(text * 3000, text * 900, max_tokens=40),
            InfillRequest(text * 3000, max_tokens=4000, snippets=(Snippet(text * 500),)),
        ):
            assert engine.infill(request).choices[0].text == "return a + b"


IDS = re.compile(r'"(input_ids|stop_token_ids|token_ids_logprob|logit_bias|label_token_ids)"')


@given(data=st.data())
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_token_id_ever_leaves(
    data: st.DataObject, engine: SGLangEngine, server: FakeServer
) -> None:
    """An id that the model does not have ends some servers: only text goes out, valid UTF-8, never
    an empty prompt, and no number stands in a list."""
    server.seen.clear()
    text = st.text(st.characters(codec=None), max_size=30)
    prefix, suffix, begin = data.draw(text), data.draw(text), data.draw(text)
    engine.infill(
        InfillRequest(prefix, suffix, must_start_with=begin, stop=(data.draw(text) or "a",))
    )
    engine.score(ScoreRequest(prefix, suffix, (data.draw(text), "")))
    engine.cloze(ClozeRequest(prefix, data.draw(text), suffix, max_remove=1))
    engine.generate(GenerateRequest((Message("user", data.draw(text)),), thinking=False))
    for seen in server.seen:
        assert not IDS.search(json.dumps(seen.body))
        assert all(isinstance(item, str | dict) for item in lists_in(seen.body))
        json.dumps(seen.body, ensure_ascii=False).encode("utf-8")
        if seen.path == "/generate":
            texts = seen.body["text"]
            assert all(texts if isinstance(texts, list) else [texts])


def lists_in(value: Any) -> Iterator[Any]:
    """The items of all lists anywhere in a body."""
    if isinstance(value, dict):
        for item in value.values():
            yield from lists_in(item)
    elif isinstance(value, list):
        yield from value
        for item in value:
            yield from lists_in(item)


def test_the_prompt_of_a_score_is_that_of_an_infill(
    engine: SGLangEngine, server: FakeServer
) -> None:
    engine.infill(HOLE)
    engine.score(ScoreRequest(HOLE.prefix, HOLE.suffix, ("pass", "<|endoftext|>")))
    filled, scored = server.bodies("/generate")
    prompt = filled["text"]
    assert scored["text"][0] == prompt + "pass<|endoftext|>"
    assert scored["text"][1].count("<|endoftext|>") == 1  # a candidate cannot end the hole
    tokens = server.model.tokens(prompt)
    assert scored["logprob_start_len"] == len(tokens) - 1
    assert scored["sampling_params"]["max_new_tokens"] == 0


def test_scores_without_a_closing_mark_count_what_follows(server: FakeServer) -> None:
    with SGLangEngine(server.url, fim="plain") as engine:
        scored = engine.score(ScoreRequest("x = ", "\ny", ("1", "2 + 3")))
    assert server.bodies("/generate")[0]["text"] == ["x = 1\ny", "x = 2 + 3\ny"]
    assert scored.tokens == (2, 4)  # from where the candidate may have grown together


def test_scores_stop_at_the_deadline(engine: SGLangEngine, server: FakeServer) -> None:
    engine.infill(HOLE)
    texts = tuple(f"x{i}" for i in range(40))
    server.faults = [Fault("silent")]
    assert engine.score(ScoreRequest("", "", texts, deadline_s=0.1)).logprobs == (None,) * 40
    cancel = CancelToken()
    threading.Timer(0.1, cancel.cancel).start()
    server.faults = [Fault("silent")]
    with pytest.raises(RequestCancelled):
        engine.score(ScoreRequest("", "", texts), cancel)


def test_gaps_are_filled_by_the_model(engine: SGLangEngine, server: FakeServer) -> None:
    server.model.on_prompt = lambda prompt, seed: " *" if "a<|fim_suffix|> b" in prompt else "?" * 9
    fills = engine.cloze(ClozeRequest("x = ", "a + b", "\n", max_remove=1, max_insert=2)).fills
    texts = [fill.text for fill in fills]
    assert "a * b" in texts and "a b" in texts
    assert not any("?" in text for text in texts)  # those found no end in time


def test_an_older_version(server: FakeServer) -> None:
    """Without /tokenize and /v1/decisions most things work, and the rest says why not."""
    server.model.missing = frozenset({"/tokenize", "/detokenize", "/v1/decisions", "/server_info"})
    server.model.texts = ["1: A"]
    with SGLangEngine(server.url) as engine:
        assert engine.infill(HOLE).choices[0].text == "1: A"
        assert engine.generate(ASK).text == "1: A"
        one = DecisionRequest("m", QUESTIONS[:1], joint=False)
        assert engine.decide(one).decisions[0].option == 0
        with pytest.raises(Unsupported, match="cannot count tokens"):
            engine.score(ScoreRequest("x = ", "\n", ("1",)))


def test_a_router_that_only_knows_the_models(server: FakeServer) -> None:
    server.model.missing = frozenset({"/model_info", "/server_info"})
    with SGLangEngine(server.url) as engine:
        assert engine.infill(HOLE).model == "Qwen2.5-Coder-0.5B"
        assert "<|fim_middle|>" in server.bodies("/generate")[0]["text"]
