"""Types real files into the real server and measures what a user would feel.

    python -m bench.editor.lsp [--keystrokes 2000] [--model-keystrokes 400] [--json]

The client does what editors do: every character is a change and a request, at a typist's speed,
and the next keystroke does not wait for an answer. Three parts:

* *server*: a fake model that answers at once; what remains is the server's own time (its debounce
  is off, since it is waiting on purpose and not work);
* *stopping*: a fake model with slow steps; how long it goes on after a cancellation;
* *model*: clover-nano with all defaults, from the keystroke to the item, for the keystrokes that
  got one, and for those that the model computed.

Start-up and idle CPU are of the server process alone. A stale item is one that does not fit the
document at the moment it arrives.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

FILES = ("argparse", "textwrap", "configparser", "shlex", "fractions", "difflib")
"""Modules of the standard library whose text is typed in."""
TYPIST_S = 0.12
STARTS = 7


@dataclass
class Typed:
    """What one replay saw. Times in seconds."""

    latencies: list[float] = field(default_factory=list)
    """From the keystroke to an item."""
    empty: int = 0
    cancelled: int = 0
    stale: int = 0
    keystrokes: int = 0


class Editor:
    """A client that types."""

    def __init__(self, folder: Path, worker: Sequence[str] | None, settings: Any) -> None:
        self.client = LanguageClient("bench", "1")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("CLOVER_")}
        self.env |= {"CLOVER_STATE_DIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        if worker is not None:
            self.env["CLOVER_WORKER"] = shlex.join(worker)
        self.settings, self.folder = settings, folder
        self.version, self.text, self.uri = 0, "", ""
        self.started_s = 0.0

        @self.client.feature("didChangeStatus")
        def status(params: Any) -> None: ...

    async def start(self) -> None:
        begun = time.monotonic()
        log = ["--log", str(self.folder / "server.log")]
        command = [sys.executable, "-m", "clover_code", "lsp", *log]
        await self.client.start_io(*command, env=self.env)
        inline = types.InlineCompletionClientCapabilities()
        document = types.TextDocumentClientCapabilities(inline_completion=inline)
        params = types.InitializeParams(
            capabilities=types.ClientCapabilities(text_document=document),
            initialization_options=self.settings,
            workspace_folders=[types.WorkspaceFolder(self.folder.as_uri(), "bench")],
        )
        await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        self.started_s = time.monotonic() - begun

    async def status(self) -> Any:
        return await self.client.protocol.send_request_async("clover/status", None)

    async def open(self, uri: str, text: str) -> None:
        self.uri, self.text, self.version = uri, text, 1
        item = types.TextDocumentItem(uri, "python", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        while (await self.status()).index.state == "indexing" or (await self.status()).busy:
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        identifier = types.TextDocumentIdentifier(self.uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))

    def type(self, offset: int, character: str) -> None:
        at = self.position(offset)
        change = types.TextDocumentContentChangePartial(types.Range(at, at), character)
        self.text = self.text[:offset] + character + self.text[offset:]
        self.version += 1
        document = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def position(self, offset: int) -> types.Position:
        line = self.text.count("\n", 0, offset)
        return types.Position(line, offset - self.text.rfind("\n", 0, offset) - 1)

    def offset(self, position: types.Position) -> int:
        start = 0
        for _ in range(position.line):
            start = self.text.index("\n", start) + 1
        return start + position.character

    def ask(self, offset: int) -> Any:
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic),
            text_document=types.TextDocumentIdentifier(self.uri),
            position=self.position(offset),
        )
        return self.client.text_document_inline_completion_async(params)

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    @property
    def pid(self) -> int:
        server = self.client._server
        assert server is not None
        return server.pid


async def replay(editor: Editor, places: Sequence[tuple[str, int, int]], pause_s: float) -> Typed:
    """Types characters [start, end) of each text, the rest standing around them."""
    typed = Typed()
    choose = random.Random(1)
    for number, (text, start, end) in enumerate(places):
        head, tail = text[:start], text[end:]
        await editor.open(f"file://{editor.folder}/typed_{number}.py", head + tail)
        waiting: set[asyncio.Task[None]] = set()
        for at in range(start, end):
            editor.type(at, text[at])
            typed.keystrokes += 1
            task = asyncio.create_task(_answer(editor, at + 1, typed))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(choose.gauss(pause_s, pause_s / 3) if pause_s else 0)
            if not pause_s:
                await asyncio.gather(*waiting)
        await asyncio.gather(*waiting)
        await editor.close()
    return typed


async def _answer(editor: Editor, offset: int, typed: Typed) -> None:
    begun = time.monotonic()
    found = await editor.ask(offset)
    seconds = time.monotonic() - begun
    if found is None or not found.items:
        typed.empty += 1
        return
    item = found.items[0]
    start, end = editor.offset(item.range.start), editor.offset(item.range.end)
    fits = start <= end <= len(editor.text) and item.insert_text.startswith(editor.text[start:end])
    typed.stale += not fits
    typed.latencies.append(seconds)


def places(keystrokes: int, seed: int = 0) -> list[tuple[str, int, int]]:
    """Stretches of whole lines of real files, about 100 characters each."""
    choose = random.Random(seed)
    texts = [Path(_origin(name)).read_text("utf-8") for name in FILES]
    found, total = [], 0
    while total < keystrokes:
        text = choose.choice(texts)
        start = text.find("\n", choose.randrange(len(text) // 4, len(text) - 400)) + 1
        end = text.index("\n", start + 100)
        found.append((text, start, end))
        total += end - start
    return found


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return spec.origin


def fake(**options: Any) -> list[str]:
    command = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake"]
    return [*command, json.dumps({"confidence": 0.9999, **options})]


def spread(values: Sequence[float], scale: float = 1000.0) -> dict[str, float]:
    """p50, p95 and the greatest, in ms."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        "n": len(values),
        "p50": round(scale * statistics.median(ordered), 2),
        "p95": round(scale * p95, 2),
        "max": round(scale * ordered[-1], 2),
    }


async def metrics(editor: Editor) -> Any:
    return await editor.client.protocol.send_request_async("clover/debug/metrics", None)


def cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


async def server_part(keystrokes: int, folder: Path) -> dict[str, Any]:
    settings = {"completion": {"debounceMs": 0, "prefetch": False, "lookup": True}}
    editor = Editor(folder, fake(default_infill="value"), settings)
    await editor.start()
    typed = await replay(editor, places(keystrokes), 0)
    requests = (await metrics(editor)).requests
    done = [r for r in requests if r.outcome in ("offered", "nothing", "reused")]
    asked = [r.own_s for r in done if r.engine_s > 0]
    before = cpu_s(editor.pid)
    await asyncio.sleep(10)
    idle = (cpu_s(editor.pid) - before) / 10
    await editor.stop()
    return {
        "keystrokes": typed.keystrokes,
        "own ms": spread([r.own_s for r in done]),
        "own ms, model asked": spread(asked),
        "stale": typed.stale,
        "idle CPU %": round(100 * idle, 2),
    }


async def stopping_part(folder: Path, step_s: float = 0.03) -> dict[str, Any]:
    settings = {"completion": {"debounceMs": 0, "prefetch": False, "lookup": False}}
    editor = Editor(folder, fake(default_infill="a b c d e f g h i j", step_s=step_s), settings)
    await editor.start()
    typed = await replay(editor, places(150, seed=1), 0.07)
    await asyncio.sleep(1.0)
    requests = (await metrics(editor)).requests
    stopped = [r.stopped_s / step_s for r in requests if r.stopped_s is not None]
    await editor.stop()
    return {
        "requests": len(requests),
        "superseded": sum(r.outcome == "superseded" for r in requests),
        "steps from cancel to return": spread(stopped, 1.0),
        "stale": typed.stale,
    }


async def model_part(keystrokes: int, folder: Path) -> dict[str, Any]:
    editor = Editor(folder, None, {})
    await editor.start()
    typed = await replay(editor, places(keystrokes, seed=2), TYPIST_S)
    found = await metrics(editor)
    computed = [r.total_s for r in found.requests if r.outcome == "offered" and r.engine_s > 0]
    finished = [r.engine_s for r in found.requests if r.engine_s > 0 and r.stopped_s is None]
    await editor.stop()
    return {
        "keystrokes": typed.keystrokes,
        "keystroke to item ms": spread(typed.latencies),
        "of these computed by the model, ms": spread(computed),
        "model alone ms": spread(finished),
        "items": len(typed.latencies),
        "superseded": sum(r.outcome == "superseded" for r in found.requests),
        "prefetches": found.prefetches,
        "stale": typed.stale,
    }


async def start_part(folder: Path) -> dict[str, Any]:
    """Wall and CPU time to `initialized`, the median of several starts."""
    walls, cpus = [], []
    for _ in range(STARTS):
        editor = Editor(folder, fake(), {})
        await editor.start()
        walls.append(editor.started_s)
        cpus.append(cpu_s(editor.pid))
        await editor.stop()
    return {
        "start to initialized s": round(statistics.median(walls), 3),
        "fastest s": round(min(walls), 3),
        "its CPU s": round(statistics.median(cpus), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keystrokes", type=int, default=2000)
    parser.add_argument("--model-keystrokes", type=int, default=400, help="0 leaves the model out")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as name:
        folders = iter(Path(name) / part for part in ("start", "server", "stopping", "model"))

        def fresh() -> Path:
            folder = next(folders)
            folder.mkdir()
            return folder

        found["start"] = asyncio.run(start_part(fresh()))
        found["server"] = asyncio.run(server_part(args.keystrokes, fresh()))
        found["stopping"] = asyncio.run(stopping_part(fresh()))
        if args.model_keystrokes:
            found["model"] = asyncio.run(model_part(args.model_keystrokes, fresh()))
    if args.json:
        print(json.dumps(found))
        return 0
    for part, rows in found.items():
        if not isinstance(rows, dict):
            print(f"{part}: {rows}")
            continue
        print(f"\n{part}")
        for row, value in rows.items():
            shown = value if not isinstance(value, dict) else _words(value)
            print(f"  {row:38} {shown}")
    return 0


def _words(values: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main())
