"""The helper process: ``python -m clover_lsp.isolated.worker NICENESS``.

Runs the functions that the server names, one after the other, each as
``function(*arguments, outside)``. Messages are pickled tuples, over pipes to its own parent only:

- in: ``("run", id, function, arguments, has_engine)``, ``("cancel", id)``,
  ``("reply", question, error or None, value)``;
- out: ``("ask", id, question, name, arguments)``, ``("tell", id, name, arguments)``,
  ``("done", id, error or None, value)``.

It ends with its input; what runs then is cancelled and has a moment to clean up.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from clover_engine.api import CancelToken
from clover_lsp.isolated.outside import Outside

Message = tuple[Any, ...]
CLEAN_UP_S = 10.0
"""How long what runs may go on once the server is gone."""


class Worker:
    """One thread reads, the main thread computes; any thread may ask."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._runs: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._cancels: dict[int, CancelToken] = {}
        self._answers: dict[int, queue.SimpleQueue[tuple[Exception | None, Any]]] = {}

    def run(self) -> None:
        """Serves until the input ends."""
        threading.Thread(target=self._read, daemon=True).start()
        while (message := self._runs.get()) is not None:
            _, id_, function, arguments, has_engine = message
            cancel = self._cancels[id_]
            outside = Outside(
                cancel, partial(self._ask, id_), partial(self._send, "tell", id_), has_engine
            )
            self._done(id_, *_outcome(function, (*arguments, outside)))
            del self._cancels[id_]

    def _done(self, id_: int, error: Exception | None, value: Any) -> None:
        try:
            self._send("done", id_, error, value)
        except Exception as unfit:  # the value cannot be pickled
            self._send("done", id_, portable(unfit), None)

    def _read(self) -> None:
        while (message := receive(self._reader)) is not None:
            if message[0] == "run":
                self._cancels[message[1]] = CancelToken()
                self._runs.put(message)
            elif message[0] == "cancel":
                if (cancel := self._cancels.get(message[1])) is not None:
                    cancel.cancel()
            elif (waiting := self._answers.pop(message[1], None)) is not None:
                waiting.put(message[2:])
        self._end()

    def _end(self) -> None:
        for cancel in list(self._cancels.values()):
            cancel.cancel()
        for waiting in list(self._answers.values()):
            waiting.put((EOFError("the server is gone"), None))
        self._runs.put(None)
        threading.Timer(CLEAN_UP_S, os._exit, (1,)).start()

    def _ask(self, id_: int, name: str, *arguments: Any) -> Any:
        question = next(self._numbers)
        waiting: queue.SimpleQueue[tuple[Exception | None, Any]] = queue.SimpleQueue()
        self._answers[question] = waiting
        self._send("ask", id_, question, name, arguments)
        error, value = waiting.get()
        if error is not None:
            raise error
        return value

    def _send(self, kind: str, id_: int, *rest: Any) -> None:
        message = (kind, id_, rest[0], rest[1:]) if kind == "tell" else (kind, id_, *rest)
        with self._lock, contextlib.suppress(OSError):
            send(self._writer, message)


def _outcome(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Exception | None, Any]:
    try:
        return None, function(*arguments)
    except Exception as error:
        return portable(error), None


def portable(error: Exception) -> Exception:
    """The error, or its words where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def send(stream: IO[bytes], message: Message) -> None:
    """Writes one message. The caller holds the stream's lock; raises `OSError`."""
    stream.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    stream.flush()


def receive(stream: IO[bytes]) -> Message | None:
    """The next message; None at the end of the stream."""
    try:
        message: Message = pickle.load(stream)
    except (EOFError, OSError, pickle.UnpicklingError, ValueError):
        return None
    return message


def main(arguments: list[str]) -> int:
    with contextlib.suppress(AttributeError, OSError):
        os.nice(int(arguments[0]))
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # a stray print must not corrupt the protocol
    Worker(reader, writer).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
