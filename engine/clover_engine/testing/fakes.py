"""Fakes for tests of everything that uses an engine. They ship with the package.

`FakeEngine` implements the `Engine` protocol without a model: scripted texts, deterministic
scores, a controllable pace, and faults. It runs in the caller's process, or behind the real
worker protocol with ``python -m clover_engine.worker --fake '{"step_s": 0.01}'``.

Faults are asked for by a marker anywhere in a request's prefix:

=============  ====================================================================
``@@crash@@``  the process dies at once (in the caller's process: `EngineCrashed`)
``@@hang@@``   sleeps for an hour and looks at nothing (a caller's process is spared)
``@@raise@@``  raises `RuntimeError`, as a bug in the model would
``@@noise@@``  prints rubbish on standard output, then answers as usual
=============  ====================================================================
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clover_engine.api import (
    CancelToken,
    ClozeFill,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    FinishReason,
    Health,
    Infill,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.errors import EngineCrashed, EngineUnavailable, RequestCancelled
from clover_engine.generation import (
    Decision,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    Piece,
)
from clover_engine.validation import check_request

_PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


def pieces(text: str) -> list[str]:
    """The fake's tokens: words and single signs with the blanks before them."""
    return _PIECE.findall(text)


@dataclass
class FakeEngine:
    """An engine without a model. Every field can be changed between calls."""

    infills: Sequence[str] = ()
    """Texts for `infill`, one a call; the last one repeats. Empty: `default_infill`."""
    default_infill: str = "pass"
    scores: Mapping[str, float] = field(default_factory=dict)
    """Log-probabilities by candidate; others get a deterministic one below -1 a token."""
    fills: Sequence[str] = ()
    """Texts for `cloze`, best first. Empty: one-token deletions of `original`."""
    confidence: float = 0.9
    step_s: float = 0.0
    """Time that one step (one token, one candidate) takes."""
    on_infill: Callable[[InfillRequest], str] | None = None
    on_score: Callable[[ScoreRequest, str], float] | None = None
    on_cloze: Callable[[ClozeRequest], Sequence[str]] | None = None
    in_worker: bool = False
    """Set by the worker: faults really happen."""
    available: bool = True
    """False: every call raises `EngineUnavailable`."""

    def __post_init__(self) -> None:
        self.requests: list[InfillRequest | ScoreRequest | ClozeRequest] = []
        self.closed = False
        self._infill_calls = 0

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        pace = self._begin(request, cancel)
        begin = request.must_start_with
        text = self._next_infill(request).removeprefix(begin)
        reason: FinishReason = "eom"
        for stop in request.stop:
            if stop in text:
                text, reason = text.split(stop, 1)[0], "stop"
        tokens = pieces(text)
        if len(tokens) > request.max_tokens:
            reason = "length"
        done: list[str] = []
        for token in tokens[: request.max_tokens]:
            if (stopped := pace.step()) is not None:
                reason = stopped
                break
            done.append(token)
        if reason == "cancelled" and not done:
            raise RequestCancelled("the request was cancelled; ask again")
        is_late = reason == "deadline" and not done
        text = "" if is_late else begin + "".join(done)
        choice = Infill(text, self.confidence if text else 0.0, reason)
        return InfillResult((choice,) * request.n, pace.stats(len(done)))

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        pace = self._begin(request, cancel)
        logprobs: list[float | None] = []
        reason: FinishReason | None = None
        for candidate in request.candidates:
            reason = reason or pace.step()
            logprobs.append(None if reason else self._score(request, candidate))
        if reason == "cancelled":
            raise RequestCancelled("the request was cancelled; ask again")
        counts = tuple(len(pieces(c)) + 1 for c in request.candidates)
        return ScoreResult(tuple(logprobs), counts, pace.stats(sum(counts)))

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        pace = self._begin(request, cancel)
        fills: list[ClozeFill] = []
        texts = tuple(self._cloze_texts(request)[: request.top])
        alike = ScoreRequest(request.prefix, request.suffix, texts, request.original)
        for text in texts:
            reason = pace.step()
            if reason == "cancelled":
                raise RequestCancelled("the request was cancelled; ask again")
            if reason is not None:
                break
            fills.append(ClozeFill(text, self._score(alike, text)))
        if not self.fills and self.on_cloze is None:
            fills.sort(key=lambda fill: fill.logprob, reverse=True)
        return ClozeResult(tuple(fills), pace.stats(len(fills)))

    def health(self) -> Health:
        ready = self.available and not self.closed
        return Health(ready, "fake", model="fake", parameters=0, pid=os.getpid())

    def info(self) -> dict[str, Any]:
        """What the worker reports once it is ready."""
        return {"model": "fake", "parameters": 0}

    def close(self) -> None:
        self.closed = True

    def _begin(
        self, request: InfillRequest | ScoreRequest | ClozeRequest, cancel: CancelToken | None
    ) -> _Pace:
        if self.closed or not self.available:
            raise EngineUnavailable("the fake engine is switched off; set available = True")
        check_request(request)
        self.requests.append(request)
        self._faults(request.prefix)
        return _Pace(self.step_s, request.deadline_s, cancel)

    def _faults(self, prefix: str) -> None:
        if "@@noise@@" in prefix:
            print("rubbish {", flush=True)
            if self.in_worker:
                os.write(1, b'{"id": 1, "result": {}}\n\xff\xfe\n')
        if "@@raise@@" in prefix:
            raise RuntimeError("the fake was told to raise")
        if "@@crash@@" in prefix:
            if not self.in_worker:
                raise EngineCrashed("the fake was told to crash; ask again")
            if sys.platform == "win32":
                os._exit(70)
            os.kill(os.getpid(), signal.SIGKILL)
        if "@@hang@@" in prefix and self.in_worker:
            time.sleep(3600)

    def _next_infill(self, request: InfillRequest) -> str:
        if self.on_infill is not None:
            return self.on_infill(request)
        if not self.infills:
            return self.default_infill
        index = min(self._infill_calls, len(self.infills) - 1)
        self._infill_calls += 1
        return self.infills[index]

    def _score(self, request: ScoreRequest, candidate: str) -> float:
        if self.on_score is not None:
            return self.on_score(request, candidate)
        known = self.scores.get(candidate)
        if known is not None:
            return known
        noise = zlib.crc32(candidate.encode("utf-8", "surrogatepass")) % 1000 / 1000
        return -(1.0 + noise) * (len(pieces(candidate)) + 1)

    def _cloze_texts(self, request: ClozeRequest) -> Sequence[str]:
        if self.on_cloze is not None:
            return self.on_cloze(request)
        if self.fills:
            return self.fills
        tokens = pieces(request.original)
        shorter = ("".join(tokens[:i] + tokens[i + 1 :]) for i in range(len(tokens)))
        return list(dict.fromkeys(shorter))


@dataclass
class FakeTalker(FakeEngine):
    """A `FakeEngine` that also converses, with scripted answers."""

    answers: Sequence[str] = ()
    """Texts for `generate`, one a call; the last one repeats."""
    on_generate: Callable[[GenerateRequest], str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conversations: list[GenerateRequest] = []

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        if not self.available:
            raise EngineUnavailable("the fake engine is not available")
        if cancel is not None and cancel.cancelled:
            raise RequestCancelled("the request was cancelled; ask again")
        number = min(len(self.conversations), len(self.answers) - 1)
        self.conversations.append(request)
        text = self.on_generate(request) if self.on_generate else self.answers[number]
        pace, done = _Pace(self.step_s, request.deadline_s, cancel), ""
        reason: FinishReason = "eom"
        for stop in request.stop:
            if stop in text:
                text, reason = text.split(stop, 1)[0], "stop"
        for token in pieces(text):
            if (stopped := pace.step()) is not None:
                reason = stopped
                break
            done += token
            if on_piece is not None:
                on_piece(Piece(token))
        return GenerateResult(done, "", reason, pace.stats(len(pieces(done))))

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Always the first option."""
        sure = (Decision(0, (1.0, *(0.0 for _ in q.options[1:]))) for q in request.questions)
        return DecisionResult(tuple(sure))


class _Pace:
    """Sleeps through the steps of one request and says when to stop."""

    def __init__(self, step_s: float, deadline_s: float | None, cancel: CancelToken | None) -> None:
        self._step_s = step_s
        self._cancel = cancel
        self._begun = time.monotonic()
        self._end = None if deadline_s is None else self._begun + deadline_s
        self._steps = 0

    def step(self) -> FinishReason | None:
        """Takes one step, unless the request is over."""
        if self._cancel is not None and self._cancel.cancelled:
            return "cancelled"
        if self._end is not None and time.monotonic() >= self._end:
            return "deadline"
        if self._step_s:
            time.sleep(self._step_s)
        self._steps += 1
        return None

    def stats(self, tokens: int) -> DecodeStats:
        return DecodeStats(
            forward_passes=self._steps,
            tokens=tokens,
            denoising_steps=self._steps,
            seconds=time.monotonic() - self._begun,
        )
