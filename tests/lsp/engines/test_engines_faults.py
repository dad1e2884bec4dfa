"""A model server that fails, behind the real language server: suggestions go on, and come back."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CLIENT = sys.modules["lsp_client"]
FAKE = Path(__file__).parents[2] / "llamacpp" / "fake_server.py"
KEY = "sk-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
SECRET = "ghp_" + "a1B2c3D4e5" * 4
COMPLETION = {"debounceMs": 0, "prefetch": False, "deadlineMs": 4000}


def _fake() -> Any:
    known = sys.modules.get("fake_llama_server")
    if known is None:
        spec = importlib.util.spec_from_file_location("fake_llama_server", FAKE)
        assert spec is not None and spec.loader is not None
        known = sys.modules["fake_llama_server"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    return known


class Backend:
    """A llama-server at one address, dead or alive."""

    def __init__(self) -> None:
        self.fake = self._start(0)

    def _start(self, port: int) -> Any:
        return _fake().FakeLlamaServer(port, text="from_server")

    def fail(self, how: str) -> None:
        if how == "dead":
            self.fake.close()
        else:
            self.fake.script.fault = how

    def mend(self, how: str) -> None:
        if how == "dead":
            self.fake = self._start(self.fake.port)
        else:
            self.fake.script.fault = ""
            self.fake.released.set()
            self.fake.released.clear()


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.fake.close()


def settings(backend: Backend, **more: Any) -> dict[str, Any]:
    return {"engine": "llamacpp", "llamacpp": {"url": backend.fake.url}, **more}


def message(editor: Any) -> str:
    said: str = editor.status()["message"]
    return said


def next_line(editor: Any, uri: str) -> str:
    """What is suggested on a line that nobody has asked for yet."""
    editor.type(uri, f"\nname_{editor.versions[uri]} = ")
    [item] = editor.suggest(uri)
    text: str = item.insert_text
    return text


@pytest.mark.parametrize("how", ["dead", "hang", "refuse"])
def test_the_embedded_model_suggests_until_the_server_is_back(
    servers: Any, backend: Backend, how: str
) -> None:
    backend.fail(how)
    editor = servers(settings=settings(backend, completion=COMPLETION))
    editor.script.set(default="from_embedded")
    uri = editor.open("untitled:a.py", "import os")
    CLIENT.until(lambda: "answers meanwhile" in message(editor))
    assert editor.status()["kind"] == "Warning"
    assert next_line(editor, uri) == "from_embedded"
    backend.mend(how)
    CLIENT.until(lambda: message(editor).startswith("llamacpp tiny-q8 at http://127.0.0.1:"))
    assert editor.status()["kind"] == "Normal"
    assert next_line(editor, uri) == "from_server"
    asked = len(editor.script.prompts())
    backend.fail(how)
    assert next_line(editor, uri) == "from_embedded", "within the same request"
    assert len(editor.script.prompts()) == asked + 1
    assert editor.stop() == 0


def test_a_server_needs_no_model_of_ours(servers: Any, backend: Backend) -> None:
    editor = servers(worker="/nowhere/python", settings=settings(backend, completion=COMPLETION))
    uri = editor.open("untitled:a.lua", "local a = 1", "lua")
    assert next_line(editor, uri) == "from_server"
    assert editor.stop() == 0


def test_secrets_stay_here_and_keys_out_of_the_log(servers: Any, backend: Backend) -> None:
    backend.fake.script.key = KEY
    chosen = settings(backend, completion=COMPLETION)
    chosen["llamacpp"]["apiKey"] = KEY
    editor = servers(settings=chosen, arguments=["--log-level", "debug"])
    uri = editor.open("untitled:a.py", f'import os\ntoken = "{SECRET}"')
    assert next_line(editor, uri) == "from_server"
    sent = json.dumps(backend.fake.requests)
    assert "import os" in sent and SECRET not in sent
    assert KEY not in json.dumps([editor.status(), editor.statuses])
    assert editor.stop() == 0
    log = editor.log.read_text()
    assert "initialize" in log, "debug logs whole messages"
    assert KEY not in log and KEY not in editor.stderr


def test_flags_win_over_what_the_editor_says(servers: Any, backend: Backend) -> None:
    flags = ["--engine", "llamacpp", "--engine-url", backend.fake.url]
    editor = servers(arguments=flags, settings={"engine": "none", "completion": COMPLETION})
    uri = editor.open("untitled:a.py", "import os")
    assert next_line(editor, uri) == "from_server"
    assert editor.stop() == 0
