"""Candidates are made in one thread, tried in others, and stop when they should."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.errors import CheckpointError
from clover_patcher.progress import Clock
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.types import Candidate, Edit, Outcome
from clover_patcher.validate.feed import Feed, Verdict
from clover_patcher.validate.validator import Validator


def candidate(number: int) -> Candidate:
    return Candidate((Edit("a.py", number, number, b"x"),), 1, "cloze", str(number))


class FakeRunner:
    """Passes candidate 7; remembers what it was asked, and whether it was asked twice at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.seen: list[int] = []
        self.busy = threading.Lock()

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome:
        assert self.busy.acquire(blocking=False)
        time.sleep(self.seconds)
        self.seen.append(edits[0].start)
        self.busy.release()
        return Outcome("passed" if edits[0].start == 7 else "failed", self.seconds)


def test_all_runners_work_and_nothing_is_lost() -> None:
    runners = [FakeRunner(0.002), FakeRunner(0.002)]
    feed = Feed([[candidate(n) for n in range(5)], [], [candidate(n) for n in range(5, 12)]])
    with Validator(runners) as validator:
        done = list(validator.run(feed.candidates(Clock(10))))
    assert sorted(v.candidate.edits[0].start for v in done) == list(range(12))
    assert all(len(runner.seen) > 1 for runner in runners)
    assert [v.candidate.text for v in done if v.outcome.status == "passed"] == ["7"]
    assert feed.exhausted


def test_candidates_stop_at_the_deadline_and_go_on_later() -> None:
    def endless() -> Iterator[list[Candidate]]:
        number = 0
        while True:
            yield [candidate(number), candidate(number + 1)]
            number += 2

    feed, clock = Feed(endless()), Clock(10)
    first = feed.candidates(clock)
    assert [next(first).text for _ in range(3)] == ["0", "1", "2"]
    clock.hurry(0)
    assert list(first) == []
    clock.relax()
    assert next(feed.candidates(clock)).text == "3"
    assert not feed.exhausted
    feed.stop()


def test_waiting_for_a_slow_batch_ends_at_the_deadline() -> None:
    release = threading.Event()

    def slow() -> Iterator[list[Candidate]]:
        release.wait(10)
        yield [candidate(1)]

    feed = Feed(slow())
    started = time.monotonic()
    assert not any(feed.candidates(Clock(0.1)))
    assert time.monotonic() - started < 1
    feed.stop()
    release.set()


def test_an_error_in_the_making_reaches_the_reader() -> None:
    def broken() -> Iterator[list[Candidate]]:
        yield [candidate(1)]
        raise LookupError("no model")

    feed = Feed(broken())
    reader = feed.candidates(Clock(10))
    assert next(reader).text == "1"
    with pytest.raises(LookupError, match="no model"):
        next(reader)


def test_an_error_of_a_runner_reaches_the_reader() -> None:
    class Broken:
        def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome:
            raise OSError("disk full")

    with Validator([Broken()]) as validator, pytest.raises(OSError, match="disk full"):
        list(validator.run(iter([candidate(1)])))


class FakeEngine:
    """Answers everything with nothing and counts one forward pass."""

    def __init__(self) -> None:
        self.tokens: list[CancelToken | None] = []

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        raise TimeoutError

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        self.tokens.append(cancel)
        return ScoreResult((), (), DecodeStats(forward_passes=3, tokens=5))

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        self.tokens.append(cancel)
        return ClozeResult((), DecodeStats(forward_passes=4))

    def health(self) -> Health:
        return Health(True, "fake")

    def close(self) -> None:
        raise AssertionError("the owner closes it")


def test_the_meter_counts_failed_calls_too() -> None:
    engine = FakeEngine()
    metered = MeteredEngine(engine, CancelToken())
    metered.score(ScoreRequest("", "", ("a",)))
    metered.cloze(ClozeRequest("", "a", ""))
    with pytest.raises(TimeoutError):
        metered.infill(InfillRequest(""))
    metered.close()
    assert (metered.use.calls, metered.use.forward_passes) == (3, 7)
    assert metered.use.extra["tokens"] == 5
    assert metered.health().name == "fake"


def test_the_meters_token_stops_a_call_without_one() -> None:
    engine, ours, theirs = FakeEngine(), CancelToken(), CancelToken()
    metered = MeteredEngine(engine, ours)
    metered.score(ScoreRequest("", "", ("a",)))
    metered.score(ScoreRequest("", "", ("a",)), theirs)
    assert engine.tokens == [ours, theirs]


def test_warming_up_reports_what_the_engine_raises() -> None:
    metered = MeteredEngine(FakeEngine(), CancelToken())
    metered.warm_up()
    metered.require_ready()
    assert metered.use.detail == "fake"

    class Broken(FakeEngine):
        def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
            raise CheckpointError("no weights")

    metered = MeteredEngine(Broken(), CancelToken())
    metered.warm_up()
    with pytest.raises(CheckpointError):
        metered.require_ready()
    assert metered.use.detail == ""
    MeteredEngine(Broken(), CancelToken()).require_ready(wait=False)


def test_candidates_can_be_put_off_and_come_back() -> None:
    feed, clock = Feed([[candidate(n) for n in range(6)]]), Clock(10)

    def odd(item: Candidate) -> Verdict:
        return "stop" if item.text == "4" else "try" if int(item.text) % 2 else "put off"

    assert [c.text for c in feed.candidates(clock, odd)] == ["1", "3"]
    assert not feed.exhausted
    assert [c.text for c in feed.candidates(clock)] == ["0", "2", "4", "5"]
    assert feed.exhausted


def test_a_slow_stream_does_not_hold_up_another_one() -> None:
    release = threading.Event()

    def slow() -> Iterator[list[Candidate]]:
        release.wait(10)
        yield [candidate(9)]

    feed = Feed(slow(), [[candidate(1)], [candidate(2)]])
    reader = feed.candidates(Clock(10))
    assert [next(reader).text for _ in range(2)] == ["1", "2"]
    assert not feed.exhausted
    release.set()
    assert [c.text for c in reader] == ["9"]
    assert feed.exhausted


def test_batches_are_made_only_a_little_ahead() -> None:
    made: list[int] = []

    def counted() -> Iterator[list[Candidate]]:
        for number in range(100):
            made.append(number)
            yield [candidate(number)]

    feed = Feed(counted())
    reader = feed.candidates(Clock(10))
    for number in range(5):
        assert next(reader).text == str(number)
        assert len(made) <= number + 4
    feed.stop()
