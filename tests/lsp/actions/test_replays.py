"""Recorded editing with the next edits that are expected, over the real protocol.

A replay is a text and steps: `replace` ([old, new], first place), `diagnose` ([word, message]),
`wait` (seconds: the next change is an edit of its own), and `ask` with what is to be proposed
(`kind` and the resulting line or lines) or null; then `take`, `show` or `reject` it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from clover_engine.testing.answers import FakeModel
from clover_engine.testing.server import FakeServer

REPLAYS = sorted((Path(__file__).parent / "replays").glob("*.json"))
REQUEST = "textDocument/copilotInlineEdit"


class Player:
    """Plays one replay in one document."""

    def __init__(self, bench: Any, name: str, replay: dict[str, Any]) -> None:
        self.bench, self.editor = bench, bench.editor
        self.uri = self.editor.open(f"untitled:{name}.src", replay["text"], replay["language"])
        self.cursor = 0

    @property
    def text(self) -> str:
        return str(self.editor.texts[self.uri])

    def play(self, step: dict[str, Any]) -> None:
        if "replace" in step:
            old, new = step["replace"]
            start = self.text.index(old)
            self.change(start, start + len(old), new)
        elif "diagnose" in step:
            word, message = step["diagnose"]
            found = self.bench.diagnostic(self.uri, word, message, "F821")
            self.bench.actions(self.uri, [found])
        elif "wait" in step:
            time.sleep(step["wait"])
        else:
            self.ask(step)

    def change(self, start: int, end: int, new: str) -> None:
        """As typing does: only what differs."""
        old = self.text[start:end]
        while old and new and old[0] == new[0]:
            old, new, start = old[1:], new[1:], start + 1
        while old and new and old[-1] == new[-1]:
            old, new, end = old[:-1], new[:-1], end - 1
        self.editor.replace(self.uri, start, end, new)
        self.cursor = start + len(new)

    def ask(self, step: dict[str, Any]) -> None:
        how = step["ask"]
        if "at" in how:
            self.cursor = self.text.index(how["at"]) + len(how["at"])
        found = self.request(asked=how.get("asked", False))
        if step["expect"] is None:
            assert found is None, self.shown(found["edits"][0])
            return
        assert found is not None, f"expected {step['expect']}"
        edit = found["edits"][0]
        expected = (step["expect"]["kind"], step["expect"]["line"])
        assert (edit["kind"], self.shown(edit)) == expected
        if step.get("take"):
            start, end = self.span(edit)
            self.editor.replace(self.uri, start, end, edit["text"])
            self.cursor = start + len(edit["text"])
            self.bench.command(edit["command"]["command"], *edit["command"]["arguments"])
        if step.get("show"):
            self.editor.notify("textDocument/didShowInlineEdit", {"item": edit})
        if step.get("reject"):
            self.bench.command("clover.rejectNextEdit", *edit["command"]["arguments"])

    def request(self, asked: bool = False, version: int | None = None) -> Any:
        place = self.editor.position(self.uri, self.cursor)
        params = {
            "textDocument": {
                "uri": self.uri,
                "version": self.editor.versions[self.uri] if version is None else version,
            },
            "position": {"line": place.line, "character": place.character},
            "context": {"triggerKind": 1 if asked else 2},
        }
        return plain(self.editor.request(REQUEST, params))

    def span(self, edit: Any) -> tuple[int, int]:
        ends = (edit["range"]["start"], edit["range"]["end"])
        places = [types.Position(e["line"], e["character"]) for e in ends]
        start, end = (self.editor.offset(self.uri, p) for p in places)
        return start, end

    def shown(self, edit: Any) -> str:
        """The lines that the edit would leave."""
        start, end = self.span(edit)
        after = self.text[:start] + edit["text"] + self.text[end:]
        first = after.rfind("\n", 0, start) + 1
        last = after.find("\n", start + len(edit["text"]))
        return after[first : len(after) if last < 0 else last].rstrip("\r")


def plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("path", REPLAYS, ids=[p.stem for p in REPLAYS])
def test_replay(bench: Any, path: Path) -> None:
    replay = json.loads(path.read_text("utf-8"))
    player = Player(bench, path.stem, replay)
    for number, step in enumerate(replay["steps"]):
        try:
            player.play(step)
        except AssertionError as error:
            raise AssertionError(f"step {number} of {path.name}: {error}") from error


def test_another_version_gets_nothing(bench: Any) -> None:
    player = Player(bench, "stale", {"text": "total = 1\nprint(total)\n", "language": "python"})
    player.play({"replace": ["total = ", "amount = "]})
    assert player.request(version=1) is None
    assert player.request(version=99) is None
    assert player.request() is not None


def test_a_request_without_a_version_is_refused(bench: Any) -> None:
    uri = bench.editor.open("untitled:unversioned.py", "x = 1\n")
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}}
    with pytest.raises(JsonRpcException, match="version"):
        bench.editor.request(REQUEST, params)


AREA = "def area(width, height):\n    pass\n\n\nprint(area(2, 3))\n"


def test_a_served_model_is_asked_where_no_rule_knows(bench: Any) -> None:
    """Only once the user named it, and not about documents that are withheld."""
    wanted = "def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"
    with FakeServer(FakeModel([wanted])) as server:
        player = Player(bench, "model", {"text": AREA, "language": "python"})
        player.play({"replace": ["pass\n", "ret\n"]})
        assert player.request() is None and not server.bodies("/v1/completions")
        chosen = {"url": server.url, "layout": "sweep"}
        change = types.DidChangeConfigurationParams({"clover": {"nextEdit": chosen}})
        bench.editor.notify("workspace/didChangeConfiguration", change)
        player.ask({"ask": {}, "expect": {"kind": "model", "line": "    return width * height"}})
        (body,) = server.bodies("/v1/completions")
        assert "ret\n" in body["prompt"] and "pass" in body["prompt"]
        secret = bench.editor.open("untitled:.env", AREA)
        player.uri = secret
        player.play({"replace": ["pass\n", "ret\n"]})
        assert player.request() is None and len(server.bodies("/v1/completions")) == 1
