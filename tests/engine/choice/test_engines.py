"""The choice of engines: order, back-off, recovery, and who goes first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from clover_engine.api import CancelToken, Infill, InfillRequest, InfillResult, ScoreRequest
from clover_engine.choice.engines import Engines, choose_engines
from clover_engine.choice.providers import Provider
from clover_engine.choice.wanted import Wanted
from clover_engine.errors import EngineCrashed, EngineUnavailable, RequestCancelled, RequestError
from clover_engine.testing.fakes import FakeEngine
from clover_engine.testing.waiting import until

ASK = InfillRequest("x = ")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    return made


def provider(name: str, **options: Any) -> tuple[Provider, FakeEngine]:
    fake = FakeEngine(default_infill=name, **options)
    return Provider(name, lambda: fake), fake


def text(engines: Engines, language: str = "python") -> str:
    engine = engines.interactive(language)
    assert engine is not None
    return engine.infill(ASK).choices[0].text


def test_falls_back_and_recovers(clock: Clock) -> None:
    first, fake = provider("first")
    second, _ = provider("second")
    changes: list[int] = []
    engines = Engines([first, second], "auto", lambda: changes.append(1))
    assert text(engines) == "first" and not changes
    fake.available = False
    assert text(engines) == "second"
    works, words = engines.describe("python")
    assert works and words.startswith("first: the fake engine is switched off")
    assert words.endswith("second fake answers meanwhile") and engines.stands_in("python")
    fake.available = True
    asked = len(fake.requests)
    assert text(engines) == "second" and len(fake.requests) == asked, "asked again too early"
    clock.now += 61
    assert text(engines) == "first"
    assert engines.describe("python") == (True, "first fake (auto)")
    assert len(changes) == 2


def test_pauses_grow_and_end(clock: Clock) -> None:
    only, fake = provider("only", available=False)
    engines = Engines([only], "by setting")
    waits = []
    for _ in range(9):
        with pytest.raises(EngineUnavailable):
            text(engines)
        waits.append(only.not_before - clock.now)
        clock.now = only.not_before
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert engines.describe("python")[0] is False
    fake.available = True
    assert text(engines) == "only" and only.failures == 0


def test_a_first_crash_is_tried_again_at_once(clock: Clock) -> None:
    only, _ = provider("only")
    engines = Engines([only])
    engine = engines.interactive("python")
    assert engine is not None
    with pytest.raises(EngineCrashed):
        engine.infill(InfillRequest("@@crash@@"))
    assert text(engines) == "only"


def test_a_bad_request_is_nobodys_failure() -> None:
    only, _ = provider("only")
    engine = Engines([only]).interactive("python")
    assert engine is not None
    with pytest.raises(RequestError):
        engine.score(ScoreRequest("", "", ()))
    assert only.failures == 0


def test_languages_that_no_model_knows() -> None:
    only = Provider("embedded", FakeEngine, frozenset({"python"}))
    engines = Engines([only], "auto")
    assert engines.interactive("lua") is None and engines.background("lua") is None
    works, words = engines.describe("lua")
    assert works and "does not know lua" in words and "look-up" in words


def test_none() -> None:
    engines = choose_engines(Wanted(engine="none"))
    assert engines.interactive("python") is None
    assert "no model" in engines.describe("python")[1]


def started(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs on a thread; its result or exception ends up in the list."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


class Held:
    """An engine whose calls last until they are cancelled or let go."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.began = threading.Semaphore(0)
        self.go = threading.Event()

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> Any:
        self.calls.append(request.prefix)
        self.began.release()
        while not self.go.wait(0.002):
            if cancel is not None and cancel.cancelled:
                self.calls.append(f"{request.prefix} stopped")
                raise RequestCancelled("stopped")
        return InfillResult((Infill(request.prefix, 1.0, "eom"),))

    def health(self) -> Any:
        return FakeEngine().health()

    def close(self) -> None: ...


def held_engines() -> tuple[Held, Engines]:
    held = Held()
    return held, Engines([Provider("held", lambda: held)])  # type: ignore[arg-type, return-value]


def test_interactive_calls_interrupt_background_ones_which_are_made_again() -> None:
    held, engines = held_engines()
    background, interactive = engines.background("python"), engines.interactive("python")
    assert background is not None and interactive is not None
    later, found_later = started(lambda: background.infill(InfillRequest("later")))
    assert held.began.acquire(timeout=20)
    now, found_now = started(lambda: interactive.infill(InfillRequest("now")))
    assert held.began.acquire(timeout=20)
    until(lambda: "later stopped" in held.calls)
    held.go.set()
    now.join(20)
    later.join(20)
    texts = [found.choices[0].text for found in (*found_now, *found_later)]
    assert texts == ["now", "later"]
    assert held.calls.count("later") == 2


def test_a_prefetch_that_is_interrupted_is_given_up() -> None:
    held, engines = held_engines()
    prefetch, interactive = engines.background("python", retries=0), engines.interactive("python")
    assert prefetch is not None and interactive is not None
    later, found_later = started(lambda: prefetch.infill(InfillRequest("later")))
    assert held.began.acquire(timeout=20)
    now, _ = started(lambda: interactive.infill(InfillRequest("now")))
    later.join(20)
    assert isinstance(found_later[0], RequestCancelled)
    held.go.set()
    now.join(20)
    assert held.calls.count("later") == 1


def test_a_background_call_that_waits_can_be_cancelled() -> None:
    held, engines = held_engines()
    background, interactive = engines.background("python"), engines.interactive("python")
    assert background is not None and interactive is not None
    now, _ = started(lambda: interactive.infill(InfillRequest("now")))
    assert held.began.acquire(timeout=20)
    token = CancelToken()
    later, found = started(lambda: background.infill(InfillRequest("later"), token))
    token.cancel()
    later.join(20)
    assert isinstance(found[0], RequestCancelled) and held.calls == ["now"]
    held.go.set()
    now.join(20)
