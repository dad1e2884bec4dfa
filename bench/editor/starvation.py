"""How long a completion takes while the server does something else, as ratios of one run.

    python -m bench.editor.starvation [--requests 60] [--json]

A small document is typed into and completions are asked for, by a fake model that answers at
once, while the same server is busy with another document: with nothing, with next edits after
eight earlier changes, with quick fixes in a large file, with indexing a tree, with a repair.
Each is kept going for as long as the completions last. Prints, for each, the median and the 95th
percentile of the time from a request to its answer, how many got no answer, and the ratio of the
95th percentile to that of the idle server in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.editor.lsp import Editor, fake
from lsprotocol import types

EARLIER = (
    *("fsrc", "fdst", "length", "follow_symlinks"),
    *("ignore", "dirs_exist_ok", "copy_function", "onerror"),
)
"""Names of `shutil` that are renamed one after the other, as a user's history."""
PAUSE_S = 0.08
"""Between two keystrokes."""
TYPED = "def total(rows):\n    return sum(row.price for row in rows)\n\n\n"
Busy = Callable[[Editor, Path], AsyncIterator[None]]


def source(name: str) -> str:
    """A module of the standard library."""
    spec = __import__(name)
    return Path(str(spec.__file__)).read_text("utf-8")


def open_document(editor: Editor, path: Path, text: str) -> str:
    path.write_text(text)
    item = types.TextDocumentItem(path.as_uri(), "python", 1, text)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    return path.as_uri()


def replace_text(editor: Editor, uri: str, version: int, text: str) -> None:
    document = types.VersionedTextDocumentIdentifier(version, uri)
    change = types.TextDocumentContentChangeWholeDocument(text)
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))


async def nothing(editor: Editor, folder: Path) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(PAUSE_S)


async def next_edit(editor: Editor, folder: Path) -> AsyncIterator[None]:
    """`os` is renamed at its import, after eight other renames."""
    text, version = source("shutil"), 1
    uri = open_document(editor, folder / "worked_on.py", text)
    for name in EARLIER:
        text, version = re.sub(rf"\b{name}\b", f"{name}_now", text), version + 1
        replace_text(editor, uri, version, text)
        await asyncio.sleep(1.05)  # later than this, a change is an edit of its own
    text, version = text.replace("import os\n", "import osx\n", 1), version + 1
    replace_text(editor, uri, version, text)
    line = text[: text.index("import osx")].count("\n")
    params = {
        "textDocument": {"uri": uri, "version": version},
        "position": {"line": line, "character": 10},
    }
    while True:
        yield
        await editor.client.protocol.send_request_async("textDocument/copilotInlineEdit", params)


async def quick_fix(editor: Editor, folder: Path) -> AsyncIterator[None]:
    """A comparison with None in a large file, which the patcher's templates are tried on."""
    text = source("_pydecimal") + "\n\ndef broken(value):\n    return value == None or\n"
    uri = open_document(editor, folder / "large.py", text)
    line = text.count("\n") - 1
    diagnostic = {
        "range": {
            "start": {"line": line, "character": 4},
            "end": {"line": line, "character": 27},
        },
        "message": "invalid syntax",
        "severity": 1,
        "source": "bench",
    }
    params = types.ExecuteCommandParams(
        "clover.fixDiagnostic", [{"uri": uri, "version": 1, "diagnostic": diagnostic}]
    )
    while True:
        yield
        await editor.client.workspace_execute_command_async(params)


async def indexing(editor: Editor, folder: Path) -> AsyncIterator[None]:
    """The standard library is a folder that comes, and changes, again and again."""
    library = Path(shutil.__file__).parent
    number = 0
    while True:
        yield
        number += 1
        tree = folder / f"tree_{number}"
        tree.mkdir()
        for file in sorted(library.glob("*.py")):
            (tree / file.name).write_bytes(file.read_bytes() + f"# {number}\n".encode())
        (folder / ".gitignore").write_text(f"# {number}\n")
        event = types.FileEvent((folder / ".gitignore").as_uri(), types.FileChangeType.Changed)
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        await asyncio.sleep(1.0)
        while (await editor.status()).index.state == "indexing":
            yield
            await asyncio.sleep(0.2)


async def repair(editor: Editor, folder: Path) -> AsyncIterator[None]:
    """A failing test of a large module, whose search goes on until its budget is over."""
    text = source("_pydecimal")
    (folder / "decimals.py").write_text(text)
    (folder / "test_decimals.py").write_text(
        "import decimals\n\n\ndef test_sum():\n"
        "    assert str(decimals.Decimal(1) + decimals.Decimal(2)) == 'four'\n"
    )
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    uri = open_document(editor, folder / "decimals.py", text)
    params = types.ExecuteCommandParams("clover.fixTests", [{"uri": uri}])
    while True:
        yield
        await editor.client.workspace_execute_command_async(params)


async def measure(busy: Busy, requests: int, folder: Path) -> dict[str, float]:
    """Times in milliseconds of the completions while `busy` goes on."""
    settings = {
        "completion": {"debounceMs": 0, "prefetch": False, "lookup": False, "minConfidence": 0},
        "fix": {"budgetS": 600, "check": f"{sys.executable} -m pytest -q"},
    }
    editor = Editor(folder, fake(step_s=0.0), settings)
    await editor.start()
    await editor.open(f"file://{folder}/typed.py", TYPED)
    begun = asyncio.Event()

    async def keep_busy() -> None:
        async for _ in busy(editor, folder):
            begun.set()

    work = asyncio.ensure_future(keep_busy())
    await asyncio.wait({work, asyncio.ensure_future(begun.wait())}, return_when="FIRST_COMPLETED")
    if work.done():
        await work
    await asyncio.sleep(1.0)
    times, empty, choose = [], 0, random.Random(1)
    for number in range(requests):
        at = len(editor.text)
        editor.type(at, "abcdefgh"[number % 8] if number % 9 else "\n")
        asked = time.monotonic()
        answer = await editor.ask(at + 1)
        times.append(1000 * (time.monotonic() - asked))
        empty += not (answer and answer.items)
        await asyncio.sleep(PAUSE_S * choose.uniform(0.5, 1.5))
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work
    with contextlib.suppress(Exception):
        await asyncio.wait_for(editor.stop(), 20)
    return {
        "p50_ms": round(statistics.median(times), 2),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 2),
        "worst_ms": round(max(times), 2),
        "empty": empty,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Completion beside other work of the server.")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    parts: tuple[Busy, ...] = (nothing, next_edit, quick_fix, indexing, repair)
    for busy in parts:
        name = busy.__name__
        if given.only and name != "nothing" and name not in given.only.split(","):
            continue
        with tempfile.TemporaryDirectory(prefix="clover-bench-") as folder:
            work: Awaitable[dict[str, float]] = measure(busy, given.requests, Path(folder))
            found[name] = asyncio.run(_run(work))
        found[name]["ratio"] = round(found[name]["p95_ms"] / found["nothing"]["p95_ms"], 2)
        if not given.json:
            print(f"{name:10}", *(f"{k} {v}" for k, v in found[name].items()), flush=True)
    if given.json:
        print(json.dumps(found, indent=1))
    return 0


async def _run(work: Awaitable[dict[str, float]]) -> dict[str, float]:
    return await work


if __name__ == "__main__":
    sys.exit(main())
