"""One client's session: streams in, messages out, and all the ways in which it can end.

Exit codes: 0 after `shutdown` and `exit`, and when the client goes away (closed pipe, dead
process), which is no error of ours; 1 for `exit` without `shutdown`, as the protocol says.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
import sys
from collections.abc import Callable
from typing import BinaryIO

from clover_lsp.connection.processes import is_alive
from clover_lsp.connection.protocol import PARSE_ERROR
from clover_lsp.connection.scheduler import SWITCH_S
from clover_lsp.connection.transport import (
    END,
    FrameError,
    Writer,
    accept_one,
    start_reader,
    take_over_stdio,
)
from clover_lsp.server import CloverServer

log = logging.getLogger(__name__)

FEATURES = (
    "documents_sync",
    "notebooks",
    "inline_completion",
    "completion",
    "acceptance",
    "status",
    "context",
    "watched",
    "commands",
    "fix_action",
    "edit_selection",
    "models",
    "instruct",
    "next_edit",
)
CLIENT_CHECK_S = 3.0
"""How often to look whether the client's process is still there."""

LAST_WORDS_S = 0.3
"""Longest wait for answers to requests that were open at the end."""


def make_server(version: str = "", fixed_settings: object = None) -> CloverServer:
    """A server with all features; one that fails to import or to register is logged and missing."""
    server = CloverServer(version, fixed_settings=fixed_settings)
    for name in FEATURES:
        try:
            importlib.import_module(f"clover_lsp.features.{name}").register(server)
        except Exception:
            log.exception("feature %s does not work", name)
    return server


class Session:
    """Runs a server over two byte streams until the client leaves."""

    def __init__(self, server: CloverServer, reader: BinaryIO, writer: BinaryIO) -> None:
        self._server = server
        self._reader = reader
        self._out = writer
        self._inbox: list[object] = []
        self._wake = asyncio.Event()
        self._is_over = False

    async def run(self) -> int:
        """Returns the exit code."""
        loop = asyncio.get_running_loop()
        protocol = self._server.protocol

        def post(call: Callable[..., None], *arguments: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the session is over
                loop.call_soon_threadsafe(call, *arguments)

        writer = Writer(self._out, lambda: post(self._end))
        protocol.set_writer(writer)
        start_reader(self._reader, lambda message: post(self._take, message))
        watch = loop.create_task(self._watch_client())
        try:
            while not self._is_over and protocol.exit_code is None:
                await self._wake.wait()
                self._wake.clear()
                backlog, self._inbox = self._inbox, []
                protocol.receive(backlog)
        finally:
            watch.cancel()
            self._server.close()
            await protocol.settle(LAST_WORDS_S)
            writer.close()
        return protocol.exit_code or 0

    def _take(self, message: object) -> None:
        if message is END:
            self._is_over = True
        elif isinstance(message, FrameError):
            self._server.protocol.refuse(None, PARSE_ERROR, f"not JSON: {message}")
        else:
            self._inbox.append(message)
        self._wake.set()

    def _end(self) -> None:
        self._is_over = True
        self._wake.set()

    async def _watch_client(self) -> None:
        """Ends the session when the client's process dies but its pipe stays open."""
        while True:
            await asyncio.sleep(CLIENT_CHECK_S)
            client = self._server.client_process
            if client is not None and not is_alive(client):
                log.info("the client's process is gone")
                self._end()
                return


def serve_stdio(server: CloverServer) -> int:
    """Serves the client at the other end of standard input and output."""
    sys.setswitchinterval(SWITCH_S)
    reader, writer = take_over_stdio()
    return asyncio.run(Session(server, reader, writer).run())


def serve_tcp(server: CloverServer, host: str, port: int) -> int:
    """Waits for one client at the address, serves it, and returns when it is gone."""
    sys.setswitchinterval(SWITCH_S)
    connection = accept_one(host, port, _announce)
    reader, writer = connection.makefile("rb"), connection.makefile("wb")
    code = asyncio.run(Session(server, reader, writer).run())
    with contextlib.suppress(OSError):
        # Closing the reader would wait for its thread; this wakes the thread up.
        connection.shutdown(socket.SHUT_RDWR)
    return code


def _announce(host: str, port: int) -> None:
    print(f"clover-code lsp: listening on {host}:{port}", file=sys.stderr, flush=True)
