"""The models on this machine, asked for by an editor: nothing comes without the user's word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

CLIENT = sys.modules["lsp_client"]
QUIET = {"completion": {"debounceMs": 0, "prefetch": False}}


@pytest.fixture
def editor(servers: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    # Only the hub's name is replaced: nobody listens at that port.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    made = servers(settings=QUIET)
    made.script.set(targets=["value = quick(1)"], large={"targets": ["value = large(2)"]})
    yield made
    assert made.stop() == 0


def models(editor: Any) -> dict[str, dict[str, Any]]:
    return {m["name"]: m for m in map(CLIENT.plain, editor.command("clover.models"))}


def folder(editor: Any) -> Path:
    path: Path = editor.folder / "cache" / "clover-code" / "models"
    return path


def test_what_there_is(editor: Any) -> None:
    found = models(editor)
    assert found["nano"]["installed"] and found["nano"]["inUse"]
    coder = found["coder-0.5b"]
    assert not coder["installed"] and not coder["inUse"]
    assert coder["licence"] == "Apache-2.0" and coder["bytes"] == 491_400_064


def test_a_download_that_fails_says_what_to_do_and_leaves_nothing(editor: Any) -> None:
    answer = CLIENT.plain(editor.command("clover.getModel", {"name": "coder-0.5b"}))
    assert not answer["installed"]
    assert "run the same command again" in answer["reason"]
    assert not models(editor)["coder-0.5b"]["installed"]
    assert not list(folder(editor).glob("*.gguf"))


@pytest.mark.parametrize("command", ["clover.getModel", "clover.useModel"])
def test_names_that_are_none(editor: Any, command: str) -> None:
    answer = CLIENT.plain(editor.command(command, {"name": "gpt"}))
    assert "there are: coder-0.5b" in answer["reason"]
    with pytest.raises(JsonRpcException):
        editor.command(command, {"model": "coder-0.5b"})


def test_a_model_that_is_used_answers_at_once_and_until_another_is_chosen(editor: Any) -> None:
    uri = editor.open("untitled:a.lua", "value = ", "lua")
    assert editor.suggest(uri) == [], "clover-nano knows no Lua"
    answer = CLIENT.plain(editor.command("clover.useModel", {"name": "coder-0.5b"}))
    assert not answer["used"] and "model get coder-0.5b" in answer["reason"]
    folder(editor).mkdir(parents=True, exist_ok=True)
    (folder(editor) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf").write_bytes(b"stands for it")
    assert CLIENT.plain(editor.command("clover.useModel", {"name": "coder-0.5b"}))["used"]
    assert models(editor)["coder-0.5b"]["inUse"]
    (item,) = editor.suggest(uri)
    assert item.insert_text == "large(2)"
    assert CLIENT.plain(editor.command("clover.useModel", {"name": "nano"}))["used"]
    assert editor.suggest(uri) == []
