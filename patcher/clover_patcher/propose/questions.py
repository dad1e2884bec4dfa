"""What the model is asked about the candidates, in which order, and what its answers change.

A question is about one slot: score the likeliest contents not scored yet, or propose new ones.
Questions run one at a time in a thread of their own. The next one is always about the slot that
holds the best candidate without a score, so that the model's time goes where it can still matter.
"""

from __future__ import annotations

import heapq
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from clover_engine.api import CancelToken, ClozeRequest, Engine, ScoreRequest
from clover_engine.errors import EngineError, RequestCancelled, Unsupported
from clover_engine.line_ends import to_lf
from clover_patcher.propose.pool import CandidatePool, SlotItems, plain_fill
from clover_patcher.propose.rank import model_scores

_CALL_S = 8.0
_LEAST_WAIT_S = 0.02
_CONTEXT = 20_000
"""Characters on each side of a slot that are handed to the engine; it keeps what it needs."""


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How much the model is asked."""

    chunk: int = 48
    """Contents of one slot that are scored in one question."""
    cloze_lines: int = 6
    """Lines for which the model is asked for contents of its own."""
    cloze_top: int = 32
    cloze_delay: float = 3.0
    """How much better a line's templates must be than the next one's before that, in nats."""
    insert_delay: float = 1.0
    """The same for scoring new lines before changed ones."""


@dataclass(frozen=True, slots=True)
class _Question:
    slots: SlotItems
    cloze: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    question: _Question
    logprobs: dict[str, float]
    fills: tuple[str, ...] = ()
    model: str = ""
    """Which one answered."""


class Questions:
    """The engine's side of a search. Without an engine it has nothing to ask."""

    def __init__(
        self,
        pool: CandidatePool,
        engine: Engine | None,
        cancel: CancelToken,
        thread: ThreadPoolExecutor,
        options: AskOptions,
    ) -> None:
        self._pool, self._engine, self._cancel = pool, engine, cancel
        self._thread, self._options = thread, options
        self._queue: list[tuple[float, int, _Question]] = []
        self._made = 0
        self._cloze_left = options.cloze_lines
        self._running: tuple[_Question, Future[_Answer]] | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing is running and nothing is left to ask."""
        return self._running is None and (self._engine is None or not self._queue)

    def plan(self, slots: SlotItems) -> None:
        """Puts the questions about a new slot in the queue."""
        if self._engine is None:
            return
        self._plan_score(slots)
        if not slots.slot.inserts and self._cloze_left:
            self._cloze_left -= 1
            best = max(item.priority for item in slots.items)
            self._push(_Question(slots, cloze=True), best - self._options.cloze_delay)

    def run(self, answers: int, wait: float, deadline: float) -> None:
        """Keeps the engine busy and takes in up to `answers` answers that come in time."""
        until = min(time.monotonic() + wait, deadline)
        for _ in range(answers):
            if not self._start(deadline) or not self._finish(until):
                return
        self._start(deadline)

    def stop(self) -> None:
        """Asks no more."""
        self._engine = None
        self._cancel.cancel()

    def _plan_score(self, slots: SlotItems) -> None:
        left = [i.priority for i in slots.items if i.score is None and not i.gone]
        if left:
            delay = self._options.insert_delay if slots.slot.inserts else 0.0
            self._push(_Question(slots, cloze=False), max(left) - delay)

    def _push(self, question: _Question, urgency: float) -> None:
        heapq.heappush(self._queue, (-urgency, self._made, question))
        self._made += 1

    def _start(self, deadline: float) -> bool:
        """Whether a question is running, after trying to start the most urgent one."""
        while self._running is None and self._engine is not None and self._queue:
            question = heapq.heappop(self._queue)[2]
            texts = () if question.cloze else self._texts(question.slots)
            if texts or question.cloze:
                limit = max(0.1, min(_CALL_S, deadline - time.monotonic()))
                call = self._thread.submit(self._ask, self._engine, question, texts, limit)
                self._running = (question, call)
        return self._running is not None

    def _texts(self, slots: SlotItems) -> tuple[str, ...]:
        """The likeliest valid contents without a score; at first also what stands there now."""
        texts: dict[str, None] = {}
        original = to_lf(slots.slot.original)
        if original not in slots.logprobs:
            texts[original] = None
        waiting = [item for item in slots.items if item.score is None and not item.gone]
        for item in sorted(waiting, key=lambda item: -item.priority):
            if len(texts) >= self._options.chunk:
                break
            if self._pool.check(item):
                texts.setdefault(plain_fill(item.proposal))
        return () if set(texts) <= {original} else tuple(texts)

    def _ask(
        self, engine: Engine, question: _Question, texts: tuple[str, ...], limit: float
    ) -> _Answer:
        """Runs in the thread: new contents, which bring their scores, or the scores of `texts`."""
        prefix, suffix, original = _context(question.slots)
        if question.cloze:
            top = self._options.cloze_top
            request = ClozeRequest(prefix, original, suffix, top=top, deadline_s=limit)
            filled = engine.cloze(request, self._cancel)
            fills = {f.text: f.logprob for f in filled.fills}
            return _Answer(question, fills, tuple(fills), filled.model)
        score = ScoreRequest(prefix, suffix, texts, original, limit)
        scored = engine.score(score, self._cancel)
        pairs = zip(texts, scored.logprobs, strict=True)
        return _Answer(question, {t: v for t, v in pairs if v is not None}, model=scored.model)

    def _finish(self, until: float) -> bool:
        """Takes in the running question's answer; False if it is not there in time."""
        assert self._running is not None
        question, call = self._running
        try:
            answer = call.result(max(_LEAST_WAIT_S, until - time.monotonic()))
        except FutureTimeout:
            return False
        except Unsupported as exc:
            self._running = None
            self._note(f"{exc}; candidates are less well ranked")
            return True
        except (EngineError, OSError) as exc:
            self._running, self._engine = None, None
            if not isinstance(exc, RequestCancelled):
                note = f"the engine failed, candidates are unranked from here: {exc}"
                self._pool.notes.append(note)
            return True
        self._running = None
        self._take_in(answer)
        if not question.cloze and answer.logprobs:
            self._plan_score(question.slots)
        return True

    def _note(self, note: str) -> None:
        if note not in self._pool.notes:
            self._pool.notes.append(note)

    def _take_in(self, answer: _Answer) -> None:
        slots = answer.question.slots
        slots.logprobs.update(answer.logprobs)
        known = {plain_fill(item.proposal) for item in slots.items}
        for rank, text in enumerate(text for text in answer.fills if text not in known):
            self._pool.add_fill(slots, text, "cloze", 1.0 / (2 + rank), answer.model)
        scores = model_scores(slots.logprobs, to_lf(slots.slot.original))
        for item in slots.items:
            text = plain_fill(item.proposal)
            if text in answer.logprobs and not item.gone:
                item.ranked_by = answer.model
            if (score := scores.get(text)) is not None:
                self._pool.score(item, score)


def _context(slots: SlotItems) -> tuple[str, str, str]:
    """What stands before, after and in the slot, with plain line ends."""
    slot, source = slots.slot, slots.source
    before = source.slice(0, slot.start)[-_CONTEXT:] + slot.lead
    after = slot.tail + source.slice(slot.end, len(source.code))[:_CONTEXT]
    return to_lf(before), to_lf(after), to_lf(slot.original)
