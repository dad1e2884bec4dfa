"""Which engine answers: an ordered list of providers, the first healthy one that fits wins.

A provider that fails is left alone for a while (longer each time), the next one takes over, and
it is tried again when its pause is over. Interactive calls go first: while one runs, background
calls (repairs, prefetches) wait, and one that is running is stopped and asked again afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from clover_engine.errors import (
    EngineCrashed,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
)
from clover_lsp.settings import EngineName

log = logging.getLogger(__name__)

NANO_LANGUAGES = frozenset({"python"})
"""What the shipped model was trained on."""
MAX_PAUSE_S = 60.0
_YIELD_CHECK_S = 0.05

Result = TypeVar("Result", InfillResult, ScoreResult, ClozeResult)


@dataclass
class Provider:
    """One engine, when it may be asked, and for which languages (None: all)."""

    name: str
    make: Callable[[], Engine]
    languages: frozenset[str] | None = None
    failures: int = 0
    not_before: float = 0.0
    error: str = ""
    is_starting: bool = False
    _engine: Engine | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def knows(self, language: str) -> bool:
        return self.languages is None or language in self.languages

    @property
    def engine(self) -> Engine:
        """Made on first use."""
        with self._lock:
            if self._engine is None:
                self._engine = self.make()
            return self._engine

    def health(self) -> Health | None:
        """None before first use."""
        return None if self._engine is None else self._engine.health()

    def start(self) -> None:
        """Makes the engine ready; blocks while a model loads. A failure counts as one."""
        from clover_engine.local import LocalEngine

        engine = self.engine
        if isinstance(engine, LocalEngine):
            health = engine.health(start=True)
            if not health.ready:
                self.failed(EngineUnavailable(health.detail))
        self.is_starting = False

    def failed(self, error: EngineError) -> None:
        """A first crash restarts at once; failures in a row wait twice as long each time."""
        self.failures += 1
        once = self.failures == 1 and isinstance(error, EngineCrashed)
        pause = 0.0 if once else min(MAX_PAUSE_S, 0.5 * 2.0**self.failures)
        self.not_before = time.monotonic() + pause
        self.error = str(error)

    def succeeded(self) -> bool:
        """True where this is news."""
        was_down = self.failures > 0
        self.failures, self.not_before, self.error = 0, 0.0, ""
        return was_down

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.close()


class _Linked(CancelToken):
    """Cancelled by itself or by the caller's token."""

    __slots__ = ("_outer",)

    def __init__(self, outer: CancelToken | None) -> None:
        super().__init__()
        self._outer = outer

    @property
    def preempted(self) -> bool:
        return self._event.is_set()

    @property
    def given_up(self) -> bool:
        return self._outer is not None and self._outer.cancelled

    @property
    def cancelled(self) -> bool:
        return self._event.is_set() or self.given_up


class Turns:
    """Interactive calls first. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._interactive = 0
        self._background: set[_Linked] = set()

    @contextlib.contextmanager
    def interactive(self) -> Iterator[None]:
        with self._changed:
            self._interactive += 1
            for token in self._background:
                token.cancel()
        try:
            yield
        finally:
            with self._changed:
                self._interactive -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def background(self, outer: CancelToken | None) -> Iterator[_Linked]:
        """Waits until no interactive call runs; the token is set when one comes."""
        token = _Linked(outer)
        with self._changed:
            while self._interactive:
                if token.given_up:
                    raise RequestCancelled("cancelled while waiting for its turn")
                self._changed.wait(_YIELD_CHECK_S)
            self._background.add(token)
        try:
            yield token
        finally:
            with self._changed:
                self._background.discard(token)


class Engines:
    """The choice. `changed` is called, from any thread, when what `describe` says may differ."""

    def __init__(
        self,
        providers: list[Provider],
        reason: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.providers = providers
        self.reason = reason
        """Why these providers: words for the status."""
        self.changed = changed
        self._turns = Turns()

    def interactive(self, language: str) -> Engine | None:
        """The engine for what a user waits for; None where no provider knows the language."""
        return self._routed(language, background=False, retries=0)

    def background(self, language: str, retries: int = 3) -> Engine | None:
        """The engine for everything else. A call that an interactive one interrupts is made
        again up to `retries` times, then raises `RequestCancelled`."""
        return self._routed(language, background=True, retries=retries)

    def _routed(self, language: str, *, background: bool, retries: int) -> Engine | None:
        fitting = [provider for provider in self.providers if provider.knows(language)]
        if not fitting:
            return None
        return _Routed(fitting, self._turns, self.changed, background, retries)

    def warm(self, language: str) -> None:
        """Makes the first provider for the language ready; blocks. Failures show in `describe`."""
        for provider in self.providers:
            if provider.knows(language) and time.monotonic() >= provider.not_before:
                if not provider.engine.health().ready:
                    provider.is_starting = True
                    self.changed()
                    provider.start()
                    self.changed()
                return

    @property
    def is_loading(self) -> bool:
        """A model is on its way."""
        return any(provider.is_starting for provider in self.providers)

    def describe(self, language: str | None = None) -> tuple[bool, str]:
        """(Does it work?, which engine answers and why) in words, for one language or all."""
        if not self.providers:
            return True, f"no model ({self.reason}); only repository look-up suggests"
        fitting = [p for p in self.providers if language is None or p.knows(language)]
        if not fitting:
            names = ", ".join(p.name for p in self.providers)
            return True, f"the {names} model does not know {language}: only look-up suggests"
        problems = [f"{p.name}: {p.error}" for p in fitting if p.failures]
        up = next((p for p in fitting if not p.failures), None)
        if up is None:
            return False, "; ".join(problems)
        health = up.health()
        model = f" {health.model}" if health is not None and health.model else ""
        text = f"{up.name}{model} ({self.reason})"
        return True, "; ".join([text, *problems])

    def close(self) -> None:
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
        return self._call(lambda engine, token: engine.infill(request, token), cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self._call(lambda engine, token: engine.score(request, token), cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._call(lambda engine, token: engine.cloze(request, token), cancel)

    def health(self) -> Health:
        for provider in self._providers:
            if not provider.failures:
                return provider.health() or Health(False, provider.name, "not started yet")
        first = self._providers[0]
        return Health(False, first.name, first.error)

    def close(self) -> None:
        """The engines are shared; `Engines.close` ends them."""

    def _call(
        self, call: Callable[[Engine, CancelToken | None], Result], cancel: CancelToken | None
    ) -> Result:
        if not self._background:
            with self._turns.interactive():
                return self._first(call, cancel)
        for _ in range(self._retries + 1):
            with self._turns.background(cancel) as token:
                try:
                    result = self._first(call, token)
                except RequestCancelled:
                    if token.given_up:
                        raise
                    continue
                if not token.preempted or token.given_up or not _is_cut_off(result):
                    return result
        raise RequestCancelled("more urgent requests came first; ask again")

    def _first(
        self, call: Callable[[Engine, CancelToken | None], Result], cancel: CancelToken | None
    ) -> Result:
        """The first provider's result that is no failure."""
        now = time.monotonic()
        due = [p for p in self._providers if now >= p.not_before]
        last: EngineError | None = None
        for provider in due:
            try:
                result = call(provider.engine, cancel)
            except (RequestCancelled, RequestError):
                raise
            except EngineError as error:
                log.warning("engine %s: %s", provider.name, error)
                provider.failed(error)
                self._changed()
                last = error
            else:
                if provider.succeeded():
                    self._changed()
                return result
        if last is not None:
            raise type(last)(*last.args)
        first = self._providers[0]
        raise EngineUnavailable(f"{first.name}: {first.error or 'not available'}")


def _is_cut_off(result: InfillResult | ScoreResult | ClozeResult) -> bool:
    """Was the answer ended by a cancellation? (Other calls raise then.)"""
    return isinstance(result, InfillResult) and any(
        choice.finish_reason == "cancelled" for choice in result.choices
    )


def embedded_provider() -> Provider:
    """The shipped model in its own process; everything heavy starts on first use."""

    def make() -> Engine:
        from clover_engine.local import LocalEngine

        return LocalEngine()

    return Provider("embedded", make, NANO_LANGUAGES)


PROVIDERS: dict[str, Callable[[], Provider]] = {"embedded": embedded_provider}
"""In the order in which `auto` tries them."""


def choose_engines(name: EngineName) -> Engines:
    """The providers for the setting `engine`."""
    if name == "none":
        return Engines([], "by setting")
    if name == "auto":
        return Engines([make() for make in PROVIDERS.values()], "auto: the first that answers")
    return Engines([PROVIDERS[name]()], "by setting")
