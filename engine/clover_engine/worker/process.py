"""The client's end of one worker process: its pipes, reader threads and open requests."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clover_engine import errors
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable

log = logging.getLogger(__name__)

_STDERR_LINES = 40


class Reply:
    """One request's place in the table of open requests."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._frame: Mapping[str, Any] = {}
        self._error: EngineError | None = None
        self._pieces: collections.deque[Mapping[str, Any]] = collections.deque()

    def feed(self, piece: Mapping[str, Any]) -> None:
        """A part of an answer that is still coming."""
        self._pieces.append(piece)

    def pieces(self) -> Iterator[Mapping[str, Any]]:
        """The parts that have come since the last call."""
        while self._pieces:
            yield self._pieces.popleft()

    def put(self, frame: Mapping[str, Any]) -> None:
        self._frame = frame
        self._done.set()

    def fail(self, error: EngineError) -> None:
        self._error = error
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        return self._done.wait(timeout_s)

    def get(self) -> Mapping[str, Any]:
        if self._error is not None:
            raise copy_error(self._error)
        return self._frame


class WorkerProcess:
    """One worker process, its reader threads and its open requests."""

    def __init__(self, command: Sequence[str], threads: int, checkpoint: str = "") -> None:
        """`checkpoint`: what a command of the user's own finds in CLOVER_CHECKPOINT."""
        self.started = time.monotonic()
        self.ended = 0.0
        self.ready = threading.Event()
        """Set once the model answers, and also when the process failed."""
        self.info: dict[str, Any] = {}
        self.failure: EngineError | None = None
        self.served = 0
        """Requests answered with a result."""
        self._owner = os.getpid()
        self._open: dict[int, Reply] = {}
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES)
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads)}
        if checkpoint:
            environment["CLOVER_CHECKPOINT"] = checkpoint
        self._popen = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.pid = self._popen.pid
        self._threads = [
            threading.Thread(target=self._read_stderr, name="clover-stderr", daemon=True),
            threading.Thread(target=self._read_frames, name="clover-frames", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        return self.failure is None

    @property
    def mine(self) -> bool:
        """False in a forked copy of the client: its reader threads did not come along."""
        return self._owner == os.getpid()

    @property
    def is_ready(self) -> bool:
        return self.alive and bool(self.info)

    def submit(
        self, number: int, op: str, request: Mapping[str, Any], *, stream: bool = False
    ) -> Reply:
        """`stream`: the answer's pieces are wanted as they come."""
        answer = Reply()
        with self._lock:
            if self.failure is not None:
                answer.fail(self.failure)
                return answer
            self._open[number] = answer
        more = {"stream": True} if stream else {}
        self._send({"id": number, "op": op, "request": request, **more})
        return answer

    def cancel(self, number: int) -> None:
        self._send({"id": number, "op": "cancel"})

    def end(self, error: EngineError | None) -> None:
        """Ends the process and waits for it; `error` is what open requests raise."""
        if not self.mine:
            return
        self._fail(error or EngineUnavailable("the engine was closed"))
        self._popen.kill()
        self._popen.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)

    def _send(self, frame: Mapping[str, Any]) -> None:
        line = json.dumps(frame, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        stdin = self._popen.stdin
        assert stdin is not None
        # A broken pipe is no news: the reader thread sees the end and fails the requests.
        with contextlib.suppress(OSError, ValueError), self._write_lock:
            stdin.write(line)
            stdin.flush()

    def _read_frames(self) -> None:
        stdout = self._popen.stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                try:
                    self._take(json.loads(line))
                except (ValueError, AttributeError, TypeError):
                    log.warning("not a frame: %r", line[:200])
        code = self._popen.wait()
        self._threads[0].join(1.0)
        self._fail(self._epitaph(code))
        stdin = self._popen.stdin
        assert stdin is not None
        with contextlib.suppress(OSError), self._write_lock:
            stdin.close()

    def _take(self, frame: Mapping[str, Any]) -> None:
        if frame.get("op") == "ready":
            self.info = dict(frame)
            self.ready.set()
        elif frame.get("op") == "failed":
            self._fail(error_from(frame))
        elif "piece" in frame:
            with self._lock:
                answer = self._open.get(frame["id"])
            if answer is not None:
                answer.feed(frame["piece"])
        else:
            number = frame.get("id")
            with self._lock:
                answer = self._open.pop(number, None) if isinstance(number, int) else None
            if answer is not None:
                self.served += "result" in frame
                answer.put(frame)

    def _fail(self, error: EngineError) -> None:
        """Marks the end; the first reason stands."""
        with self._lock:
            if self.failure is None:
                self.failure = error
                self.ended = time.monotonic()
            waiting, self._open = list(self._open.values()), {}
        for answer in waiting:
            answer.fail(self.failure)
        self.ready.set()

    def _epitaph(self, code: int) -> EngineError:
        how = f"exit code {code}"
        if code < 0:
            try:
                how = f"signal {signal.Signals(-code).name}"
            except ValueError:
                how = f"signal {-code}"
            if -code == 9:
                how += ", perhaps out of memory"
        last = next((line for line in reversed(self._stderr) if line.strip()), "")
        said = f"; it said: {last.strip()[:200]}" if last else ""
        if not self.info:
            return EngineUnavailable(
                f"the model's process ended while starting ({how}){said}; run: clover-code doctor"
            )
        return EngineCrashed(f"the model's process died ({how}){said}; ask again")

    def _read_stderr(self) -> None:
        stderr = self._popen.stderr
        assert stderr is not None
        with stderr:
            for line in stderr:
                text = line.decode("utf-8", "replace").rstrip()
                self._stderr.append(text)
                log.debug("worker: %s", text)


def error_from(frame: Mapping[str, Any]) -> EngineError:
    """The exception that an error frame names; anything unknown becomes `EngineError`."""
    name, message = str(frame.get("error")), str(frame.get("message"))
    known = getattr(errors, name, None)
    if isinstance(known, type) and issubclass(known, EngineError):
        return known(message)
    return EngineError(f"the engine failed ({name}: {message}); use --debug for its log")


def copy_error(error: EngineError) -> EngineError:
    """A fresh exception of the same kind: one object raised in two threads mixes tracebacks."""
    return type(error)(*error.args)
