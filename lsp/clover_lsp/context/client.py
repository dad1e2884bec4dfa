"""The server's side of the indexing process (`worker.py`): starting it, asking it, ending it."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

LOG = logging.getLogger(__name__)

Message = dict[str, Any]
Callback = Callable[[Message], None]

_GRACE_S = 2.0


class IndexProcess:
    """One process for one root, started by the first request and again after it ended.

    `send` may be called from any thread but costs a process start the first time, so call it from
    a background one. Callbacks run on the thread that reads the process's answers.
    """

    def __init__(self, store: Path, root: Path, exclude: Sequence[str]) -> None:
        self._command = [
            *(sys.executable, "-P", "-m", "clover_lsp.context.worker"),
            *(str(store), str(root), *exclude),
        ]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._open: dict[int, Callback] = {}
        self._next = 0
        self._closed = False

    def send(self, message: Message, callback: Callback) -> None:
        """Asks; `callback` gets every answer, the last of which has "ok"."""
        with self._lock:
            if self._closed:
                return
            process = self._process or self._start()
            self._next += 1
            self._open[self._next] = callback
            line = json.dumps({**message, "id": self._next}).encode() + b"\n"
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # it died: the reading thread tells the callbacks
                process.stdin.write(line)
                process.stdin.flush()

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited or being taken in."""
        return bool(self._open)

    def rest(self) -> None:
        """Ends the process if it has nothing to do."""
        with self._lock:
            if self._process is not None and not self._open:
                self._end(self._process)
                self._process = None

    def close(self) -> None:
        """Ends the process; requests in flight are dropped."""
        with self._lock:
            self._closed = True
            self._open.clear()
            if self._process is not None:
                self._end(self._process)
                self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._process = process
        assert process.stdout is not None
        threading.Thread(
            target=self._read, args=(process, process.stdout), name="index-answers", daemon=True
        ).start()
        return process

    def _read(self, process: subprocess.Popen[bytes], answers: IO[bytes]) -> None:
        with answers:
            for line in answers:
                try:
                    self._answer(json.loads(line))
                except Exception:  # a callback's mistake must not leave others without an answer
                    LOG.exception("an answer of the indexing process was not taken in")
        process.wait()
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            lost, self._open = list(self._open.values()), {}
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        for callback in lost:
            callback({"ok": False, "error": f"the indexing process ended ({process.returncode})"})

    def _answer(self, message: Message) -> None:
        callback = self._open.get(message["id"])
        try:
            if callback is not None:
                callback(message)
        finally:
            if "ok" in message:
                self._open.pop(message["id"], None)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if self._closed or self._open:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return
        process.kill()
        process.wait()
