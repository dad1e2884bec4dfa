"""The engine on the command line: a model server, its stand-in, and what cannot be meant."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
FakeModel = Callable[..., None]
FAKE = Path(__file__).parents[1] / "llamacpp" / "fake_server.py"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("SGLANG", "LLAMACPP"):
        monkeypatch.delenv(f"CLOVER_{name}_URL", raising=False)
    known = sys.modules.get("fake_llama_server")
    if known is None:
        spec = importlib.util.spec_from_file_location("fake_llama_server", FAKE)
        assert spec is not None and spec.loader is not None
        known = sys.modules["fake_llama_server"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    with known.FakeLlamaServer(text="from_server") as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "a.py").write_text("x = \n")
    return f"{tmp_path}/a.py:1:5"


def test_a_server_fills_the_hole(command: Command, server: Any, place: str) -> None:
    ran = command("infill", "--json", "--engine", "llamacpp", "--engine-url", server.url, place)
    assert (ran.code, ran.json["text"], ran.json["shown"]) == (0, "from_server", True)
    assert server.bodies("/infill")[0]["input_prefix"] == "x = "


def test_the_environment_names_it_too(
    command: Command, server: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVER_LLAMACPP_URL", server.url)
    assert command("infill", "--json", place).json["text"] == "from_server"


def test_the_embedded_model_stands_in_and_it_is_said(
    command: Command, fake_model: FakeModel, server: Any, place: str
) -> None:
    fake_model(infills=["from_embedded"])
    server.script.fault = "refuse"
    ran = command("infill", "--json", "--engine", "llamacpp", "--engine-url", server.url, place)
    assert (ran.code, ran.json["text"]) == (0, "from_embedded")
    assert ran.err.count("note:") == 1 and "something broke" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine-url", "http://127.0.0.1:1"], "add --engine sglang, llamacpp, openai"),
        (["--engine", "sglang"], "add --engine-url URL, or set CLOVER_SGLANG_URL"),
        (["--engine", "openai"], "add --engine-url URL, or set CLOVER_OPENAI_URL"),
        (["--engine", "sglang", "--engine-url", "gpu:1"], "an address like http://"),
        (["--engine", "sglang", "--engine-url", "http://a:pass@b"], "no password"),
    ],
)
def test_what_cannot_be_meant(
    command: Command, server: Any, place: str, arguments: list[str], words: str
) -> None:
    for run in (["infill", place], ["doctor"], ["fix"]):
        ran = command(*run, *arguments)
        assert ran.code == 2 and words in ran.err and "pass@" not in ran.err


def test_doctor_looks_at_the_servers(
    command: Command, fake_model: FakeModel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_model()
    monkeypatch.setenv("CLOVER_LLAMACPP_URL", server.url)
    ran = command("doctor")
    assert ran.code == 0 and f"tiny-q8 at {server.url}: answered in" in ran.out
    server.script.fault = "loading"
    ran = command("doctor", "--json")
    [check] = [c for c in ran.json["checks"] if c["name"] == "llamacpp"]
    assert ran.code == 1 and not check["ok"]
    assert "Loading model" in check["detail"] and "CLOVER_LLAMACPP_URL" in check["fix"]
