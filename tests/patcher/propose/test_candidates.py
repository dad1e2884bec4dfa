"""Laws that every candidate obeys, whatever the file, and how the engine's answers are used."""

from __future__ import annotations

import ast
import math
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patcher.samples import CLASSES, SEARCH, locations, result, tree

from clover_engine.api import (
    CancelToken,
    ClozeFill,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable
from clover_patcher.propose.source import CandidateSource, Options
from clover_patcher.types import Candidate, Location


class Scripted:
    """An engine that answers from plain functions and remembers what it was asked."""

    def __init__(
        self,
        score: Callable[[str], float | None] = lambda text: -float(len(text)),
        fills: Sequence[str] = (),
        error: EngineError | None = None,
    ) -> None:
        self._score, self._fills, self._error = score, fills, error
        self.asked: list[ScoreRequest | ClozeRequest] = []

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        self._begin(request)
        logprobs = tuple(self._score(text) for text in request.candidates)
        return ScoreResult(logprobs, tuple(1 for _ in logprobs), DecodeStats(forward_passes=1))

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        self._begin(request)
        scored = [(text, self._score(text)) for text in self._fills]
        return ClozeResult(tuple(ClozeFill(t, s) for t, s in scored if s is not None))

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        raise NotImplementedError

    def health(self) -> Health:
        return Health(True, "scripted")

    def close(self) -> None:
        pass

    def _begin(self, request: ScoreRequest | ClozeRequest) -> None:
        self.asked.append(request)
        if self._error:
            raise self._error


PATIENT = Options(first_wait_s=30.0, wait_s=30.0)


def gather(
    content: bytes,
    where: Sequence[Location] | None = None,
    engine: Scripted | None = None,
    limit: int = 100_000,
) -> list[Candidate]:
    source = CandidateSource(
        {"a.py": content}, where or locations("a.py", content), engine, options=PATIENT
    )
    found: list[Candidate] = []
    for batch in source.batches(time.monotonic() + 120):
        found.extend(batch)
        if len(found) >= limit:
            break
    return found[:limit]


def at(content: bytes, text: bytes, score: float = 1.0) -> Location:
    """The location of the first line that contains the text."""
    return Location("a.py", content[: content.index(text)].count(b"\n") + 1, score)


@pytest.mark.parametrize("content", [SEARCH, CLASSES], ids=["functions", "classes"])
def test_every_candidate_parses_differs_and_is_new(content: bytes) -> None:
    found = gather(content)
    before = tree(content)
    results = [result(content, candidate) for candidate in found]
    assert len(found) > 3000
    assert len(set(results)) == len(results)
    for index, (candidate, after) in enumerate(zip(found, results, strict=True)):
        if index % 5 == 0:  # the tree's text takes its time
            assert tree(after) != before, candidate
        else:
            ast.parse(after)


def test_order_is_the_same_every_time() -> None:
    first, second = gather(SEARCH), gather(SEARCH)
    assert first == second
    best_later = -math.inf
    for candidate in reversed(first):  # a line is opened for what its best one has as a rule
        assert candidate.priority > best_later - 1.0
        best_later = max(best_later, candidate.priority)


def test_order_is_the_same_every_time_with_an_engine() -> None:
    runs = [gather(SEARCH, engine=Scripted(fills=["return low + 9"])) for _ in range(2)]
    assert runs[0] == runs[1]


@settings(max_examples=15, deadline=None)
@given(
    eol=st.sampled_from([b"\n", b"\r\n"]),
    bom=st.booleans(),
    tabs=st.booleans(),
    final=st.booleans(),
    comment=st.sampled_from(["", "# é", "# 漢字 \U0001f600"]),
    line=st.integers(1, 25),
)
def test_bytes_outside_the_edit_stay(
    eol: bytes, bom: bool, tabs: bool, final: bool, comment: str, line: int
) -> None:
    text = SEARCH.replace(b"# a comment", comment.encode() or b"#")
    text = (b"s = '" + comment.encode() + b"'\n" + text) if comment else text
    text = text.replace(b"    ", b"\t") if tabs else text
    text = text if final else text.rstrip(b"\n")
    text = (b"\xef\xbb\xbf" if bom else b"") + text.replace(b"\n", eol)
    for candidate in gather(text, [Location("a.py", line, 1.0)]):
        (edit,) = candidate.edits
        assert edit.start >= 3 * bom
        after = result(text, candidate)
        assert after[: edit.start] == text[: edit.start]
        assert after[len(after) - (len(text) - edit.end) :] == text[edit.end :]
        assert after.count(b"\r") == (after.count(b"\n") if eol == b"\r\n" else 0)
        assert tree(after) != tree(text)


def test_other_encodings_are_kept() -> None:
    text = "# -*- coding: latin-1 -*-\ndef f(é, b):\n    s = 'ü'; return é + b\n".encode("latin-1")
    found = gather(text)
    assert any(result(text, c).endswith("return é - b\n".encode("latin-1")) for c in found)
    for candidate in found:
        tree(result(text, candidate))


@pytest.mark.parametrize(
    "content",
    [
        b"# coding: latin-1\nx = '\xff'\ny = 1\r",
        b"# coding: no-such-codec\nx = 1\n",
        b"x = '\xff'\n",
        b"x = '\0'\n",
        b"",
        b"\n\n",
    ],
)
def test_files_that_cannot_be_edited_exactly_give_nothing(content: bytes) -> None:
    assert gather(content, [Location("a.py", 1, 1.0), Location("a.py", 99, 1.0)]) == []


def test_undecodable_files_are_noted() -> None:
    source = CandidateSource({"a.py": b"x = '\xff'\n"}, [], None)
    assert "a.py" in source.notes[0]


def test_lines_of_missing_files_are_ignored() -> None:
    assert gather(SEARCH, [Location("b.py", 1, 1.0)]) == []


def test_suspicious_lines_come_first() -> None:
    where = [at(SEARCH, b"lo = mid", 1.0), at(SEARCH, b"return -1", 0.01)]
    found = gather(SEARCH, where, limit=40)
    assert {candidate.line for candidate in found} <= {where[0].line, where[0].line + 1}


def test_other_lines_of_a_suspicious_statement_are_suspicious() -> None:
    content = b"def f(a, b):\n    return max(\n        a,  # first\n        b,\n    )\n"
    found = gather(content, [Location("a.py", 2, 1.0)])
    assert any(result(content, c) == content.replace(b" b,\n", b" b + 1,\n") for c in found)


def test_scores_decide_the_order_within_a_line() -> None:
    engine = Scripted(lambda text: 0.0 if text == "lo = mid + 1" else -50.0)
    where = [at(SEARCH, b"lo = mid")]
    before = [c.text for c in gather(SEARCH, where)].index("lo = mid + 1")
    found = gather(SEARCH, where, engine)
    place = [c.text for c in found].index("lo = mid + 1")
    assert place < before
    assert found[place].logprob == 0.0


def test_requests_show_the_line_in_its_place_with_plain_line_ends() -> None:
    engine = Scripted()
    content = SEARCH.replace(b"\n", b"\r\n")
    gather(content, [at(content, b"lo = mid")], engine, limit=10)
    request = engine.asked[0]
    assert isinstance(request, ScoreRequest)
    assert request.original == "lo = mid"
    assert request.prefix.endswith("elif items[mid][1:] < target:\n            ")
    assert request.suffix.startswith("\n        else:\n")
    assert "\r" not in request.prefix + request.suffix
    assert all("\r" not in text and text.strip() == text for text in request.candidates)


def test_new_lines_are_scored_where_they_go() -> None:
    engine = Scripted()
    gather(SEARCH, [at(SEARCH, b"lo = mid")], engine)
    fresh = [r for r in engine.asked if isinstance(r, ScoreRequest) and r.original == ""]
    assert any(
        r.prefix.endswith("< target:\n            ")
        and r.suffix.startswith("\n            lo = mid")
        for r in fresh
    )


def test_model_fills_become_candidates_once_and_only_if_valid() -> None:
    fills = ["lo = mid + hi * 3", "lo = (", "lo  =  mid", "lo = mid + 1"]
    found = gather(SEARCH, [at(SEARCH, b"lo = mid")], Scripted(fills=fills))
    texts = [candidate.text for candidate in found]
    assert texts.count("lo = mid + hi * 3") == 1
    assert texts.count("lo = mid + 1") == 1
    assert "lo = (" not in texts and "lo  =  mid" not in texts
    assert {c.kind for c in found if c.text == "lo = mid + hi * 3"} == {"cloze"}


@pytest.mark.parametrize("error", [EngineCrashed("gone"), EngineUnavailable("no torch")])
def test_a_failing_engine_leaves_the_templates(error: EngineError) -> None:
    engine = Scripted(error=error)
    source = CandidateSource({"a.py": SEARCH}, locations("a.py", SEARCH), engine)
    found = [c for batch in source.batches(time.monotonic() + 60) for c in batch]
    assert len(found) > 3000
    assert str(error) in source.notes[0]
    assert len(engine.asked) == 1


def test_the_engine_sees_nothing_of_unread_files() -> None:
    engine = Scripted()
    files = {"a.py": SEARCH, "secret.py": SEARCH.replace(b"mid", b"hidden")}
    places = [*locations("a.py", SEARCH), *locations("secret.py", files["secret.py"])]
    source = CandidateSource(files, places, engine, withheld=lambda path: path == "secret.py")
    found = [c for batch in source.batches(time.monotonic() + 60) for c in batch]
    assert {c.path for c in found} == {"a.py", "secret.py"}
    assert engine.asked and "hidden" not in repr(engine.asked)


def test_scores_that_the_deadline_cut_off_leave_the_prior() -> None:
    found = gather(SEARCH, [at(SEARCH, b"lo = mid")], Scripted(lambda text: None), limit=5)
    assert [candidate.logprob for candidate in found] == [None] * 5


def test_the_first_batch_does_not_wait_for_a_slow_engine() -> None:
    answer = threading.Event()
    engine = Scripted(lambda text: -1.0 if answer.wait(60) else None)
    source = CandidateSource({"a.py": SEARCH}, locations("a.py", SEARCH), engine)
    batches = source.batches(time.monotonic() + 60)
    first = next(batches)
    assert engine.asked and not answer.is_set()
    assert [candidate.logprob for candidate in first] == [None] * len(first)
    answer.set()
    batches.close()


def test_the_deadline_ends_it() -> None:
    source = CandidateSource({"a.py": SEARCH}, locations("a.py", SEARCH), None)
    assert list(source.batches(time.monotonic() - 1)) == []


def test_cancelling_ends_it() -> None:
    cancel = CancelToken()
    source = CandidateSource({"a.py": SEARCH}, locations("a.py", SEARCH), None, cancel)
    batches = source.batches(time.monotonic() + 60)
    next(batches)
    cancel.cancel()
    assert list(batches) == []


def test_batches_have_the_asked_size() -> None:
    source = CandidateSource(
        {"a.py": SEARCH}, locations("a.py", SEARCH), None, options=Options(batch=5)
    )
    assert len(next(source.batches(time.monotonic() + 60))) == 5


def test_engine_use_is_counted() -> None:
    engine = Scripted()
    source = CandidateSource({"a.py": SEARCH}, [at(SEARCH, b"lo = mid")], engine)
    list(source.batches(time.monotonic() + 60))
    assert source.use.calls == len(engine.asked)
    assert source.use.forward_passes > 0
