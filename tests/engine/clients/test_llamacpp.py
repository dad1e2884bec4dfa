"""The client of llama-server against a scripted one: what is sent, what is read, what is a fault.

How the real server answers is looked at in `tests/llamacpp`.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    Engine,
    InfillRequest,
    ScoreRequest,
    Snippet,
)
from clover_engine.clients import gbnf
from clover_engine.clients.llamacpp import LlamaCppEngine
from clover_engine.clients.llamacpp_answer import Answer, Token
from clover_engine.errors import (
    EngineCrashed,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import DecisionRequest, Question, TextEngine

FAKE = Path(__file__).parents[2] / "llamacpp" / "fake_server.py"
ASK = InfillRequest("def f():\n    return ", "\n\nf()\n", stop=("\n",))


def _load() -> Any:
    known = sys.modules.get("fake_llama_server")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location("fake_llama_server", FAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_llama_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server() -> Iterator[Any]:
    with _load().FakeLlamaServer() as made:
        yield made


@pytest.fixture
def engine(server: Any) -> Iterator[LlamaCppEngine]:
    with LlamaCppEngine(server.url) as made:
        yield made


def test_it_is_an_engine(engine: LlamaCppEngine) -> None:
    assert isinstance(engine, Engine) and isinstance(engine, TextEngine)


def test_a_hole_is_sent_as_the_server_wants_it(server: Any, engine: LlamaCppEngine) -> None:
    server.script.text = "x + 1"
    snippets = (Snippet("near", "a.py"), Snippet("far"))
    result = engine.infill(
        InfillRequest("a = ", "\n", snippets, max_tokens=9, stop=("\n",), seed=7, deadline_s=30)
    )
    [choice] = result.choices
    assert (choice.text, choice.finish_reason, result.model) == ("x + 1", "eom", "tiny-q8")
    assert choice.confidence == pytest.approx(math.exp(-0.01))
    assert (result.stats.prefill_tokens, result.stats.cached_tokens) == (5, 7)
    assert result.stats.tokens == 3 and result.stats.seconds > 0
    [body] = server.bodies("/infill")
    assert (body["input_prefix"], body["input_suffix"]) == ("a = ", "\n")
    extra = [(e["filename"], e["text"]) for e in body["input_extra"]]
    assert extra == [("untitled", "far"), ("a.py", "near")], "the best one next to the hole"
    assert body["n_predict"] == 9 and body["stop"] == ["\n"] and body["seed"] == 7
    assert body["cache_prompt"] is True and "id_slot" not in body and "grammar" not in body
    assert body["temperature"] == 0 and body["repeat_penalty"] == 1
    assert 0 < body["t_max_predict_ms"] <= 30_000


def test_samples_have_seeds_of_their_own(server: Any) -> None:
    with LlamaCppEngine(server.url, slot=2, model="coder") as engine:
        request = InfillRequest("a", temperature=0.8, top_p=0.9, n=3, seed=2**32 - 1)
        result = engine.infill(request)
    bodies = server.bodies("/infill")
    assert [body["seed"] for body in bodies] == [2**32 - 1, 0, 1]
    assert {(b["id_slot"], b["model"], b["top_p"]) for b in bodies} == {(2, "coder", 0.9)}
    assert len(result.choices) == 3 and result.model == "coder"
    assert "/props?model=coder" in [path for path, _ in server.requests]


def test_a_model_without_marks_continues_the_prefix(server: Any, engine: LlamaCppEngine) -> None:
    server.script.has_infill = False
    for _ in range(2):
        assert engine.infill(ASK).choices[0].text == "answer"
    assert len(server.bodies("/infill")) == 1, "asked once"
    body = server.bodies("/completion")[-1]
    assert body["prompt"].endswith(ASK.prefix) and "<|endoftext|>" in body["stop"]
    engine.infill(InfillRequest("", "\n"))
    assert server.bodies("/completion")[-1]["prompt"] == "\n", "an empty one has no answer"


@pytest.mark.parametrize(("count", "marks"), [(1, True), (4, False)])
def test_a_familys_marks_are_used_where_they_are_tokens(
    server: Any, engine: LlamaCppEngine, count: int, marks: bool
) -> None:
    server.script.has_infill = False
    server.script.props = {"model_alias": "qwen2.5-coder"}
    names = ("prefix", "suffix", "middle")
    server.script.tokens_of = {f"<|fim_{name}|>": count for name in names}
    engine.infill(ASK)
    [body] = server.bodies("/completion")
    assert ("<|fim_suffix|>" in body["prompt"]) is marks


def test_the_beginning_is_forced_by_a_grammar(server: Any, engine: LlamaCppEngine) -> None:
    server.script.text = "print(x)"
    server.script.others = {"print": -0.01, "pri": -3.0, "return": -0.1}
    result = engine.infill(InfillRequest("    ", stop=("p", "\n"), must_start_with="pr"))
    [body] = server.bodies("/infill")
    assert body["grammar"] == gbnf.starting_with("pr") and body["n_probs"] > 1
    assert body["stop"] == ["\n"], "the beginning contains the other one"
    assert result.choices[0].text == "print(x)"
    server.script.text, server.script.has_grammars = "other", False
    with pytest.raises(EngineUnavailable, match="grammar"):
        engine.infill(InfillRequest("    ", must_start_with="pr"))


def test_a_token_competes_with_those_that_were_allowed() -> None:
    half, rest = math.log(0.2), math.log(0.5)
    others = (("print", half), ("return", math.log(0.6)), ("p", half))
    answer = Answer("print(", [Token("print", half, others), Token("(", rest)])
    assert answer.confidence("pri") == pytest.approx(math.sqrt(0.2 / 0.4 * 0.5))
    assert answer.confidence() == pytest.approx(math.sqrt(0.2 * 0.5))
    assert answer.free_tokens("pri") == 2 and answer.free_tokens("print") == 1
    assert Answer("text").confidence() == 0


def test_tokens_beyond_the_forced_ones_are_counted(server: Any, engine: LlamaCppEngine) -> None:
    server.script.text = "aa bb cc dd ee"
    result = engine.infill(InfillRequest("", must_start_with="aa bb", max_tokens=2))
    assert result.choices[0].text == "aa bb cc dd"
    assert result.choices[0].finish_reason == "length"


def test_a_text_that_is_too_long_is_cut_until_it_fits(server: Any, engine: LlamaCppEngine) -> None:
    server.script.context = 700
    prefix = "".join(f"line {i}\n" for i in range(1000))
    result = engine.infill(InfillRequest(prefix, "after\n" * 100))
    assert result.choices[0].text == "answer"
    sizes = [len(b["input_prefix"]) + len(b["input_suffix"]) for b in server.bodies("/infill")]
    assert sizes == sorted(sizes, reverse=True) and 300 < sizes[-1] <= 700
    assert prefix.endswith(server.bodies("/infill")[-1]["input_prefix"])
    engine.infill(InfillRequest(prefix))
    assert len(server.bodies("/infill")) == len(sizes) + 1, "it has learnt how much fits"


def test_stops_are_kept_to_whatever_the_server_does(server: Any, engine: LlamaCppEngine) -> None:
    server.script.text = "one\ntwo"
    [choice] = engine.infill(ASK).choices
    assert (choice.text, choice.finish_reason) == ("one", "stop")
    server.script.text, server.script.stop_type = "one", "limit"
    assert engine.infill(ASK).choices[0].finish_reason == "length"


def test_scores_and_clozes_are_somebody_elses(engine: LlamaCppEngine) -> None:
    with pytest.raises(Unsupported, match="another engine"):
        engine.score(ScoreRequest("", "", ("x",)))
    with pytest.raises(RequestError, match="candidates"):
        engine.score(ScoreRequest("", "", ()))
    with pytest.raises(Unsupported, match="embedded"):
        engine.cloze(ClozeRequest("", "x", ""))
    with pytest.raises(RequestError, match="max_remove"):
        engine.cloze(ClozeRequest("", "x", "", max_remove=99))


def test_a_decision_has_the_probabilities_of_its_letters(
    server: Any, engine: LlamaCppEngine
) -> None:
    server.script.text = "1: B"
    server.script.logprob = math.log(0.3)
    server.script.others = {" B": math.log(0.3), " A": math.log(0.1), "C": math.log(0.5)}
    question = Question("Which?", ("this", "that"))
    result = engine.decide(DecisionRequest("text", (question,)))
    [decision] = result.decisions
    assert decision.option == 1
    assert decision.probabilities == pytest.approx((0.25, 0.75))
    body = server.bodies("/completion")[0]
    assert body["prompt"] == "<prompt>" and body["grammar"] == 'root ::= "1: " ("A" | "B")'
    [chat] = server.bodies("/apply-template")
    assert "that" in chat["messages"][0]["content"]
    assert chat["chat_template_kwargs"] == {"enable_thinking": False}


def test_health_says_what_the_server_says(server: Any, engine: LlamaCppEngine) -> None:
    assert engine.health().ready and engine.health().model == "tiny-q8"
    server.script.props = {"model_alias": "another"}
    assert engine.health().model == "another", "asked again every time"
    server.script.fault = "loading"
    health = engine.health()
    assert not health.ready and "Loading model" in health.detail
    server.close()
    health = engine.health()
    assert not health.ready and "connection refused" in health.detail
    paths = {path for path, _ in server.requests}
    assert paths == {"/health", "/props"}, "nothing that computes"


def test_a_key_is_sent_and_never_told(server: Any) -> None:
    server.script.key = "k-123"
    with LlamaCppEngine(server.url, api_key="k-123") as engine:
        assert engine.infill(ASK).choices[0].text == "answer"
    with LlamaCppEngine(server.url, api_key="k-456") as engine:
        assert not engine.health().ready
        with pytest.raises(EngineUnavailable, match="API key") as found:
            engine.infill(ASK)
    assert "k-456" not in str(found.value)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("refuse", EngineUnavailable, "something broke"),
        ("loading", EngineUnavailable, "Loading model"),
        ("garbage", EngineUnavailable, "JSON"),
        ("break", EngineCrashed, "broke the connection off"),
    ],
)
def test_faults_are_one_line(
    server: Any, engine: LlamaCppEngine, fault: str, kind: type[EngineError], words: str
) -> None:
    server.script.fault = fault
    with pytest.raises(kind, match=words) as found:
        engine.infill(ASK)
    assert "\n" not in str(found.value) and server.url in str(found.value)
    server.script.fault = ""
    assert engine.infill(ASK).choices[0].text == "answer"


def test_a_connection_that_was_closed_meanwhile_is_no_fault(
    server: Any, engine: LlamaCppEngine
) -> None:
    engine.infill(ASK)
    server.script.drops = 1
    assert engine.infill(ASK).choices[0].text == "answer"
    server.script.drops = 2
    with pytest.raises(EngineCrashed, match="broke the connection off"):
        engine.infill(ASK)
    assert len(server.bodies("/infill")) == 5, "asked again once, and no more"


def test_lone_surrogates_stay_here(server: Any, engine: LlamaCppEngine) -> None:
    snippet = Snippet("\ud800", "\ud800")
    engine.infill(InfillRequest("a\ud800", "b\udfff", (snippet,), stop=("\ud800",)))
    [body] = server.bodies("/infill")
    assert (body["input_prefix"], body["input_suffix"], body["stop"]) == ("a?", "b?", ["?"])
    assert body["input_extra"] == [{"filename": "?", "text": "?"}]


def test_a_deadline_finds_what_there_is(server: Any, engine: LlamaCppEngine) -> None:
    engine.infill(ASK)  # the connection is there
    server.script.fault, server.script.step_s = "endless", 0.02
    [choice] = engine.infill(InfillRequest("x", deadline_s=2, max_tokens=4096)).choices
    assert choice.finish_reason == "deadline" and choice.text.startswith("answer")
    [late] = engine.infill(InfillRequest("x", deadline_s=0)).choices
    assert (late.text, late.finish_reason) == ("", "deadline")
    wait_for(lambda: server.gone == ["/infill"])


def test_a_cancellation_closes_the_connection(server: Any, engine: LlamaCppEngine) -> None:
    server.script.fault, server.script.step_s = "endless", 0.02
    token = CancelToken()
    stopper = threading.Thread(target=lambda: (wait_for(lambda: server.sent > 5), token.cancel()))
    stopper.start()
    [choice] = engine.infill(InfillRequest("x", max_tokens=4096), token).choices
    stopper.join()
    assert choice.finish_reason == "cancelled" and choice.text.startswith("answer")
    wait_for(lambda: server.gone == ["/infill"])
    with pytest.raises(RequestCancelled):
        engine.infill(ASK, token)


def test_cancelled_before_the_first_token(server: Any, engine: LlamaCppEngine) -> None:
    server.script.fault = "hang"
    token = CancelToken()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(RequestCancelled):
        engine.infill(ASK, token)


def test_closed_is_closed(engine: LlamaCppEngine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.infill(ASK)


@given(st.text(max_size=30))
def test_a_literal_is_read_back(text: str) -> None:
    inside = gbnf.literal(text)[1:-1]
    for plain, escaped in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        assert plain not in inside and inside.count(escaped) >= text.count(plain)
    back = inside.encode("raw_unicode_escape", "surrogatepass").decode("unicode_escape")
    assert back == text or not text.isascii()


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["content", "tokens", "stop", "stop_type", "timings", "prompt_n", "token",
                     "completion_probabilities", "logprob", "top_logprobs"]
                ),
                inner,
                max_size=4,
            )
        ),
    ).filter(lambda value: isinstance(value, dict))
)  # fmt: skip
def test_any_event_is_read_or_refused(event: dict[str, Any]) -> None:
    answer = Answer()
    try:
        answer.take(event)
    except ValueError:
        return
    assert 0 <= answer.confidence("abc") <= 1


def wait_for(look: Any) -> None:
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
