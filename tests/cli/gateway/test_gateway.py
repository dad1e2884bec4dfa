"""The gateway itself: who may ask, what bad requests get, context, cancellation, the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.gateway.client import Gateway
from tests.cli.gateway.conftest import SHOP

from clover_code.gateway import asked
from clover_code.gateway.fill import Filler, Options
from clover_code.gateway.marks import unmarked
from clover_engine.api import CancelToken
from clover_engine.clients.fim import TEMPLATES, FimParts
from clover_engine.errors import RequestError
from clover_engine.testing.fakes import FakeEngine
from clover_lsp.context.room import Room, RoomOptions

Start = Callable[..., Gateway]
HOLE = {"input_prefix": "def f(a):\n", "prompt": "    return ", "input_suffix": "\n"}
LONG = " ".join(["word"] * 5000)
"""With a second a word it would take more than an hour."""


def test_health_and_models(start: Start) -> None:
    gateway = start(infills=["a"])
    gateway.post("/infill", HOLE)
    status, text = gateway.ask("/health")
    assert status == 200 and json.loads(text)["status"] == "ok"
    listed = json.loads(gateway.ask("/v1/models")[1])
    assert [model["object"] for model in listed["data"]] == ["model"]
    status, text = gateway.ask("/v1/embeddings", {})
    assert status == 404 and "/infill" in json.loads(text)["error"]["message"]
    assert gateway.ask("/infill")[0] == 405


def test_pages_and_other_names_are_refused(start: Start) -> None:
    gateway = start("--allow-origin", "http://localhost:3000")
    for headers in (
        {"Host": "rebound.example"},
        {"Host": f"rebound.example:{gateway.port}"},
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3001"},
    ):
        status, text = gateway.ask("/infill", HOLE, headers)
        assert status == 403 and json.loads(text)["error"]["message"], headers
    for headers in ({"Host": "localhost:1"}, {"Host": "[::1]:1"}, {"Host": "127.0.0.1"}):
        assert gateway.ask("/infill", HOLE, headers)[0] == 200, headers
    assert gateway.ask("/infill", HOLE, {"Origin": "http://localhost:3000"})[0] == 200


def test_a_key(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOVER_GATEWAY_KEY", "s3")
    gateway = start()
    assert gateway.ask("/health")[0] in (200, 503)
    status, text = gateway.ask("/v1/models")
    assert status == 401 and "Bearer" in text
    assert gateway.ask("/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401
    assert gateway.ask("/v1/models", headers={"Authorization": "Bearer s3"})[0] == 200
    assert gateway.ask("/infill", HOLE, {"X-Api-Key": "s3"})[0] == 200


def test_other_machines_need_a_key(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOVER_GATEWAY_KEY", raising=False)
    ran = command("gateway", "--host", "0.0.0.0")
    assert ran.code == 2 and "CLOVER_GATEWAY_KEY" in ran.err


def test_a_port_that_is_taken(start: Start, command: Any) -> None:
    ran = command("gateway", "--port", str(start().port))
    assert ran.code == 2 and "choose another --port" in ran.err


def test_bad_bodies(start: Start) -> None:
    gateway = start()
    for body in (b"", b"{", b"[]", b"\xff", b'{"prompt": 3}', b'{"input_extra": [3]}'):
        status, text = gateway.ask("/infill", body)
        assert status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error"
    status, text = gateway.ask("/infill", b'{"prompt": "' + b"a" * (9 << 20) + b'"}')
    assert status == 413 and "send less" in text
    assert gateway.post("/infill", HOLE)["content"] == "pass"


def test_an_engine_that_fails_says_why(start: Start) -> None:
    gateway = start(broken="no weights here; run clover-code model get")
    status, text = gateway.ask("/infill", HOLE)
    assert status == 503 and "model get" in json.loads(text)["error"]["message"]
    events = gateway.ask("/v1/completions", {"prompt": "a", "suffix": "", "stream": True})[1]
    assert "model get" in events


def test_without_a_model_look_ups_answer(start: Start) -> None:
    gateway = start("--engine", "none", "--min-confidence", "0")
    wait_for_index(gateway)
    body = {
        "input_prefix": "import prices\n\n\ndef other(cart):\n",
        "prompt": "    subtotal = prices.",
        "input_suffix": "\n",
    }
    found = gateway.post("/infill", body)
    assert found["content"] == 'subtotal_of(cart, currency="EUR")'
    assert found["clover"]["origin"] == "lookup"
    status, text = gateway.ask("/v1/chat/completions", {"messages": [{"role": "user"}]})
    assert status == 501 and "no model" in text


def wait_for_index(gateway: Gateway) -> None:
    while json.loads(gateway.ask("/health")[1])["index"] != "ready":
        assert gateway.process.poll() is None


@pytest.fixture
def room(repository: Path, tmp_path: Path) -> Any:
    room = Room(RoomOptions(watch=False, cache_dir=tmp_path / "cache"))
    room.start()
    room.set_roots([str(repository)])
    assert room.wait(60)
    yield room
    room.close()


def test_the_model_reads_the_repository(room: Room, repository: Path) -> None:
    engine = FakeEngine(infills=["delivery(cart)"])
    filler = Filler(engine, room, Options(repository))
    sent = [{"text": "RATE = 3", "filename": "rates.py"}, {"text": "key = 'AKIAIOSFODNN7EXAMPLE'"}]
    body = {
        "input_prefix": "from prices import delivery\n\n\ndef ship(cart):\n",
        "prompt": "    cost = 2 * delivery",
        "input_suffix": "\n    return cost\n",
        "input_extra": sent,
    }
    for _ in range(2):  # the document's imports are known once it was parsed
        filler.fill(asked.infill(body), CancelToken())
        assert room.wait(60)
    request = engine.requests[-1]
    texts = [snippet.text for snippet in request.snippets]  # type: ignore[union-attr]
    assert any("def delivery(cart)" in text for text in texts)
    assert "RATE = 3" in texts and not any("AKIA" in text for text in texts)


def test_the_document_is_found_by_its_text(room: Room, repository: Path) -> None:
    """What stands on disk where the cursor is now is no suggestion."""
    at = SHOP.index("prices.subtotal_of")
    rest = SHOP[SHOP.index("\n", at) :]
    filler = Filler(None, room, Options(repository, min_confidence=0))
    filled = filler.fill(asked.Hole(SHOP[:at], rest, 64), CancelToken())
    assert not any("subtotal_of(cart, " in text for text in filled.texts)
    assert room.whose(SHOP[:at], rest) == str(repository / "shop.py")
    assert room.whose("nothing\nlike\nit\nanywhere\n", "\n") == ""


def test_withheld_documents_get_nothing(room: Room, repository: Path) -> None:
    engine = FakeEngine()
    hole = asked.Hole("TOKEN = ", "\n", 64, path=".env")
    filled = Filler(engine, room, Options(repository)).fill(hole, CancelToken())
    assert not filled.texts and "secrets" in filled.reason and not engine.requests


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_the_work(start: Start, stream: bool) -> None:
    """The model does one thing at a time: it answers again since it was stopped."""
    gateway = start(answers=[LONG], step_s=1.0, infills=["a"])
    connection = gateway.connect()
    body = {"messages": [{"role": "user", "content": "go on"}], "stream": stream}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    if stream:
        answer = connection.getresponse()
        while b"assistant" not in answer.readline():
            pass
        answer.close()
    connection.close()
    assert gateway.post("/infill", HOLE)["content"] == "a"


def test_it_ends_when_asked(start: Start) -> None:
    gateway = start()
    gateway.post("/infill", HOLE)
    code, said = gateway.close()
    assert code == 0 and "stopped" in said


TEXT = st.text(st.sampled_from("ab \n(<|>_:é")).filter(lambda text: "<|" not in text)


@pytest.mark.parametrize("name", [name for name in TEMPLATES if TEMPLATES[name].after])
@given(prefix=TEXT, suffix=TEXT)
def test_marks_are_taken_apart_as_they_are_put(name: str, prefix: str, suffix: str) -> None:
    found = unmarked(TEMPLATES[name].prompt(FimParts(prefix, suffix)))
    assert found is not None and (found.prefix, found.suffix) == (prefix, suffix)


def test_other_files_between_marks() -> None:
    prompt = "<|file_sep|>a.py\nA\n<|file_sep|>b.py\n<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>"
    found = unmarked(prompt)
    assert found is not None and found.path == "b.py"
    assert [(each.path, each.text) for each in found.snippets] == [("a.py", "A\n")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    *("prompt", "suffix", "stop", "n", "n_cmpl", "n_predict", "max_tokens", "temperature", "seed"),
    *("messages", "input_prefix", "input_suffix", "input_extra", "path", "top_p", "tools"),
    "chat_template_kwargs",
)


@pytest.mark.parametrize("read", [asked.completion, asked.infill, asked.chat])
@given(body=st.dictionaries(st.sampled_from(NAMES), JSON))
def test_any_object_is_read_or_refused_in_words(read: Any, body: dict[str, Any]) -> None:
    try:
        read(body)
    except RequestError as error:
        assert str(error)
