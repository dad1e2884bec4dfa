"""Model servers as engines of the choice: settings, secrets, faults, and the way back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from clover_engine.api import (
    ClozeRequest,
    Health,
    Infill,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    Snippet,
)
from clover_engine.choice.engines import SERVER_SHARE, Engines, choose_engines
from clover_engine.choice.providers import MAX_MISSES, Provider, ServedProvider
from clover_engine.choice.servers import configured
from clover_engine.choice.wanted import Wanted, WantedServer
from clover_engine.errors import EngineUnavailable, Unsupported
from clover_engine.privacy.discreet import DiscreetEngine
from clover_engine.testing.fakes import FakeEngine
from clover_engine.testing.waiting import until

ASK = InfillRequest("x = ", deadline_s=10)
SECRET = "ghp_" + "a1B2c3D4e5" * 4
TOKEN = f'token = "{SECRET}"\n'
STARS = f'token = "{"*" * len(SECRET)}"\n'


def chosen(engine: str, environ: Mapping[str, str] | None = None, **servers: Any) -> list[str]:
    wanted = Wanted(engine=engine, **servers)  # type: ignore[arg-type]
    engines = choose_engines(wanted, environ or {})
    return [f"{p.name} {p.where}".strip() for p in engines.providers]


def test_auto_takes_the_servers_that_have_an_address_first() -> None:
    sglang = WantedServer("http://127.0.0.1:1")
    llamacpp = WantedServer("http://127.0.0.1:2")
    assert chosen("auto") == ["embedded"]
    assert chosen("auto", llamacpp=llamacpp) == ["llamacpp http://127.0.0.1:2", "embedded"]
    names = ["sglang http://127.0.0.1:1", "llamacpp http://127.0.0.1:2", "embedded"]
    assert chosen("auto", sglang=sglang, llamacpp=llamacpp) == names
    assert chosen("llamacpp", sglang=sglang, llamacpp=llamacpp) == names[1:]
    openai = WantedServer("http://127.0.0.1:3")
    assert chosen("auto", llamacpp=llamacpp, openai=openai)[:2] == [
        "llamacpp http://127.0.0.1:2",
        "openai http://127.0.0.1:3",
    ]
    assert chosen("openai", {"CLOVER_OPENAI_URL": "http://127.0.0.1:3"}) == [
        "openai http://127.0.0.1:3",
        "embedded",
    ]
    assert chosen("embedded", sglang=sglang, llamacpp=llamacpp) == ["embedded"]
    assert chosen("none", sglang=sglang) == []


def test_the_environment_fills_what_the_settings_leave_out() -> None:
    environ = {
        "CLOVER_LLAMACPP_URL": "http://gpu:8080/",
        "CLOVER_LLAMACPP_API_KEY": "k",
        "CLOVER_LLAMACPP_MODEL": "coder",
    }
    found = configured("llamacpp", Wanted(), environ)
    assert found is not None
    assert (found.url, found.api_key, found.model) == ("http://gpu:8080", "k", "coder")
    own = Wanted(llamacpp=WantedServer("http://127.0.0.1:2", model="own"))
    found = configured("llamacpp", own, environ)
    assert found is not None and (found.url, found.model) == ("http://127.0.0.1:2", "own")
    assert configured("sglang", Wanted(), environ) is None


def test_a_server_without_an_address_is_said_and_replaced() -> None:
    engines = choose_engines(Wanted(engine="sglang"), {})
    works, words = engines.describe("python")
    assert works and words.startswith("embedded")
    assert "set clover.sglang.url or CLOVER_SGLANG_URL" in words


def test_keys_stand_nowhere() -> None:
    wanted = Wanted(sglang=WantedServer("http://127.0.0.1:1", SECRET))
    assert SECRET not in repr(wanted)
    assert SECRET not in repr(configured("sglang", wanted, {}))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:8080", ""),
        ("http://localhost:8080", ""),
        ("http://gpu.example:8080", "sends code to gpu.example, unencrypted"),
        ("https://gpu.example", "sends code to gpu.example"),
    ],
)
def test_who_gets_the_code_is_said(url: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    engines = choose_engines(Wanted(llamacpp=WantedServer(url)), {})
    try:
        with caplog.at_level(logging.WARNING):
            assert engines.providers[0].engine is engines.providers[0].engine
        assert caplog.text.count("sends code to") == bool(words)
        said = engines.describe("lua")[1]
        assert said.startswith(f"llamacpp at {url} (auto") and said.endswith(words or ")")
    finally:
        engines.close()


def test_an_address_that_is_none_is_a_failure_of_the_server() -> None:
    environ = {"CLOVER_LLAMACPP_URL": f"http://me:{SECRET}@host"}
    engines = choose_engines(Wanted(engine="llamacpp"), environ)
    try:
        engine = engines.interactive("lua")
        assert engine is not None
        with pytest.raises(EngineUnavailable, match="password"):
            engine.infill(ASK)
        assert SECRET not in engines.describe("lua")[1]
    finally:
        engines.close()


# Secrets


def test_secrets_become_stars_before_a_server() -> None:
    fake = FakeEngine()
    snippets = (Snippet(TOKEN, "a.py"),)
    request = InfillRequest(TOKEN + "x = ", "\n" + TOKEN, snippets, TOKEN, drafts=(TOKEN,))
    DiscreetEngine(fake).infill(request)
    [sent] = fake.requests
    assert isinstance(sent, InfillRequest)
    assert (sent.prefix, sent.suffix) == (STARS + "x = ", "\n" + STARS)
    assert sent.snippets == (Snippet(STARS, "a.py"),) and sent.original == STARS
    assert SECRET not in repr(sent)


def test_a_secret_around_the_cursor_is_one() -> None:
    fake = FakeEngine()
    DiscreetEngine(fake).infill(InfillRequest(TOKEN[:20], TOKEN[20:]))
    [sent] = fake.requests
    assert sent.prefix + sent.suffix == STARS
    with pytest.raises(Unsupported, match="secret"):
        DiscreetEngine(fake).infill(InfillRequest(TOKEN[:20], must_start_with=TOKEN[20:-2]))


def test_a_hole_with_a_secret_inside_is_not_sent_for_repair() -> None:
    fake = FakeEngine()
    engine = DiscreetEngine(fake)
    for call in (
        lambda: engine.cloze(ClozeRequest("a\n", TOKEN, "b\n")),
        lambda: engine.score(ScoreRequest("a\n", "b\n", (TOKEN,))),
        lambda: engine.score(ScoreRequest("a\n", "b\n", ("x\n",), TOKEN)),
    ):
        with pytest.raises(Unsupported, match="secret"):
            call()
    assert not fake.requests
    engine.score(ScoreRequest(TOKEN, TOKEN, ("x\n",), "y\n"))
    engine.cloze(ClozeRequest(TOKEN, "y\n", TOKEN))
    assert {(r.prefix, r.suffix) for r in fake.requests} == {(STARS, STARS)}


# Faults and the way back


class Server(FakeEngine):
    """A server: its health can be looked at, and it may be late."""

    looks = 0
    is_late = False

    def infill(self, request: InfillRequest, cancel: Any = None) -> InfillResult:
        if self.is_late:
            self.requests.append(request)
            return InfillResult((Infill("", 0.0, "deadline"),) * request.n)
        return super().infill(request, cancel)

    def health(self) -> Health:
        self.looks += 1
        if not self.available:
            return Health(False, "server", "connection refused; start the server")
        return Health(True, "server", model="big")


@pytest.fixture
def served() -> Iterator[tuple[Server, FakeEngine, Engines]]:
    server, embedded = Server(default_infill="server"), FakeEngine(default_infill="embedded")
    first = ServedProvider("llamacpp", lambda: server, where="http://127.0.0.1:8080")
    engines = Engines([first, Provider("embedded", lambda: embedded)], "auto")
    yield server, embedded, engines
    engines.close()


def text(engines: Engines) -> str:
    engine = engines.interactive("python")
    assert engine is not None
    return engine.infill(ASK).choices[0].text


def test_the_embedded_engine_stands_in_until_the_server_is_back(
    served: tuple[Server, FakeEngine, Engines],
) -> None:
    server, _, engines = served
    changes: list[tuple[bool, str]] = []
    engines.changed = lambda: changes.append(engines.describe("python"))
    assert text(engines) == "server"
    server.available = False
    assert text(engines) == "embedded"
    works, words = engines.describe("python")
    assert works and engines.stands_in("python")
    assert words.startswith("llamacpp: the fake engine is switched off; ")
    assert words.endswith("embedded fake answers meanwhile")
    asked = len(server.requests)
    assert text(engines) == "embedded" and len(server.requests) == asked, "no keystroke waits"
    until(lambda: server.looks >= 1)
    until(lambda: "connection refused" in engines.describe("python")[1])
    server.available = True
    until(lambda: not engines.stands_in("python"))
    until(lambda: changes[-1][1] == "llamacpp big at http://127.0.0.1:8080 (auto)")
    assert text(engines) == "server"


def test_a_dead_server_is_found_before_the_first_keystroke(
    served: tuple[Server, FakeEngine, Engines],
) -> None:
    server, embedded, engines = served
    server.available = False
    engines.warm("python")
    assert engines.stands_in("python") and not engines.is_loading
    assert text(engines) == "embedded" and not server.requests


def test_a_server_that_is_late_leaves_time_and_is_given_up(
    served: tuple[Server, FakeEngine, Engines],
) -> None:
    server, embedded, engines = served
    server.is_late = True
    for _ in range(MAX_MISSES):
        assert not engines.stands_in("python")
        assert text(engines) == "embedded"
    assert engines.stands_in("python") and "too slowly" in engines.describe("python")[1]
    sent = [r.deadline_s for r in server.requests]
    assert all(s is not None and 0 < s <= 10 * SERVER_SHARE for s in sent)
    left = embedded.requests[0].deadline_s
    assert left is not None and 10 * SERVER_SHARE < left <= 10
    until(lambda: not engines.stands_in("python"))
    server.is_late = False
    assert text(engines) == "server"


def test_health_of_a_server_is_known_not_asked(
    served: tuple[Server, FakeEngine, Engines],
) -> None:
    server, _, engines = served
    engine = engines.interactive("python")
    assert engine is not None and not engine.health().ready
    text(engines)
    assert engine.health().ready and server.looks == 0


def test_repairs_go_where_they_can_be_ranked() -> None:
    server, embedded = Server(), FakeEngine()
    first = ServedProvider("s", lambda: server, ranks=False)
    engines = Engines([first, Provider("e", lambda: embedded)])
    engine = engines.background("python")
    assert engine is not None
    engine.cloze(ClozeRequest("", "a b", ""))
    engine.score(ScoreRequest("", "", ("a",)))
    engine.infill(ASK)
    assert [type(r) for r in embedded.requests] == [ClozeRequest, ScoreRequest]
    assert [type(r) for r in server.requests] == [InfillRequest]
    embedded.available = False
    engine.score(ScoreRequest("", "", ("a",)))
    assert isinstance(server.requests[-1], ScoreRequest)
    engines.close()


def test_what_one_engine_cannot_do_another_may() -> None:
    class Plain(Server):
        def score(self, *_: Any) -> Any:
            raise Unsupported("no scores here")

    server, embedded = Plain(), FakeEngine()
    first = ServedProvider("s", lambda: server)
    engines = Engines([first, Provider("e", lambda: embedded)])
    engine = engines.background("python")
    assert engine is not None
    assert engine.score(ScoreRequest("", "", ("a",))).logprobs
    assert not first.failures
    alone = Engines([first]).background("python")
    assert alone is not None
    with pytest.raises(Unsupported, match="no scores"):
        alone.score(ScoreRequest("", "", ("a",)))
