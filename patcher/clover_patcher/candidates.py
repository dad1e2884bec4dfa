"""Where the candidates of a repair come from, best first.

Templates enumerate edits of the suspicious lines; the model scores them line by line and adds
its own fills, in a thread of its own so that candidates can be tried meanwhile. A candidate has
its template's priority until its line is scored.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from clover_engine.api import (
    CancelToken,
    ClozeFill,
    ClozeRequest,
    DecodeStats,
    Engine,
    ScoreRequest,
)
from clover_engine.errors import EngineError, RequestCancelled

from .pool import CandidatePool, HoleItems, plain_fill
from .rank import DEFAULT, Weights, model_scores
from .types import Candidate, EngineUse, Location

_LINES_AHEAD = 12
_CALL_S = 8.0
_CONTEXT = 20_000
"""Characters on each side of a hole that are handed to the engine; it keeps what it needs."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the search is paced; the defaults suit checks of tens of milliseconds."""

    batch: int = 8
    scored_per_hole: int = 320
    cloze_lines: int = 8
    cloze_top: int = 40
    first_wait_s: float = 1.0
    """How long the first batch waits for the engine; later ones wait `wait_s`."""
    wait_s: float = 0.25
    answers_per_batch: int = 2
    weights: Weights = DEFAULT


@dataclass(frozen=True, slots=True)
class _Job:
    """One question to the engine about one hole."""

    holes: HoleItems
    cloze: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    job: _Job
    fills: tuple[ClozeFill, ...]
    logprobs: tuple[float | None, ...]
    texts: tuple[str, ...]


class CandidateSource:
    """Candidates for the suspicious lines of some files, most promising first.

    `files` maps repository-relative paths to the bytes that stand there now. Without an engine,
    and after the engine fails, candidates keep the order that templates and locations give;
    `notes` says so. `cancel` ends the search from outside, and is cancelled when it ends.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        locations: Sequence[Location],
        engine: Engine | None,
        cancel: CancelToken | None = None,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self.pool = CandidatePool(files, locations, self._options.weights)
        self._engine = engine
        self._cancel = cancel or CancelToken()
        self._jobs: list[tuple[float, int, _Job]] = []
        self._made = 0
        self._cloze_left = self._options.cloze_lines
        self._running: Future[_Answer] | None = None
        self._stats = DecodeStats()
        self._calls = 0
        self._seconds = 0.0

    @property
    def notes(self) -> list[str]:
        """What went wrong on the way, in words."""
        return self.pool.notes

    @property
    def use(self) -> EngineUse:
        """The engine's part so far."""
        return EngineUse(self._calls, self._stats.forward_passes, round(self._seconds, 3))

    def batches(self, deadline: float) -> Iterator[list[Candidate]]:
        """Candidates until there are none left or `time.monotonic()` passes the deadline."""
        with ThreadPoolExecutor(1, thread_name_prefix="candidates") as thread:
            wait = self._options.first_wait_s
            try:
                while time.monotonic() < deadline and not self._cancel.cancelled:
                    self._open_lines()
                    self._ask(thread, deadline, wait)
                    batch = self._batch(deadline)
                    if batch:
                        yield batch
                    elif self._running is None and (self._engine is None or not self._jobs):
                        return
                    wait = self._options.wait_s if batch else self._options.first_wait_s
            finally:
                self._engine = None
                self._cancel.cancel()

    def _open_lines(self) -> None:
        """Makes the candidates of lines that could hold something better than what is queued."""
        for _ in range(_LINES_AHEAD):
            best, bound = self.pool.best, self.pool.bound
            if bound is None or (best is not None and best >= bound):
                return
            for holes in self.pool.open_line():
                self._plan(holes)

    def _plan(self, holes: HoleItems) -> None:
        if self._engine is None:
            return
        urgency = max(item.priority for item in holes.items)
        self._queue(_Job(holes, cloze=False), urgency - (2.0 if holes.hole.inserts else 0.0))
        if not holes.hole.inserts and self._cloze_left:
            self._cloze_left -= 1
            self._queue(_Job(holes, cloze=True), urgency - 1.0)

    def _queue(self, job: _Job, urgency: float) -> None:
        heapq.heappush(self._jobs, (-urgency, self._made, job))
        self._made += 1

    def _ask(self, thread: ThreadPoolExecutor, deadline: float, wait: float) -> None:
        """Keeps the engine busy; takes in its answers that come within `wait` seconds."""
        until = min(time.monotonic() + wait, deadline)
        for _ in range(self._options.answers_per_batch):
            if self._running is None and not self._start(thread, deadline):
                return
            if not self._finish(until):
                return
        self._start(thread, deadline)

    def _start(self, thread: ThreadPoolExecutor, deadline: float) -> bool:
        while self._engine is not None and self._jobs:
            job = heapq.heappop(self._jobs)[2]
            texts = () if job.cloze else self._texts(job.holes)
            if texts or job.cloze:
                limit = max(0.1, min(_CALL_S, deadline - time.monotonic()))
                self._running = thread.submit(self._call, self._engine, job, texts, limit)
                return True
        return False

    def _texts(self, holes: HoleItems) -> tuple[str, ...]:
        """The hole's likeliest valid contents, after what stands there now."""
        valid: dict[str, None] = {_plain(holes.hole.original): None}
        for item in sorted(holes.items, key=lambda item: -item.priority):
            if not item.gone and self.pool.check(item):
                valid.setdefault(plain_fill(item.proposal))
            if len(valid) > self._options.scored_per_hole:
                break
        return tuple(valid) if len(valid) > 1 else ()

    def _call(self, engine: Engine, job: _Job, texts: tuple[str, ...], limit: float) -> _Answer:
        """Runs in the thread: fills first where they are asked for, then scores."""
        prefix, suffix, original = _context(job.holes)
        started = time.monotonic()
        fills: tuple[ClozeFill, ...] = ()
        try:
            if job.cloze:
                request = ClozeRequest(
                    prefix, original, suffix, top=self._options.cloze_top, deadline_s=limit
                )
                cloze = engine.cloze(request, self._cancel)
                self._count(cloze.stats)
                known = {plain_fill(item.proposal) for item in job.holes.items}
                fills = tuple(f for f in cloze.fills if f.text not in known)
                texts = tuple(fill.text for fill in fills)
                limit = max(0.1, limit - (time.monotonic() - started))
            if not texts:
                return _Answer(job, fills, (), ())
            scored = engine.score(
                ScoreRequest(prefix, suffix, texts, original, limit), self._cancel
            )
            self._count(scored.stats)
            return _Answer(job, fills, scored.logprobs, texts)
        finally:
            self._seconds += time.monotonic() - started

    def _count(self, stats: DecodeStats) -> None:
        self._calls += 1
        self._stats += stats

    def _finish(self, until: float) -> bool:
        """Takes in the running call's answer; False if it is not there in time."""
        assert self._running is not None
        try:
            answer = self._running.result(max(0.0, until - time.monotonic()))
        except FutureTimeout:
            return False
        except RequestCancelled:
            self._engine, self._running = None, None
            return True
        except EngineError as exc:
            self.pool.notes.append(f"the engine failed, candidates are unranked from here: {exc}")
            self._engine, self._running = None, None
            return True
        self._running = None
        self._take_in(answer)
        return True

    def _take_in(self, answer: _Answer) -> None:
        holes = answer.job.holes
        for rank, fill in enumerate(answer.fills):
            self.pool.add_fill(holes, fill.text, "cloze", 1.0 / (2 + rank))
        holes.logprobs.update(
            (text, value)
            for text, value in zip(answer.texts, answer.logprobs, strict=False)
            if value is not None
        )
        scores = model_scores(holes.logprobs, _plain(holes.hole.original))
        for item in holes.items:
            if (score := scores.get(plain_fill(item.proposal))) is not None:
                self.pool.score(item, score)

    def _batch(self, deadline: float) -> list[Candidate]:
        batch: list[Candidate] = []
        while len(batch) < self._options.batch and time.monotonic() < deadline:
            best, bound = self.pool.best, self.pool.bound
            if bound is not None and (best is None or best < bound):
                for holes in self.pool.open_line():
                    self._plan(holes)
                continue
            candidate = self.pool.take() if best is not None else None
            if candidate is None:
                break
            batch.append(candidate)
        return batch


def _context(holes: HoleItems) -> tuple[str, str, str]:
    """What stands before, after and in the hole, with plain line ends."""
    hole, source = holes.hole, holes.source
    before = source.slice(0, hole.start)[-_CONTEXT:] + hole.lead
    after = hole.tail + source.slice(hole.end, len(source.code))[:_CONTEXT]
    return _plain(before), _plain(after), _plain(hole.original)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
