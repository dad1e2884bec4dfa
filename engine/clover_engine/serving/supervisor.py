"""Starts a server, waits until it answers, starts it again when it dies, ends all of it. No torch.

The server runs in a process group of its own: SGLang has a scheduler and more beside the process
that listens, and those must not stay on the GPU when that one is gone. A server that never came up
is not started again: it would fail the same way.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TAIL = 15
_POLL_S = 0.25
_LONGEST_LINE = 4000
_KILLED_S = 10.0
"""How long a killed process may take to be gone."""


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """Times in seconds."""

    ready_s: float = 900.0
    """Longest wait for the first answer; loading 70 GB takes minutes."""
    grace_s: float = 15.0
    """From SIGTERM to SIGKILL."""
    silent_s: float = 60.0
    """A running server that gives no answer for so long is started again."""
    probe_every_s: float = 5.0
    probe_timeout_s: float = 5.0
    restarts: int = 5
    """In a row; the count starts again when a server was up for `steady_s`."""
    steady_s: float = 600.0
    pause_s: float = 1.0
    """Before the first restart; doubles up to a minute."""


@dataclass(frozen=True, slots=True)
class Events:
    """What the supervisor tells; called on its own threads."""

    line: Callable[[str], None]
    """A line of the server's output."""
    waiting: Callable[[float], None]
    """While the server starts, seconds since."""
    ready: Callable[[float], None]
    """The server answers, after so many seconds."""
    note: Callable[[str], None]
    """What else happened, in words."""


class Supervisor:
    """One server for as long as `run` runs."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        address: tuple[str, int],
        events: Events,
        limits: RestartLimits | None = None,
        *,
        tls: bool = False,
    ) -> None:
        """`env` is added to this process's environment. `address` is where `/health` is asked."""
        self._command, self._env = list(command), {**os.environ, **env}
        self._address, self._tls = address, _own_certificate() if tls else None
        self._events, self._limits = events, limits or RestartLimits()
        self._stopping = threading.Event()
        self._at_once = threading.Event()
        self._tail: deque[str] = deque(maxlen=TAIL)

    def stop(self) -> None:
        """Ends `run`: SIGTERM for the group, SIGKILL after the grace, at once when asked twice.
        Safe in a signal handler and from any thread."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def run(self) -> bool:
        """Blocks until `stop` (True), or until the server failed too often (False)."""
        failures = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            reason, was_ready = self._live()
            if self._stopping.is_set():
                break
            if time.monotonic() - begun >= self._limits.steady_s:
                failures = 0
            failures += 1
            if not was_ready or failures > self._limits.restarts:
                times = "" if failures == 1 else f", {failures} times in a row"
                self._events.note(f"{reason}{times}; its last lines:")
                for line in self._tail:
                    self._events.note(f"  {line}")
                return False
            pause = min(60.0, self._limits.pause_s * 2 ** (failures - 1))
            self._events.note(f"{reason}; starting it again in {pause:g} s")
            self._stopping.wait(pause)
        return True

    def _live(self) -> tuple[str, bool]:
        """One life of the server: why it ended, and whether it ever answered."""
        self._tail.clear()
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"the server cannot be started ({error})", False
        assert process.stdout is not None
        reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            reason = self._until_ready(process, begun)
            if reason is not None:
                return reason, False
            self._events.ready(time.monotonic() - begun)
            return self._until_gone(process), True
        finally:
            self._end(process)
            reader.join(2.0)

    def _until_ready(self, process: subprocess.Popen[bytes], begun: float) -> str | None:
        while not self._stopping.is_set():
            if process.poll() is not None:
                return _ending(process)
            if self.answers():
                return None
            waited = time.monotonic() - begun
            if waited > self._limits.ready_s:
                return f"the server did not answer within {self._limits.ready_s:g} s"
            self._events.waiting(waited)
            self._stopping.wait(_POLL_S)
        return "stopped"

    def _until_gone(self, process: subprocess.Popen[bytes]) -> str:
        heard = asked = time.monotonic()
        while not self._stopping.is_set():
            if process.poll() is not None:
                return _ending(process)
            now = time.monotonic()
            if now - asked >= self._limits.probe_every_s:
                asked = now
                if self.answers():
                    heard = time.monotonic()
                elif time.monotonic() - heard >= self._limits.silent_s:
                    return f"the server gave no answer for {self._limits.silent_s:g} s"
            self._stopping.wait(_POLL_S)
        return "stopped"

    def answers(self) -> bool:
        """Does the server say that it is up? Costs it nothing."""
        (host, port), timeout = self._address, self._limits.probe_timeout_s
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while data := stream.readline(_LONGEST_LINE):
                line = data.decode("utf-8", errors="replace").rstrip()
                self._tail.append(line)
                self._events.line(line)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Nothing of the group is left when this returns."""
        if _alive(process):
            _signal(process.pid, signal.SIGTERM)
            end = time.monotonic() + self._limits.grace_s
            while time.monotonic() < end and _alive(process) and not self._at_once.is_set():
                time.sleep(0.05)
            _signal(process.pid, signal.SIGKILL)
            end = time.monotonic() + _KILLED_S
            while time.monotonic() < end and _alive(process):
                time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S)  # it may have ended just after it was last asked


def _own_certificate() -> ssl.SSLContext:
    """Our own child on our own address: whom its certificate names does not matter."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """Does anything of the group still run? Reaps its first process.

    The kernel also counts dead processes that nobody has reaped, in containers for ever.
    """
    process.poll()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text("ascii", "replace").rpartition(")")[2].split()[:3]
            if int(group) == process.pid and state not in "ZX":
                return True
    return False


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    return f"the server ended ({how})"
