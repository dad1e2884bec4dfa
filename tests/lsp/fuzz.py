"""Random edits and broken messages against the real server; its text must stay the client's.

    python tests/lsp/fuzz.py --messages 20000 [--seed 0] [--encoding utf-8]

pytest runs a shorter one (`test_fuzz.py`, which also shrinks by hypothesis). Messages are written
as raw bytes, so that anything at all can be sent. Every request must be answered exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

ENCODINGS = ("utf-8", "utf-16", "utf-32")
PIECES = (
    *("a", "x = ", "é", "漢字", "😀", "𝒳", "\t", " ", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c"),
    *("\x85", "\u2028", "\u2029", "def f():\n    ", "\ufeff", "\u0301", "(", ")", "'", '"', "\\"),
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_SIZES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
WAIT_S = 60.0


def units(text: str, encoding: str) -> int:
    codec, size = _SIZES[encoding]
    return len(text.encode(codec)) // size


def position(text: str, offset: int, encoding: str) -> dict[str, int]:
    """The position of an offset, worked out apart from the server's code."""
    if 0 < offset < len(text) and text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1  # there is no position between the two
    lines = _LINE_END.split(text[:offset])
    return {"line": len(lines) - 1, "character": units(lines[-1], encoding)}


class RawServer:
    """A server process and raw frames."""

    def __init__(self, encoding: str, folder: Path, settings: Any = None) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("CLOVER_")}
        env |= {"CLOVER_STATE_DIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        fake = [
            sys.executable,
            "-P",
            "-m",
            "clover_engine.worker",
            "--fake",
            '{"confidence": 0.99}',
        ]
        env["CLOVER_WORKER"] = " ".join(f"'{part}'" for part in fake)
        self.log = folder / "server.log"
        command = [sys.executable, "-m", "clover_code", "lsp", "--log", str(self.log)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self.answers: Counter[str] = Counter()
        self.results: dict[str, SimpleQueue[Any]] = {}
        self.asked: dict[str, str] = {}
        self.sent = 0
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.encoding = encoding
        hello = {
            "processId": None,
            "rootUri": None,
            "initializationOptions": settings or {"completion": {"debounceMs": 0}},
            "capabilities": {
                "general": {"positionEncodings": [encoding]},
                "textDocument": {"inlineCompletion": {}},
            },
        }
        found = self.ask("initialize", hello)
        assert found["result"]["capabilities"]["positionEncoding"] == encoding
        self.notify("initialized", {})

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
                while stream.readline().strip():
                    pass
                message = json.loads(stream.read(length))
                number = message.get("id")
                if "method" not in message and isinstance(number, str):
                    self.answers[number] += 1
                    if number in self.results:
                        self.results[number].put(message)

    def raw(self, body: bytes) -> None:
        stream = self.process.stdin
        assert stream is not None
        stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stream.flush()
        self.sent += 1

    def notify(self, method: str, params: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def send(self, method: str, params: Any) -> str:
        self._number += 1
        number = f"r{self._number}"
        self.asked[number] = f"{method} {params}"
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.raw(json.dumps(message).encode())
        return number

    def ask(self, method: str, params: Any) -> Any:
        """The whole answer."""
        self.results[f"r{self._number + 1}"] = queue = SimpleQueue()
        number = self.send(method, params)
        try:
            return queue.get(timeout=WAIT_S)
        except Empty:
            raise AssertionError(f"no answer to {method}; code {self.process.poll()}") from None
        finally:
            del self.results[number]

    def text(self, uri: str) -> str | None:
        found = self.ask("clover/debug/text", {"uri": uri})["result"]
        return None if found is None else str(found["text"])

    def close(self) -> None:
        """Says goodbye; every request must have been answered once."""
        self.ask("shutdown", None)
        self.notify("exit", None)
        code = self.process.wait(WAIT_S)
        assert code == 0, code
        self._reader.join(WAIT_S)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        unanswered = [what for n, what in self.asked.items() if self.answers[n] == 0]
        twice = [what for n, what in self.asked.items() if self.answers[n] > 1]
        assert not unanswered and not twice, (unanswered[:5], twice[:5])
        assert "Traceback" not in self.log.read_text(), self.log.read_text()[-4000:]


class Mirror:
    """The client's copy of one document, and random things to do to it."""

    def __init__(self, server: RawServer, uri: str, choose: random.Random) -> None:
        self.server, self.uri, self.choose = server, uri, choose
        self.text, self.version = "", 0
        self.open()

    def open(self) -> None:
        self.version += 1
        self.text = self.some_text(12)
        item = {"uri": self.uri, "languageId": "python", "version": self.version}
        self.server.notify("textDocument/didOpen", {"textDocument": {**item, "text": self.text}})

    def some_text(self, most: int) -> str:
        count = self.choose.randint(0, most)
        return "".join(self.choose.choice(PIECES) for _ in range(count))

    def offset(self) -> int:
        """An offset that a position can name: not between CR and LF."""
        offset = self.choose.randint(0, len(self.text))
        return offset - 1 if self.text[offset - 1 : offset + 1] == "\r\n" and offset else offset

    def change(self) -> None:
        """Up to three edits in one message; sometimes the whole text; sometimes past the end."""
        changes = []
        for _ in range(self.choose.randint(1, 3)):
            changes.append(self.one_change())
        if len(self.text) > 3000:
            self.text = self.text[:10].rstrip("\r")
            changes.append({"text": self.text})
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.server.notify(
            "textDocument/didChange", {"textDocument": document, "contentChanges": changes}
        )

    def one_change(self) -> dict[str, Any]:
        new = self.some_text(4)
        if self.choose.random() < 0.03:
            self.text = new
            return {"text": new}
        start, end = sorted((self.offset(), self.offset()))
        if self.choose.random() < 0.6:
            end = start if self.choose.random() < 0.5 else self.near(start)
        span = {
            "start": position(self.text, start, self.server.encoding),
            "end": position(self.text, end, self.server.encoding),
        }
        if end == len(self.text) and self.choose.random() < 0.3:
            span["end"] = {"line": self.choose.choice((10**6, 2**31 - 1, 1e300)), "character": 7}
        self.text = self.text[:start] + new + self.text[end:]
        return {"range": span, "text": new}

    def near(self, start: int) -> int:
        end = min(len(self.text), start + 3)
        return end - 1 if self.text[end - 1 : end + 1] == "\r\n" and end > start else end

    def request(self) -> None:
        at = position(self.text, self.offset(), self.server.encoding)
        if self.choose.random() < 0.1:
            at = {"line": self.choose.randint(0, 99), "character": self.choose.randint(0, 999)}
        params = {
            "textDocument": {"uri": self.uri},
            "position": at,
            "context": {"triggerKind": self.choose.choice((1, 2))},
        }
        number = self.server.send("textDocument/inlineCompletion", params)
        if self.choose.random() < 0.3:
            self.server.notify("$/cancelRequest", {"id": number})

    def reopen(self) -> None:
        self.server.notify("textDocument/didClose", {"textDocument": {"uri": self.uri}})
        self.open()

    def check(self) -> None:
        found = self.server.text(self.uri)
        assert found == self.text, f"server has {found!r}, client has {self.text!r}"


OPEN_0 = b'"textDocument": {"uri": "untitled:fuzz-0", "version": 1}'
CHANGE_0 = b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {' + OPEN_0
"""The beginning of a change of a document that is open."""
JUNK = (
    *(b"", b"{", b"[]", b"[1, 2]", b"null", b'"text"', b"\xff\xfe", b"{}", b'{"jsonrpc": "1.0"}'),
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "method": 7}',
    b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "shutdown"}',
    b'{"jsonrpc": "2.0", "id": true, "method": "shutdown"}',
    b'{"jsonrpc": "2.0", "id": "unknown", "result": null}',
    b'{"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": "x"}}',
    b'{"jsonrpc": "2.0", "id": 9, "error": 7}',
    b"[" * 5000,
    CHANGE_0 + b"}}",
    CHANGE_0 + b', "contentChanges": 7}}',
    CHANGE_0 + b', "contentChanges": [null]}}',
    CHANGE_0 + b', "contentChanges": [{"text": "x"}, {"range": null, "text": 7}]}}',
)
BAD_PARAMS: tuple[Any, ...] = (
    *(None, [], 7, "text", {}, {"textDocument": None}, {"textDocument": {"uri": 7}}),
    {"textDocument": {"uri": "untitled:nobody"}, "position": {"line": 0, "character": 0}},
    {"textDocument": {"uri": "untitled:other"}, "position": {"line": -4, "character": "x"}},
    {"textDocument": {"uri": "untitled:other"}, "position": {"line": 0.5, "character": None}},
    {"uri": "untitled:fuzz-0", "diagnostics": [None, {"range": 7}, {}]},
    {"item": {"command": {"arguments": [7]}}, "acceptedLength": "x"},
    {"settings": {"clover": {"completion": 7, "engine": {}, "nonsense": []}}},
    {"command": "clover.accepted", "arguments": [[], {}]},
    {"command": "no.such.command", "arguments": "x"},
    {"notebookDocument": {"uri": "x:y", "version": 1}, "change": {"cells": {"structure": 7}}},
)
METHODS = (
    *("textDocument/inlineCompletion", "textDocument/completion", "textDocument/codeAction"),
    *("codeAction/resolve", "workspace/executeCommand", "textDocument/didFocus", "nonsense"),
    *("textDocument/didShowCompletion", "textDocument/didPartiallyAcceptCompletion"),
    *("textDocument/didChange", "textDocument/didClose", "workspace/didChangeConfiguration"),
    *("clover/didChangeDiagnostics", "notebookDocument/didChange", "$/cancelRequest", "initialize"),
    *("textDocument/copilotInlineEdit", "workspace/didChangeWatchedFiles", "clover/status"),
    "workspace/didChangeWorkspaceFolders",
)


def broken(server: RawServer, choose: random.Random) -> None:
    """One message that no client should send; the documents that are open must not change."""
    kind = choose.random()
    if kind < 0.3:
        server.raw(choose.choice(JUNK))
        return
    method, params = choose.choice(METHODS), choose.choice(BAD_PARAMS)
    if kind < 0.65:
        server.send(method, params)
    else:
        server.notify(method, params)


def act(server: RawServer, documents: list[Mirror], choose: random.Random) -> None:
    """One random step."""
    document, what = choose.choice(documents), choose.random()
    if what < 0.62:
        document.change()
    elif what < 0.80:
        document.request()
    elif what < 0.97:
        broken(server, choose)
    elif what < 0.98:
        document.reopen()
    else:
        document.check()


def run(messages: int, seed: int, encoding: str, folder: Path) -> RawServer:
    """Sends at least so many messages; raises `AssertionError` where anything differs."""
    choose = random.Random(seed)
    server = RawServer(encoding, folder)
    try:
        documents = [Mirror(server, f"untitled:fuzz-{n}", choose) for n in range(3)]
        while server.sent < messages:
            act(server, documents, choose)
        for document in documents:
            document.check()
        server.close()
    finally:
        server.process.kill()
        server.process.wait()
    return server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--encoding", choices=ENCODINGS, help="default: a third with each")
    args = parser.parse_args()
    encodings = [args.encoding] if args.encoding else ENCODINGS
    for encoding in encodings:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            share = -(-args.messages // len(encodings))
            server = run(share, args.seed, encoding, Path(folder))
        print(
            f"{encoding}: {server.sent} messages, {len(server.asked)} requests answered once each, "
            f"texts equal, {time.monotonic() - begun:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
