"""The server's side of a helper process (`worker.py`): starting it, asking it, ending it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from clover_engine.api import CancelToken, Engine
from clover_lsp.isolated.worker import Message, portable, receive, send

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_LOOK_S = 0.02
"""How often a waiting thread looks at its cancel token."""
STOP_S = 5.0
"""A run that goes on for so long after it was cancelled costs the helper its life."""
_GRACE_S = 1.0
IDLE_S = 120.0
"""A helper that had nothing to do for so long is ended; the next run starts it again."""


class HelperEnded(Exception):
    """The helper process ended while it was computing."""


class Helper:
    """One process, started by the first run and again after it ended. Any thread.

    `niceness` keeps the process behind the server itself where processors are few. `cleans_up`:
    what runs there leaves something behind unless it ends by itself.
    """

    def __init__(self, niceness: int = 5, cleans_up: bool = False) -> None:
        self._cleans_up = cleans_up
        self._used = 0.0
        self._timer: threading.Timer | None = None
        self._command = [sys.executable, "-P", "-m", "clover_lsp.isolated.worker", str(niceness)]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Message]] = {}
        self._tells: dict[int, Callable[..., object]] = {}
        self._runs_in: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = False

    def run(
        self,
        function: Callable[..., T],
        *arguments: Any,
        cancel: CancelToken | None = None,
        engine: Engine | None = None,
        answers: Mapping[str, Callable[..., Any]] | None = None,
    ) -> T:
        """`function(*arguments, outside)` in the helper; blocks.

        The function is one of a module, and what goes in and out can be pickled. `answers` are
        what it may ask for and tell; those that are told run on another thread. Raises what the
        function raises, and `HelperEnded`.
        """
        cancel = cancel or CancelToken()
        given = {**(answers or {}), **_of_engine(engine, cancel)}
        number, inbox = next(self._numbers), queue.SimpleQueue[Message]()
        with self._lock:
            self._waiting[number] = inbox
            self._tells[number] = lambda name, *rest: given[name](*rest)
        try:
            process = self._send(("run", number, function, arguments, engine is not None))
            result: T = self._wait(number, inbox, cancel, given, process)
            return result
        finally:
            with self._lock:
                del self._waiting[number], self._tells[number]
                self._runs_in.pop(number, None)
            self._rest_later()

    def close(self) -> None:
        """Ends the process; what runs there is cancelled."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            if self._timer is not None:
                self._timer.cancel()
        if process is not None:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if not self._cleans_up:
            process.kill()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _rest_later(self) -> None:
        """Looks after a while whether the process is still needed."""
        with self._lock:
            self._used = time.monotonic()
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(IDLE_S, self._rest)
                self._timer.daemon = True
                self._timer.start()

    def _rest(self) -> None:
        with self._lock:
            self._timer = None
            idle = not self._waiting and time.monotonic() - self._used >= IDLE_S
            process = self._process
            if idle:
                self._process = None
        if not idle:
            self._rest_later()
        elif process is not None:
            self._end(process)

    def _wait(
        self,
        number: int,
        inbox: queue.SimpleQueue[Message],
        cancel: CancelToken,
        given: Mapping[str, Callable[..., Any]],
        process: subprocess.Popen[bytes],
    ) -> Any:
        cancelled_at: float | None = None
        while True:
            if cancelled_at is None and cancel.cancelled:
                cancelled_at = time.monotonic()
                self._send(("cancel", number))
            elif cancelled_at is not None and time.monotonic() - cancelled_at > STOP_S:
                process.kill()
            try:
                message = inbox.get(timeout=_LOOK_S if cancelled_at is None else _GRACE_S)
            except queue.Empty:
                continue
            if message[0] == "ask":
                _, _, question, name, arguments = message
                self._send(("reply", question, *_answer(given, name, arguments)))
                continue
            _, _, error, value = message
            if error is not None:
                raise error
            return value

    def _send(self, message: Message) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise HelperEnded("the server is closing")
            process = self._process or self._start()
            assert process.stdin is not None
            if message[0] == "run":
                self._runs_in[message[1]] = process
            with contextlib.suppress(OSError):  # it died: the reading thread tells who waits
                send(process.stdin, message)
            return process

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise HelperEnded(f"a helper process cannot be started: {error}") from error
        self._process = process
        threading.Thread(target=self._read, args=(process,), name="helper", daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stdin is not None
        with process.stdout:
            while (message := receive(process.stdout)) is not None:
                self._take(message)
        process.wait()
        with self._lock:
            if self._process is process:
                self._process = None
            lost = [n for n, where in self._runs_in.items() if where is process]
            inboxes = [(n, self._waiting[n]) for n in lost if n in self._waiting]
            with contextlib.suppress(OSError):
                process.stdin.close()
        for number, inbox in inboxes:
            inbox.put(("done", number, HelperEnded("the helper process ended; ask again"), None))

    def _take(self, message: Message) -> None:
        with self._lock:
            inbox, tell = self._waiting.get(message[1]), self._tells.get(message[1])
        if message[0] != "tell" and inbox is not None:
            inbox.put(message)
        elif message[0] == "tell" and tell is not None:
            try:
                tell(message[2], *message[3])
            except Exception:
                LOG.exception("what a helper told was not taken in")


def _of_engine(engine: Engine | None, cancel: CancelToken) -> dict[str, Callable[..., Any]]:
    if engine is None:
        return {}
    return {
        "engine.infill": lambda request: engine.infill(request, cancel),
        "engine.score": lambda request: engine.score(request, cancel),
        "engine.cloze": lambda request: engine.cloze(request, cancel),
        "engine.health": engine.health,
    }


def _answer(
    given: Mapping[str, Callable[..., Any]], name: str, arguments: tuple[Any, ...]
) -> tuple[Exception | None, Any]:
    try:
        return None, given[name](*arguments)
    except Exception as error:
        return portable(error), None
