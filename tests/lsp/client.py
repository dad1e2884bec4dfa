"""A real client of the real server, over pipes or TCP, with its own copy of every document.

Methods are synchronous; pygls's client runs on the thread of its own event loop. Loaded by
`conftest.py` and by the scripts beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from clover_engine.testing.waiting import WAIT_S, until

WORKER = Path(__file__).parent / "scripted_worker.py"
"""Longest wait for anything: a hang fails, a slow machine does not."""
AUTOMATIC = types.InlineCompletionTriggerKind.Automatic
INVOKED = types.InlineCompletionTriggerKind.Invoked


def capabilities(
    encodings: Sequence[str] = ("utf-16",), *, inline: bool = True, configuration: bool = False
) -> types.ClientCapabilities:
    """A client that can do what is needed here and nothing else."""
    document = types.TextDocumentClientCapabilities(
        completion=types.CompletionClientCapabilities(),
        inline_completion=types.InlineCompletionClientCapabilities() if inline else None,
    )
    return types.ClientCapabilities(
        text_document=document,
        general=types.GeneralClientCapabilities(position_encodings=list(encodings)),
        workspace=types.WorkspaceClientCapabilities(configuration=configuration),
        notebook_document=types.NotebookDocumentClientCapabilities(
            types.NotebookDocumentSyncClientCapabilities()
        ),
    )


class Script:
    """What the model behind the server does, changeable at any time; see `scripted_worker.py`."""

    def __init__(self, folder: Path) -> None:
        self.control = folder / "script.json"
        self.log = folder / "engine.log"
        self.log.touch()
        self.set()

    @property
    def command(self) -> str:
        return shlex.join([sys.executable, "-P", str(WORKER), str(self.control), str(self.log)])

    def set(self, **options: Any) -> None:
        """`targets`: whole documents that the model knows; `step_s`, `confidence`, `default`."""
        new = self.control.with_suffix(".new")
        new.write_text(json.dumps(options))
        new.replace(self.control)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def prompts(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["event"] == "begin"]

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until so many such events were logged."""
        return until(lambda: at_least([e for e in self.events() if e["event"] == event], count))

    def clear(self) -> None:
        self.log.write_text("")


def at_least(found: list[Any], count: int) -> list[Any] | None:
    return found if len(found) >= count else None


class Editor:
    """One server process and what the client knows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.client = LanguageClient("tests", "1")
        self.statuses: list[dict[str, Any]] = []
        self.messages: list[types.ShowMessageParams] = []
        self.registrations: list[types.RegistrationParams] = []
        self.configuration: Any = None
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.encoding = "utf-16"
        self.server: types.InitializeResult | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr = ""
        self._register()

    def _register(self) -> None:
        @self.client.feature("didChangeStatus")
        def status(params: Any) -> None:
            self.statuses.append(plain(params))

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params)

        @self.client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            self.registrations.append(params)

        @self.client.feature(types.WORKSPACE_CONFIGURATION)
        def configure(params: types.ConfigurationParams) -> list[Any]:
            return [self.configuration for _ in params.items]

    # Life

    def run(self, work: Any) -> Any:
        """Runs a coroutine on the client's loop and waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def start(
        self,
        transport: str,
        env: dict[str, str],
        *,
        client: types.ClientCapabilities | None = None,
        settings: Any = None,
        roots: Sequence[Path] = (),
        process_id: int | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Starts a server and says hello."""
        self.connect(transport, env, arguments)
        folders = [types.WorkspaceFolder(root.as_uri(), root.name) for root in roots]
        self.hello(client, settings, folders, process_id)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until the context room is open and the index is built."""
        until(lambda: self.status()["index"]["state"] != "indexing")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self.request("clover/status", None))
        return found

    def connect(self, transport: str, env: dict[str, str], arguments: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "clover_code", "lsp", *arguments]
        # A log on standard error that nobody reads would stop the server in the end.
        self.log = Path(env["CLOVER_STATE_DIR"]).parent / "server.log"
        command += ["--log", str(self.log)]
        if transport == "stdio":
            self.run(self.client.start_io(*command, env=env))
            return
        self.process = subprocess.Popen(
            [*command, "--tcp", "127.0.0.1:0"], env=env, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline().decode()
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)", said)
        assert found is not None, said
        self.run(self.client.start_tcp("127.0.0.1", int(found[1])))

    def hello(
        self,
        client: types.ClientCapabilities | None = None,
        settings: Any = None,
        folders: Sequence[types.WorkspaceFolder] = (),
        process_id: int | None = None,
    ) -> None:
        if isinstance(settings, dict) and isinstance(settings.get("completion"), dict):
            # A busy machine may take long to start the model; that is no test's business.
            patient = {"deadlineMs": 60_000, **settings["completion"]}
            settings = {**settings, "completion": patient}
        params = types.InitializeParams(
            capabilities=client or capabilities(),
            initialization_options=settings,
            workspace_folders=list(folders) or None,
            process_id=process_id,
        )
        self.server = self.run(self.client.initialize_async(params))
        self.encoding = str(self.server.capabilities.position_encoding or "utf-16")
        self.run(later(self.client.initialized, types.InitializedParams()))

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else self.client._server.pid  # type: ignore[union-attr]

    def stop(self) -> int:
        """Says goodbye; the server's exit code."""
        self.run(self.client.shutdown_async(None))
        self.notify(types.EXIT, None)
        return self.wait()

    def wait(self) -> int:
        """Waits for the server's end; its exit code."""
        if self.process is not None:
            code = self.process.wait(WAIT_S)
            assert self.process.stderr is not None
            self.stderr = self.process.stderr.read().decode()
            self.process.stderr.close()
            self.run(closed(self.client.protocol.writer))
        else:
            server = self.client._server
            assert server is not None and server.stderr is not None
            self.stderr = self.run(server.stderr.read()).decode()
            code = self.run(server.wait())
            self.run(later(server._transport.close))  # type: ignore[attr-defined]
        self.run(later(self.client._stop_event.set))
        return int(code)

    def kill(self) -> None:
        """For clean-up after a failed test."""
        process = self.process if self.process is not None else self.client._server
        if process is not None and process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                return
            self.wait()

    # Documents

    def open(self, uri: str, text: str, language: str = "python") -> str:
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri, language, 1, text)
        self.notify(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item))
        return uri

    def close(self, uri: str) -> None:
        identifier = types.TextDocumentIdentifier(uri)
        self.notify(types.TEXT_DOCUMENT_DID_CLOSE, types.DidCloseTextDocumentParams(identifier))

    def replace(self, uri: str, start: int, end: int, new: str) -> None:
        """Replaces characters [start, end) in the client's copy and tells the server."""
        span = types.Range(self.position(uri, start), self.position(uri, end))
        text = self.texts[uri]
        self.texts[uri] = text[:start] + new + text[end:]
        self.change(uri, [types.TextDocumentContentChangePartial(span, new)])

    def change(self, uri: str, changes: Sequence[Any]) -> None:
        """Sends changes as they are; the client's copy is the caller's business."""
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        params = types.DidChangeTextDocumentParams(document, list(changes))
        self.notify(types.TEXT_DOCUMENT_DID_CHANGE, params)

    def type(self, uri: str, new: str, at: int | None = None) -> int:
        """Inserts at a character offset (default: the end); the offset after it."""
        at = len(self.texts[uri]) if at is None else at
        self.replace(uri, at, at, new)
        return at + len(new)

    def position(self, uri: str, offset: int) -> types.Position:
        """The position of a character offset in the negotiated encoding; own arithmetic."""
        before = re.split(r"\r\n|\n|\r", self.texts[uri][:offset])
        if self.texts[uri][offset - 1 : offset + 1] == "\r\n" and offset:
            before = before[:-1]
        codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[self.encoding]
        size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[self.encoding]
        column = len(before[-1].encode(codec, "surrogatepass")) // size
        return types.Position(len(before) - 1, column)

    def server_text(self, uri: str) -> str | None:
        found = self.request("clover/debug/text", {"uri": uri})
        return None if found is None else plain(found)["text"]

    # Requests

    def notify(self, method: str, params: Any) -> None:
        self.run(later(self.client.protocol.notify, method, params))

    def send(self, method: str, params: Any, msg_id: int | str | None = None) -> Future[Any]:
        """Sends a request; its result comes later."""
        return self.run(later(self.client.protocol.send_request, method, params, None, msg_id))

    def request(self, method: str, params: Any) -> Any:
        return self.send(method, params).result(WAIT_S)

    def ask(
        self, uri: str, at: int | None = None, kind: Any = AUTOMATIC, popup: Any = None
    ) -> Future[Any]:
        """Asks for inline completions at a character offset (default: the end)."""
        at = len(self.texts[uri]) if at is None else at
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(kind, popup),
            text_document=types.TextDocumentIdentifier(uri),
            position=self.position(uri, at),
        )
        return self.send(types.TEXT_DOCUMENT_INLINE_COMPLETION, params)

    def suggest(self, uri: str, at: int | None = None, kind: Any = AUTOMATIC) -> Any:
        """The items; [] for none."""
        found = self.ask(uri, at, kind).result(WAIT_S)
        return [] if found is None else found.items

    def command(self, name: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(name, arguments=list(arguments))
        return self.request(types.WORKSPACE_EXECUTE_COMMAND, params)

    def accept(self, uri: str, item: Any) -> None:
        """Does what a client does on acceptance: replace the range, then run the command."""
        start, end = (self.offset(uri, p) for p in (item.range.start, item.range.end))
        self.replace(uri, start, end, item.insert_text)
        self.command(item.command.command, *item.command.arguments)

    def offset(self, uri: str, position: types.Position) -> int:
        """The character offset of a position; own arithmetic by search."""
        found = [i for i in range(len(self.texts[uri]) + 1) if self.position(uri, i) == position]
        assert found, position
        return found[0]


async def later(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls on the client's loop."""
    return call(*arguments)


async def closed(writer: Any) -> None:
    """Closes a connection of the client's, and waits until nothing of it is left."""
    writer.close()
    with suppress(OSError):  # the server was the first to go
        await writer.wait_closed()


def plain(value: Any) -> Any:
    """pygls's named tuples as JSON values."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


class Loop:
    """An event loop on its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        async def finish() -> None:
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(finish(), self.loop).result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def environment(folder: Path, worker: str | None) -> dict[str, str]:
    """The server's environment: its state and caches in `folder`, `worker` as the model."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CLOVER_")}
    env |= {"CLOVER_STATE_DIR": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    env["HOME"] = str(folder)
    if worker is not None:
        env["CLOVER_WORKER"] = worker
    return env
