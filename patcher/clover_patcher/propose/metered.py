"""An engine that counts what it was used for and can be stopped in the middle of a call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol, TypeVar

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    Engine,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.errors import Unsupported
from clover_engine.generation import Converses, GenerateRequest, GenerateResult, OnPiece
from clover_patcher.types import EngineUse


class _Result(Protocol):
    @property
    def stats(self) -> DecodeStats: ...


Result = TypeVar("Result", bound=_Result)
Named = TypeVar("Named", ScoreResult, ClozeResult, GenerateResult)


class MeteredEngine:
    """Passes every call on to `engine`; `cancel` stops calls that bring no token of their own."""

    def __init__(self, engine: Engine, cancel: CancelToken) -> None:
        self._engine = engine
        self._token = cancel
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds = 0.0
        self._stats = DecodeStats()
        self._answered: dict[str, None] = {}
        """Models that did, in order."""
        self._health: Future[Health] = Future()

    def warm_up(self) -> None:
        """Makes a small request in the background, so that the model loads meanwhile."""
        threading.Thread(target=self._warm_up, daemon=True).start()

    def require_ready(self, *, wait: bool = True) -> None:
        """Raises what the engine raised to `warm_up`'s request; waits for its answer or not."""
        if wait or self._health.done():
            self._health.result()

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        return self._count(lambda: self._engine.infill(request, cancel or self._token))

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self._named(self._count(lambda: self._engine.score(request, cancel or self._token)))

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._named(self._count(lambda: self._engine.cloze(request, cancel or self._token)))

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """Raises `Unsupported` where the engine does not converse."""
        engine = self._engine
        if not isinstance(engine, Converses):
            raise Unsupported("this engine only fills holes: ask another one")
        return self._named(
            self._count(lambda: engine.generate(request, cancel or self._token, on_piece))
        )

    def health(self) -> Health:
        return self._engine.health()

    def close(self) -> None:
        """Leaves the engine open: its owner closes it."""

    @property
    def use(self) -> EngineUse:
        """What was used so far; seconds are wall time of all calls together."""
        with self._lock:
            return EngineUse(
                calls=self._calls,
                forward_passes=self._stats.forward_passes,
                seconds=round(self._seconds, 3),
                detail=self._detail(),
                extra={
                    "tokens": float(self._stats.tokens),
                    "prefill_tokens": float(self._stats.prefill_tokens),
                    "cached_tokens": float(self._stats.cached_tokens),
                },
            )

    def _named(self, result: Named) -> Named:
        """The result with the name of the model that answered."""
        model = result.model or self._expected() or self._engine.health().name
        with self._lock:
            self._answered[model] = None
        return replace(result, model=model)

    def _detail(self) -> str:
        """Who answered; before anybody did, who is expected to."""
        if self._answered:
            return ", ".join(self._answered)
        return self._expected()

    def _expected(self) -> str:
        if not self._health.done() or self._health.exception():
            return ""
        health = self._health.result()
        return health.model or health.name

    def _warm_up(self) -> None:
        try:
            with contextlib.suppress(Unsupported):  # it may have other uses
                self._engine.score(ScoreRequest("", "", ("\n",)), self._token)
            self._health.set_result(self._engine.health())
        except BaseException as exc:  # raised again in `require_ready`
            self._health.set_exception(exc)

    def _count(self, call: Callable[[], Result]) -> Result:
        started = time.monotonic()
        result: Result | None = None
        try:
            result = call()
            return result
        finally:
            with self._lock:
                self._calls += 1
                self._seconds += time.monotonic() - started
                if result is not None:
                    self._stats += result.stats
