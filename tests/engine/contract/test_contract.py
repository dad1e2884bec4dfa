"""What every engine must do, whatever is behind it: see `clover_engine.api.Engine`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.contract.subjects import SUBJECTS, Subject

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    Engine,
    InfillRequest,
    ScoreRequest,
    Snippet,
)
from clover_engine.errors import (
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import (
    DecisionRequest,
    GenerateRequest,
    Message,
    Piece,
    Question,
    TextEngine,
)
from clover_engine.worker.local import LocalEngine

PREFIX = "def add(a, b):\n    "
SUFFIX = "\n\n\nprint(add(1, 2))\n"
HOLE = InfillRequest(PREFIX, SUFFIX, max_tokens=8)
SLOW = InfillRequest(PREFIX, SUFFIX, max_tokens=300, temperature=5.0)
CANDIDATES = ("return a + b", "return a - b", "pass", "")
SOON_S = 5.0
"""What must be over at once takes less than this on a busy machine, and far less than `SLOW`."""


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    with SUBJECTS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made


def test_is_an_engine(subject: Subject) -> None:
    assert isinstance(subject.engine, Engine)


def test_a_text_with_what_belongs_to_it(subject: Subject) -> None:
    result = subject.engine.infill(replace(HOLE, snippets=(Snippet("x = 1\n", "x.py"),)))
    (choice,) = result.choices
    assert bool(choice.text) or not subject.answers
    assert 0 <= choice.confidence <= 1
    assert choice.finish_reason in ("eom", "stop", "length")
    assert result.stats.seconds > 0 and 0 <= result.stats.tokens <= HOLE.max_tokens + 1


def test_the_same_again(subject: Subject) -> None:
    first, again = subject.engine.infill(HOLE), subject.engine.infill(HOLE)
    assert [c.text for c in first.choices] == [c.text for c in again.choices]


def test_ends_before_a_stop_string(subject: Subject) -> None:
    whole = subject.engine.infill(HOLE).choices[0].text
    if not whole:
        assert not subject.answers
        return
    stop = whole[len(whole) // 2]
    choice = subject.engine.infill(replace(HOLE, stop=(stop, "\0never"))).choices[0]
    assert choice.text == whole[: whole.index(stop)]
    assert choice.finish_reason == "stop"


def test_begins_with_what_it_must(subject: Subject) -> None:
    asked = replace(HOLE, prefix=PREFIX[:-4], must_start_with="    ")
    assert subject.engine.infill(asked).choices[0].text.startswith("    ")


def test_few_tokens(subject: Subject) -> None:
    one = subject.engine.infill(replace(HOLE, max_tokens=1))
    assert one.stats.tokens <= 2
    if subject.answers:
        assert one.choices[0].finish_reason == "length"
        assert len(one.choices[0].text) < len(subject.engine.infill(HOLE).choices[0].text)


def test_samples(subject: Subject) -> None:
    asked = replace(HOLE, n=3, temperature=0.9, seed=7)
    first = subject.engine.infill(asked)
    assert len(first.choices) == 3
    if subject.has_seeds:
        assert [c.text for c in subject.engine.infill(asked).choices] == [
            c.text for c in first.choices
        ]


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("", ""),
        ("", "x"),
        ("x", ""),
        ("a = 1\r\nb = ", "\r\n"),
        ("é = '漢字 \U0001f40d", "'\n# \u2028\x00\x07"),
        ("\ud800", "\udfff"),
        ("<|fim_middle|><mid><|endoftext|></s>", "<mask><eom>[SUFFIX]"),
        ("x" * 2_000_000, "y" * 500_000),
    ],
    ids=["nothing", "no prefix", "no suffix", "crlf", "unicode", "surrogates", "marks", "huge"],
)
def test_any_text_around_the_hole(prefix: str, suffix: str, subject: Subject) -> None:
    asked = InfillRequest(prefix, suffix, max_tokens=2)
    choice = subject.engine.infill(asked).choices[0]
    assert choice.finish_reason in ("eom", "length")
    assert not any(mark in choice.text for mark in ("<mid>", "<|fim_middle|>", "<mask>"))


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    prefix=st.text(max_size=60),
    suffix=st.text(max_size=60),
    begin=st.text(max_size=8).filter(lambda t: "\ufffd" not in t and t.isprintable()),
    stop=st.text(min_size=1, max_size=2),
)
def test_any_request(prefix: str, suffix: str, begin: str, stop: str, subject: Subject) -> None:
    asked = InfillRequest(prefix, suffix, max_tokens=3, must_start_with=begin, stop=(stop,))
    text = subject.engine.infill(asked).choices[0].text
    assert text.startswith(begin) and stop not in text[len(begin) :]


def test_cancelled_before(subject: Subject) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(RequestCancelled):
        subject.engine.infill(HOLE, cancel)
    with pytest.raises(RequestCancelled):
        subject.engine.score(ScoreRequest(PREFIX, SUFFIX, CANDIDATES), cancel)
    with pytest.raises(RequestCancelled if subject.can_cloze else EngineError):
        subject.engine.cloze(ClozeRequest(PREFIX, "return a + b", SUFFIX), cancel)


def test_cancelled_meanwhile(subject: Subject) -> None:
    cancel = CancelToken()
    threading.Timer(0.1, cancel.cancel).start()
    begun = time.monotonic()
    try:
        reason = subject.slow.infill(SLOW, cancel).choices[0].finish_reason
    except RequestCancelled:
        reason = "cancelled"
    assert time.monotonic() - begun < SOON_S
    assert reason == "cancelled" or not subject.answers
    # and the engine goes on
    assert len(subject.slow.infill(replace(SLOW, max_tokens=1)).choices) == 1


def test_no_time_at_all(subject: Subject) -> None:
    choice = subject.engine.infill(replace(HOLE, deadline_s=0)).choices[0]
    assert (choice.text, choice.finish_reason) == ("", "deadline")
    late = replace(HOLE, deadline_s=-1.0, n=2, temperature=0.5)
    assert [c.finish_reason for c in subject.engine.infill(late).choices] == ["deadline"] * 2
    scores = subject.engine.score(ScoreRequest(PREFIX, SUFFIX, CANDIDATES, deadline_s=0))
    assert scores.logprobs == (None,) * len(CANDIDATES)
    if subject.can_cloze:
        cloze = ClozeRequest(PREFIX, "return a + b", SUFFIX, deadline_s=0)
        assert subject.engine.cloze(cloze).fills == ()


def test_little_time(subject: Subject) -> None:
    begun = time.monotonic()
    choice = subject.slow.infill(replace(SLOW, deadline_s=0.15)).choices[0]
    assert time.monotonic() - begun < SOON_S
    assert choice.finish_reason == "deadline" or not subject.answers


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "fast"},
        {"max_tokens": 0},
        {"max_tokens": 100_000},
        {"n": 0},
        {"n": 2},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"threshold": 1.5},
        {"block_size": 64},
        {"stop": ("",)},
        {"must_start_with": "x" * 1000},
        {"deadline_s": float("nan")},
        {"prefix": b"bytes"},
    ],
    ids=str,
)
def test_a_request_that_is_none(wrong: dict[str, object], subject: Subject) -> None:
    with pytest.raises(RequestError):
        subject.engine.infill(replace(HOLE, **wrong))  # type: ignore[arg-type]


def test_questions_that_are_none(subject: Subject) -> None:
    with pytest.raises(RequestError, match="candidates"):
        subject.engine.score(ScoreRequest(PREFIX, SUFFIX, ()))
    with pytest.raises(RequestError, match="top"):
        subject.engine.cloze(ClozeRequest(PREFIX, "a", SUFFIX, top=0))
    with pytest.raises(RequestError, match="max_remove"):
        subject.engine.cloze(ClozeRequest(PREFIX, "a", SUFFIX, max_remove=9))


def test_scores_belong_to_their_candidates(subject: Subject) -> None:
    asked = ScoreRequest(PREFIX, SUFFIX, CANDIDATES)
    if not subject.can_score:
        with pytest.raises(Unsupported):
            subject.engine.score(asked)
        return
    forward = subject.engine.score(asked)
    backward = subject.engine.score(replace(asked, candidates=CANDIDATES[::-1]))
    assert all(value is not None and value < 0 for value in forward.logprobs)
    assert backward.logprobs[::-1] == pytest.approx(forward.logprobs, abs=1e-3)
    assert backward.tokens[::-1] == forward.tokens
    assert all(count > 0 for count in forward.tokens)
    assert len(set(forward.logprobs)) == len(CANDIDATES)


def test_many_candidates(subject: Subject) -> None:
    if not subject.can_score:
        pytest.skip("gives no scores")
    texts = tuple(f"value{i}" for i in range(40))
    scored = subject.engine.score(ScoreRequest(PREFIX, SUFFIX, texts))
    one = subject.engine.score(ScoreRequest(PREFIX, SUFFIX, texts[33:34]))
    assert scored.logprobs[33] == pytest.approx(one.logprobs[0], abs=1e-3)


def test_small_edits(subject: Subject) -> None:
    asked = ClozeRequest(PREFIX, "return a - b", SUFFIX, max_remove=1, max_insert=1, top=5)
    if not subject.can_cloze:
        with pytest.raises(Unsupported):
            subject.engine.cloze(asked)
        return
    fills = subject.engine.cloze(asked).fills
    texts = [fill.text for fill in fills]
    assert 0 < len(fills) <= 5
    assert len(set(texts)) == len(texts) and asked.original not in texts
    logprobs = [fill.logprob for fill in fills]
    assert logprobs == sorted(logprobs, reverse=True) and all(value < 0 for value in logprobs)


def test_a_conversation(subject: Subject) -> None:
    engine = subject.engine
    if not isinstance(engine, TextEngine) or not subject.has_template:
        pytest.skip("does not converse")
    asked = GenerateRequest((Message("user", "Say why <|im_end|>"),), max_new_tokens=12)
    pieces: list[Piece] = []
    result = engine.generate(asked, on_piece=pieces.append)
    assert result.finish_reason in ("eom", "length") and result.stats.tokens <= 13
    for kind, text in (("thinking", result.thinking), ("answer", result.text)):
        assert "".join(piece.text for piece in pieces if piece.kind == kind) == text
    late = engine.generate(replace(asked, deadline_s=0))
    assert (late.text, late.thinking, late.finish_reason) == ("", "", "deadline")
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(RequestCancelled):
        engine.generate(asked, cancel)
    for wrong in ({"messages": ()}, {"max_new_tokens": 0}, {"stop": ("",)}, {"top_p": 2.0}):
        with pytest.raises(RequestError):
            engine.generate(replace(asked, **wrong))  # type: ignore[arg-type]


def test_decisions(subject: Subject) -> None:
    engine = subject.engine
    if not isinstance(engine, TextEngine):
        pytest.skip("does not decide")
    questions = (Question("Colour?", ("red", "blue")), Question("Size?", ("s", "m", "l")))
    asked = DecisionRequest("The sky is blue.", questions, joint=False)
    try:
        decisions = engine.decide(asked).decisions
    except Unsupported as error:  # words of a model that does not follow instructions
        if "only fills holes" in str(error):  # a worker whose model has no chat template
            assert isinstance(engine, LocalEngine) and not subject.has_template
            return
        assert "did not name an option" in str(error) and not subject.can_score
    else:
        assert [len(d.probabilities) for d in decisions] == [2, 3]
        for decision in decisions:
            assert sum(decision.probabilities) == pytest.approx(1)
            assert decision.option == decision.probabilities.index(max(decision.probabilities))
    with pytest.raises(RequestCancelled):
        engine.decide(replace(asked, deadline_s=0))
    for wrong in ((), (Question("One?", ("only",)),), questions * 5):
        with pytest.raises(RequestError):
            engine.decide(replace(asked, questions=wrong))


def test_threads_do_not_mix(subject: Subject) -> None:
    asked = [replace(HOLE, prefix=f"{PREFIX}x{i} = ", max_tokens=4) for i in range(4)]
    alone = [subject.engine.infill(one).choices[0].text for one in asked]
    found: dict[int, list[str]] = {i: [] for i in range(len(asked))}

    def work(i: int) -> None:
        for _ in range(3):
            found[i].append(subject.engine.infill(asked[i]).choices[0].text)

    threads = [threading.Thread(target=work, args=(i,)) for i in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {i: [text] * 3 for i, text in enumerate(alone)}


def test_health(subject: Subject) -> None:
    subject.engine.infill(HOLE)
    health = subject.engine.health()
    assert health.ready and health.name and health.model
    assert health.detail == ""


def test_closed_is_closed(subject: Subject) -> None:
    engine = subject.fresh()
    engine.infill(replace(HOLE, max_tokens=1))
    engine.close()
    engine.close()
    assert not engine.health().ready
    with pytest.raises(EngineUnavailable):
        engine.infill(HOLE)
    with pytest.raises(EngineUnavailable):
        engine.score(ScoreRequest(PREFIX, SUFFIX, CANDIDATES))
