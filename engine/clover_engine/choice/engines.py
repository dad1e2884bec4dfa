"""Which engine answers: an ordered list of providers, the first healthy one that fits wins.

A provider that fails is left alone until its pause is over or its server is back (`providers.py`),
and the next one takes over, in the same request as long as its deadline allows. Interactive calls
go first (`turns.py`): while one runs, background calls (repairs, prefetches) wait, and one that is
running is stopped and asked again afterwards.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Engine,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.checkpoint.catalog import installed_coder
from clover_engine.choice.providers import Provider
from clover_engine.choice.servers import (
    embedded_provider,
    is_large,
    quick_provider,
    server_provider,
    where_to_set,
)
from clover_engine.choice.talking import Talking
from clover_engine.choice.turns import Turns
from clover_engine.choice.wanted import SERVERS, ServerName, Wanted
from clover_engine.errors import (
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    TextEngine,
)
from clover_engine.worker.local import checkpoint_path

log = logging.getLogger(__name__)

SERVER_SHARE = 0.6
"""Part of a deadline that a server gets where another engine can answer after it."""

Request = InfillRequest | ScoreRequest | ClozeRequest
Answered = TypeVar("Answered", GenerateResult, DecisionResult)
Result = TypeVar("Result", InfillResult, ScoreResult, ClozeResult)


class Engines:
    """The choice. `changed` is called, from any thread, when what `describe` says may differ."""

    def __init__(
        self,
        providers: list[Provider],
        reason: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.providers = providers
        for provider in providers:
            provider.changed = self._provider_changed
        self.reason = reason
        """Why these providers: words for the status."""
        self.changed = changed
        self._turns = Turns()
        self._talking: Talking | None = None

    def interactive(self, language: str | None) -> Engine | None:
        """The engine for what a user waits for; None where no provider knows the language (any
        language, if that is None)."""
        return self._routed(language, background=False, retries=0)

    def quick(self, language: str | None) -> Engine | None:
        """The small model to ask before a larger one that computes on this machine; None where
        there is none, or where it is the one that `interactive` asks anyway."""
        fitting = [provider for provider in self.providers if provider.knows(language)]
        quick = [provider for provider in fitting if provider.is_quick]
        if not quick or fitting[0].is_served or fitting[0].is_quick or fitting[0].failures:
            return None
        return _Routed(quick, self._turns, self.changed, background=False, retries=0)

    def background(self, language: str, retries: int = 3) -> Engine | None:
        """The engine for everything else. A call that an interactive one interrupts is made
        again up to `retries` times, then raises `RequestCancelled`."""
        return self._routed(language, background=True, retries=retries)

    def conversing(self) -> Talking | None:
        """The engine for conversations; None without any provider. `close` ends it too."""
        if self._talking is None and (engine := self.interactive(None)) is not None:
            self._talking = Talking(engine)
        return self._talking

    @property
    def may_converse(self) -> bool:
        """Whether that can be expected: a server, or a coder model. Starts nothing."""
        if not self.providers:
            return False
        others = (p for p in self.providers if not _only_fills_holes(p))
        return next(others, None) is not None or installed_coder() is not None

    def _routed(self, language: str | None, *, background: bool, retries: int) -> Engine | None:
        fitting = [provider for provider in self.providers if provider.knows(language)]
        if not fitting:
            return None
        return _Routed(fitting, self._turns, self.changed, background, retries)

    def _provider_changed(self) -> None:
        self.changed()

    def warm(self, language: str) -> None:
        """Makes the first provider for the language that can be had ready; blocks. Failures show
        in `describe`."""
        for provider in self.providers:
            if not provider.knows(language) or not provider.is_due:
                continue
            health = provider.health()
            if health is None or not health.ready:
                provider.is_starting = True
                self.changed()
                try:
                    provider.start()
                finally:
                    provider.is_starting = False
                    self.changed()
            if not provider.failures:
                return

    @property
    def is_loading(self) -> bool:
        """A model is on its way."""
        return any(provider.is_starting for provider in self.providers)

    def describe(self, language: str | None = None) -> tuple[bool, str]:
        """(Does it work?, which engine answers and why) in words, for one language or all."""
        if not self.providers:
            return True, f"no model ({self.reason}); only repository look-up suggests"
        fitting = [p for p in self.providers if p.knows(language)]
        if not fitting:
            names = ", ".join(p.name for p in self.providers)
            return True, f"the {names} model does not know {language}: only look-up suggests"
        problems = [f"{p.name}: {p.error}" for p in fitting if p.failures]
        up = next((p for p in fitting if not p.failures), None)
        if up is None:
            return False, "; ".join(problems)
        health = up.health()
        model = f" {health.model}" if health is not None and health.model else ""
        name = up.name + model + (f" at {up.where}" if up.where else "")
        if self.stands_in(language):
            said = [*problems, f"{name} answers meanwhile", up.note]
        else:
            quick = "clover-nano answers at once" if self.quick(language) else ""
            said = [f"{name} ({self.reason})", quick, up.note, *problems]
        return True, "; ".join(filter(None, said))

    def stands_in(self, language: str | None = None) -> bool:
        """Does another engine answer than the one that was chosen first?"""
        first = next((p for p in self.providers if p.knows(language)), None)
        return first is not None and first.failures > 0

    def close(self) -> None:
        if self._talking is not None:
            self._talking.close()
        for provider in self.providers:
            provider.close()


class _Routed:
    """An `Engine` over the fitting providers."""

    def __init__(
        self,
        providers: list[Provider],
        turns: Turns,
        changed: Callable[[], None],
        background: bool,
        retries: int,
    ) -> None:
        self._providers = providers
        self._turns = turns
        self._changed = changed
        self._background = background
        self._retries = retries

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        return self._call(InfillResult, request, cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self._call(ScoreResult, request, cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._call(ClozeResult, request, cancel)

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """Asks the first provider that converses. Raises `Unsupported` where there is none.

        An answer takes long: keystrokes do not wait for it, except in the embedded model's worker,
        which does one thing at a time.
        """
        return self._conversing(lambda engine: engine.generate(request, cancel, on_piece))

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """The same for decisions."""
        return self._conversing(lambda engine: engine.decide(request, cancel))

    def _conversing(self, ask: Callable[[TextEngine], Answered]) -> Answered:
        last: EngineError = Unsupported("no engine converses: name a server or a coder model")
        for provider in [p for p in self._providers if p.is_due]:
            engine = provider.engine
            if not isinstance(engine, TextEngine):
                continue
            try:
                return ask(engine)
            except RequestCancelled:
                raise
            except RequestError as error:
                last = error
            except EngineError as error:
                provider.failed(error)
                self._changed()
                last = error
        raise last

    def health(self) -> Health:
        for provider in self._providers:
            if not provider.failures:
                return provider.health() or Health(False, provider.name, "not started yet")
        first = self._providers[0]
        return Health(False, first.name, first.error)

    def close(self) -> None:
        """The engines are shared; `Engines.close` ends them."""

    def _call(self, kind: type[Result], request: Request, cancel: CancelToken | None) -> Result:
        if not self._background:
            with self._turns.interactive():
                return self._first(kind, request, cancel)
        for _ in range(self._retries + 1):
            with self._turns.background(cancel) as token:
                try:
                    result = self._first(kind, request, token)
                except RequestCancelled:
                    if token.given_up:
                        raise
                    continue
                if not token.preempted or token.given_up or not _is_cut_off(result):
                    return result
        raise RequestCancelled("more urgent requests came first; ask again")

    def _first(self, kind: type[Result], request: Request, cancel: CancelToken | None) -> Result:
        """The first provider's result that is no failure."""
        due = [provider for provider in self._providers if provider.is_due]
        if kind is not InfillResult:
            due.sort(key=lambda provider: not provider.ranks)
        begun = time.monotonic()
        last: EngineError | None = None
        late: Result | None = None
        for at, provider in enumerate(due):
            has_next = at + 1 < len(due)
            ask = _within(request, time.monotonic() - begun, provider.is_served and has_next)
            try:
                result = _asked(provider.engine, kind, ask, cancel)
            except Unsupported as error:
                last = last or error
            except (RequestCancelled, RequestError):
                raise
            except EngineError as error:
                log.warning("engine %s: %s", provider.name, error)
                provider.failed(error)
                self._changed()
                last = error
            else:
                if provider.is_served and _is_late(result):
                    late = result
                    if provider.missed():
                        self._changed()
                    continue
                if provider.succeeded(result.model):
                    self._changed()
                return result if result.model else replace(result, model=_model(provider))
        if late is not None:
            return late
        if last is not None:
            raise type(last)(*last.args)
        first = self._providers[0]
        raise EngineUnavailable(f"{first.name}: {first.error or 'not available'}")


def _only_fills_holes(provider: Provider) -> bool:
    return not provider.is_served and provider.engine_only_fills_holes


def _model(provider: Provider) -> str:
    """The name of the model that has just answered, else of its engine."""
    health = provider.health()
    return (health.model or health.name if health else "") or provider.name


def _asked(
    engine: Engine, kind: type[Result], request: Request, cancel: CancelToken | None
) -> Result:
    call: Callable[[Request, CancelToken | None], Result]
    call = getattr(engine, _CALLS[kind])
    return call(request, cancel)


_CALLS: Mapping[type, str] = {InfillResult: "infill", ScoreResult: "score", ClozeResult: "cloze"}


def _within(request: Request, spent_s: float, shares: bool) -> Request:
    """The request with what is left of its deadline, or the first part of that."""
    if request.deadline_s is None:
        return request
    left = max(0.0, request.deadline_s - spent_s)
    return replace(request, deadline_s=left * SERVER_SHARE if shares else left)


def _is_late(result: InfillResult | ScoreResult | ClozeResult) -> bool:
    """Did the deadline come before there was anything?"""
    return isinstance(result, InfillResult) and all(
        choice.finish_reason == "deadline" and not choice.text for choice in result.choices
    )


def _is_cut_off(result: InfillResult | ScoreResult | ClozeResult) -> bool:
    """Was the answer ended by a cancellation? (Other calls raise then.)"""
    return isinstance(result, InfillResult) and any(
        choice.finish_reason == "cancelled" for choice in result.choices
    )


def _embedded(wanted: Wanted) -> list[Provider]:
    """The embedded model, and clover-nano beside it where that is wanted and is another model."""
    chosen = embedded_provider(wanted.threads)
    has_quick = wanted.quick and is_large(checkpoint_path())
    return [chosen, quick_provider()] if has_quick else [chosen]


def choose_engines(
    wanted: Wanted, environ: Mapping[str, str] = os.environ, *, alone: bool = False
) -> Engines:
    """The providers for `wanted.engine`; `alone`: a server that is named has no stand-in.

    A server that is named without an address is a reason, in words, not an exception.
    """
    name = wanted.engine
    if name == "none":
        return Engines([], "by setting")
    if name == "embedded":
        return Engines(_embedded(wanted), "by setting")
    names: Sequence[ServerName] = SERVERS if name == "auto" else (name,)
    found = [server_provider(each, wanted, environ) for each in names]
    servers = [provider for provider in found if provider is not None]
    embedded = [] if alone and servers else _embedded(wanted)
    if name == "auto":
        return Engines([*servers, *embedded], "auto: the first that answers")
    reason = "by setting" if servers else f"{name} has no address: set {where_to_set(name)}"
    return Engines([*servers, *embedded], reason)
