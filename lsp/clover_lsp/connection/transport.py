"""Messages over byte streams, the same for pipes and sockets: one reader and one writer thread.

pygls reads with the thread pool that also runs handlers, takes one spelling of the header only,
and writes on the event loop. Here a thread does nothing but read, so that a cancellation is seen
whatever the handlers do, and a client that does not read cannot stop the loop.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256_000_000
_MAX_HEADER_BYTES = 8192


END = object()
"""Stands for the end of the stream."""


class FrameError(Exception):
    """A message that is no JSON; the stream itself can still be read."""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message's bytes; None at the end of the stream.

    Lines that are no headers are skipped, so that noise costs the message it is in at most.
    """
    length: int | None = None
    while True:
        line = stream.readline(_MAX_HEADER_BYTES)
        if not line:
            return None
        if not line.strip():
            if length is None:
                continue
            body = stream.read(length)
            return body if len(body) == length else None
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            if length > MAX_MESSAGE_BYTES:
                log.error("message of %d bytes, more than allowed; closing", length)
                return None


def parse(body: bytes) -> object:
    """The JSON value; raises `FrameError`."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None


class Writer:
    """Takes bytes from any thread and writes them in order on its own thread."""

    def __init__(self, stream: BinaryIO, on_broken: Callable[[], None]) -> None:
        self._stream = stream
        self._on_broken = on_broken
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="clover-write", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._queue.put(data)

    def close(self) -> None:
        """Writes what is queued, waiting a moment for a slow reader."""
        self._queue.put(None)
        self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                if self._queue.empty():
                    self._stream.flush()
            self._stream.flush()
        except (OSError, ValueError) as error:
            log.info("the client reads no more: %s", error)
            self._on_broken()


def start_reader(stream: BinaryIO, take: Callable[[object], None]) -> None:
    """Calls `take` on its own thread with every message, a `FrameError`, and `END` last."""

    def run() -> None:
        try:
            while (body := read_frame(stream)) is not None:
                try:
                    take(parse(body))
                except FrameError as error:
                    take(error)
        except (OSError, ValueError) as error:
            log.info("cannot read from the client: %s", error)
        take(END)

    threading.Thread(target=run, name="clover-read", daemon=True).start()


def take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of standard input and output; prints of libraries go to standard error."""
    reader = os.fdopen(os.dup(0), "rb")
    writer = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return reader, writer


def accept_one(host: str, port: int, announce: Callable[[str, int], None]) -> socket.socket:
    """Waits for one client on the address; `announce` gets the real one (port 0: any free)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        announce(*listening.getsockname()[:2])
        connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
