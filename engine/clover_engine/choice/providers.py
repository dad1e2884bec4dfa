"""One engine as the choice sees it: when it may be asked, what is wrong with it, and its return.

An embedded model that fails is tried again by the first request after its pause. A server that
fails is asked nothing until it says that it is ready: a thread looks at its health, which costs
the server nothing, and no keystroke waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from clover_engine.api import Engine, Health
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable, RequestError

log = logging.getLogger(__name__)

MAX_PAUSE_S = 60.0
MAX_LOOK_S = 10.0
"""Longest time between two looks at a server that is down."""
MAX_MISSES = 3
"""So many interactive answers in a row that came too late: the server counts as down."""


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
    where: str = ""
    ranks: bool = True
    """Scores and fills clozes well; others are asked for that only where nobody else answers."""
    is_quick: bool = False
    """Answers before a larger model does (`Engines.quick`), and in its place where that fails."""
    changed: Callable[[], None] = lambda: None
    """Called, from any thread, when the provider is back by itself."""
    _engine: Engine | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    is_served = False

    def knows(self, language: str | None) -> bool:
        """Any language fits None."""
        return language is None or self.languages is None or language in self.languages

    @property
    def is_due(self) -> bool:
        """May a request be sent now?"""
        return time.monotonic() >= self.not_before

    @property
    def note(self) -> str:
        """What a user must know of it besides its name."""
        return ""

    @property
    def engine(self) -> Engine:
        """Made on first use."""
        with self._lock:
            if self._engine is None:
                self._engine = self.make()
            return self._engine

    @property
    def engine_only_fills_holes(self) -> bool:
        """Whether the engine is known not to converse, before it is asked."""
        return bool(getattr(self.engine, "only_fills_holes", False))

    def health(self) -> Health | None:
        """Never blocks. None before first use."""
        return None if self._engine is None else self._engine.health()

    def start(self) -> None:
        """Makes the engine ready; blocks while a model loads. A failure counts as one."""
        from clover_engine.worker.local import LocalEngine

        engine = self.engine
        if isinstance(engine, LocalEngine):
            health = engine.health(start=True)
            if not health.ready:
                self.failed(EngineUnavailable(health.detail))

    def failed(self, error: EngineError) -> None:
        """A first crash restarts at once; failures in a row wait twice as long each time."""
        self.failures += 1
        once = self.failures == 1 and isinstance(error, EngineCrashed)
        pause = 0.0 if once else min(MAX_PAUSE_S, 0.5 * 2.0**self.failures)
        self.not_before = time.monotonic() + pause
        self.error = str(error)

    def succeeded(self, model: str = "") -> bool:
        """Takes note of an answer (by `model`, if known). True where that is news."""
        was_down = self.failures > 0
        self.failures, self.not_before, self.error = 0, 0.0, ""
        return was_down

    def missed(self) -> bool:
        """Takes note of an answer that came too late. True where the provider is given up now."""
        return False

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.close()


@dataclass
class ServedProvider(Provider):
    """A model server, at the address `where`."""

    sends_to: str = ""
    """Whom the code goes to; empty for this machine."""
    _known: Health | None = None
    _misses: int = 0
    _streak: int = 0
    """Failures since the last answer; a look at the health alone ends none."""
    _watch: threading.Thread | None = None
    _closed: threading.Event = field(default_factory=threading.Event)

    is_served = True

    @property
    def is_due(self) -> bool:
        return not self.failures

    @property
    def note(self) -> str:
        return f"sends code to {self.sends_to}" if self.sends_to else ""

    @property
    def engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                if self.sends_to:
                    log.warning("%s %s", self.name, self.note)
                try:
                    self._engine = self.make()
                except RequestError as error:  # the address cannot be used: nobody's request
                    raise EngineUnavailable(str(error)) from error
            return self._engine

    def health(self) -> Health | None:
        """What the last look or answer said."""
        return self._known

    def start(self) -> None:
        """Looks whether the server is there; waits for no model that it still loads."""
        error = self._look()
        if error is not None:
            self.failed(error)

    def failed(self, error: EngineError) -> None:
        self._down(error, MAX_LOOK_S)

    def _down(self, error: EngineError, longest_s: float) -> None:
        with self._lock:
            self._streak += 1
            self.failures = self._streak
            pause = min(longest_s, 0.25 * 2.0**self._streak)
            self.not_before = time.monotonic() + pause
            self.error, self._known, self._misses = str(error), None, 0
            if self._watch is None and not self._closed.is_set():
                self._watch = threading.Thread(
                    target=self._await_return, name=f"clover-{self.name}", daemon=True
                )
                self._watch.start()

    def succeeded(self, model: str = "") -> bool:
        was_known = self._known
        if was_known is None or (model and model != was_known.model):
            self._known = Health(True, self.name, model=model)
        self._misses = self._streak = 0
        return super().succeeded() or was_known is None

    def missed(self) -> bool:
        self._misses += 1
        if self._misses < (1 if self._streak else MAX_MISSES):
            return False
        slow = EngineUnavailable(f"{self.name} answers too slowly; see what else it computes")
        self._down(slow, MAX_PAUSE_S)  # its health may be good all the same
        return True

    def close(self) -> None:
        self._closed.set()
        super().close()

    def _look(self) -> EngineError | None:
        """The server's health; an error where it is not ready."""
        try:
            health = self.engine.health()
        except EngineError as error:
            return error
        self._known = health if health.ready else None
        return None if health.ready else EngineUnavailable(health.detail)

    def _await_return(self) -> None:
        while not self._closed.wait(max(0.0, self.not_before - time.monotonic())):
            error = self._look()
            with self._lock:
                if error is None:
                    self._watch = None
                    super().succeeded()
                    break
                before, self.error = self.error, str(error)
                self._streak += 1
                self.not_before = time.monotonic() + min(MAX_LOOK_S, 0.25 * 2.0**self._streak)
            if self.error != before:
                self.changed()
        self.changed()
