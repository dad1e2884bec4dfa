"""Prefetching, look-ups, ignored files and roots, through the real server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lsprotocol import types

CLIENT = sys.modules["lsp_client"]
QUIET = {"completion": {"debounceMs": 0, "prefetch": False}}


def test_the_suggestion_after_acceptance_is_ready(servers: Any) -> None:
    editor = servers(settings={"completion": {"debounceMs": 0}})
    target = "def area(width, height):\n    return width * height\n"
    editor.script.set(targets=[target])
    uri = editor.open("untitled:a.py", "def area")
    (item,) = editor.suggest(uri)
    assert item.insert_text == "(width, height):"
    prefetch = editor.script.wait_for("begin", 2)[1]
    assert prefetch["prefix"] == "def area(width, height):"
    editor.script.wait_for("end", 2)
    # Logged by the model before its answer is with the server; a request would join it anyway.
    editor.accept(uri, item)
    (after,) = editor.suggest(uri)
    assert after.insert_text == "\n    return width * height"
    assert len(editor.script.prompts()) == 2
    editor.accept(uri, after)
    assert editor.texts[uri] == target.rstrip("\n")
    assert editor.stop() == 0


def test_a_keystroke_stops_the_prefetch(servers: Any) -> None:
    editor = servers(settings={"completion": {"debounceMs": 0}})
    target = "x = first(1) + second(2) + third(3)\n"
    editor.script.set(targets=[target])
    uri = editor.open("untitled:a.py", "x = ")
    assert editor.suggest(uri)
    editor.script.wait_for("end", 1)
    editor.script.set(default="a b c d e f g h i j k l m n o p", step_s=0.5)
    editor.type(uri, "f")
    (item,) = editor.suggest(uri)  # what was typed through; then the prefetch begins anew
    assert item.insert_text == target.strip().removeprefix("x = f")
    editor.script.wait_for("begin", 2)
    editor.type(uri, "!")
    editor.script.wait_for("cancel", 1)
    editor.script.wait_for("end", 2)
    assert editor.stop() == 0


def test_languages_without_a_model_get_look_ups_only(servers: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    body = "  local first = require('first')\n  local second = first.open(path, { mode = 'r' })\n"
    names = ("load", "read", "scan", "walk")
    done = "".join(f"function M.{name}(path)\n{body}  return second\nend\n\n" for name in names)
    (root / "other.lua").write_text("local M = {}\n\n" + done + "return M\n")
    editor = servers(settings=QUIET, roots=[root])
    start = (
        "local N = {}\n\nfunction N.last(path)\n  local first = require('first')\n  local second = "
    )
    uri = editor.open((root / "new.lua").as_uri(), start + "\nend\n", "lua")
    found = CLIENT.until(lambda: editor.suggest(uri, len(start)))
    assert found[0].insert_text == "first.open(path, { mode = 'r' })"
    assert editor.script.prompts() == []
    editor.notify("textDocument/didFocus", {"textDocument": {"uri": uri}})
    CLIENT.until(lambda: "does not know lua" in editor.status()["message"])
    assert editor.stop() == 0


def test_40_user_globs_add_to_the_defaults(servers: Any, tmp_path: Path) -> None:
    """zed#46345: with a glob of the user's own, `.env` was predicted again."""
    root = tmp_path / "root"
    root.mkdir()
    settings = {**QUIET, "context": {"ignore": ["*_gen.py"]}}
    editor = servers(settings=settings, roots=[root])
    editor.script.set(default="value")
    for name in (".env", "client_gen.py", "id_rsa"):
        uri = editor.open((root / name).as_uri(), "x = ")
        assert editor.suggest(uri) == [], name
        assert editor.suggest(uri, kind=CLIENT.INVOKED) == [], name
    assert editor.script.prompts() == []
    assert editor.suggest(editor.open((root / "plain.py").as_uri(), "x = "))
    assert editor.stop() == 0


def test_33_a_root_that_is_added_later_has_its_own_rules(servers: Any, tmp_path: Path) -> None:
    """cody#6315: paths of the second root were joined to the first."""
    first, second = tmp_path / "folder1", tmp_path / "folder2"
    for root in (first, second):
        root.mkdir()
        (root / "demo.py").write_text("x = ")
    (second / ".cloverignore").write_text("demo.py\n")
    editor = servers(settings=QUIET, roots=[first])
    editor.script.set(default="value")
    uris = [editor.open((root / "demo.py").as_uri(), "x = ") for root in (first, second)]
    assert editor.suggest(uris[0])
    assert editor.suggest(uris[1]) == [], "what lies around a file binds also without a root"
    folder = types.WorkspaceFolder(second.as_uri(), "folder2")
    event = types.WorkspaceFoldersChangeEvent(added=[folder], removed=[])
    params = types.DidChangeWorkspaceFoldersParams(event)
    editor.notify(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, params)
    CLIENT.until(lambda: editor.suggest(uris[1], kind=CLIENT.INVOKED) == [])
    assert editor.suggest(uris[0])
    assert editor.stop() == 0


def test_secrets_inside_a_file_do_not_reach_the_model(servers: Any) -> None:
    editor = servers(settings=QUIET)
    editor.script.set(default="value")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    uri = editor.open("untitled:a.py", f'token = "{secret}"\nx = ')
    editor.suggest(uri)
    (prompt,) = editor.script.prompts()
    whole = prompt["prefix"] + prompt["must_start_with"]
    assert secret not in whole and whole.endswith("x = ")
    assert editor.stop() == 0


def test_the_stock_fake_engine(servers: Any) -> None:
    """The worker exactly as it ships."""
    worker = f"{sys.executable} -P -m clover_engine.worker --fake "
    editor = servers(settings=QUIET, worker=worker + "'{\"confidence\": 0.9999}'")
    (item,) = editor.suggest(editor.open("untitled:a.py", "def f():\n    "))
    assert item.insert_text == "pass"
    assert editor.stop() == 0
