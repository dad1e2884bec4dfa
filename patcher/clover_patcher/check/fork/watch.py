"""Watches one forked run of the check: its events, its clocks and its end.

Part of `server.py`: under the user's interpreter, standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import time
from typing import Any

_GRACE_S = 0.3
_POLL_S = 0.05
_MAX_EVENT_BYTES = 64 << 20


class Watch:
    """One running child: its events, its clocks and its end."""

    def __init__(self, guard: Any, pid: int, read: int, job: dict[str, Any]) -> None:
        os.set_blocking(read, False)
        self.guard, self.pid, self.read = guard, pid, read
        self.wall: float | None = job["wall"]
        self.idle: float | None = job["idle"]
        self.startup: float | None = job["startup"]
        self.graceful: bool = job["graceful"]
        self.output: str = job["output"] if job["printing"] else ""
        self.printed = 0
        self.noted = self.active_cpu = 0.0
        self.started = self.active = time.monotonic()
        self.data: list[bytes] = []
        self.size = 0
        self.timeout = ""
        self.killed_at: float | None = None
        self.ended = False
        self.status = 0
        self.cpu = 0.0
        self.checked = 0.0

    def patience(self) -> float:
        """How long `select` may sleep, in seconds."""
        now = time.monotonic()
        ends = [now + _POLL_S]
        if self.killed_at is not None:
            ends.append(self.killed_at + _GRACE_S)
        else:
            ends += [self.started + self.wall] if self.wall else []
        return max(0.0, min(ends) - now)

    def take(self) -> bool:
        """Reads what the child said; False at its end or when nothing is there."""
        try:
            part = os.read(self.read, 1 << 16)
        except OSError as error:
            return error.errno == errno.EINTR
        if part and self.size < _MAX_EVENT_BYTES:
            self.active = time.monotonic()
            self.data.append(part)
            if self.startup and b'"e": "start"' in part:
                self.startup = None
            self.size += len(part)
        return bool(part)

    def check(self) -> None:
        """Looks at the clocks and whether the child has ended."""
        if self._has_ended():
            return
        now = time.monotonic()
        if self.killed_at is not None:
            if now - self.killed_at >= _GRACE_S:
                self.guard.kill_group(self.pid)
            return
        if self.active != self.noted:
            self.noted, self.active_cpu = self.active, self.guard.process_state(self.pid)[1]
        if (
            self.wall
            and now - self.started >= self.wall
            and not self._starved(self.wall, self.started)
        ):
            self.timeout = "wall"
        elif self._silent_for(self.startup or self.idle, now):
            self.timeout = "idle"
        elif now - self.checked >= _POLL_S:
            self.checked = now
            if len(self.guard.descendants(4 * self.guard.MAX_PROCESSES)) > self.guard.MAX_PROCESSES:
                self.timeout = "processes"
        if self.timeout:
            self.killed_at = now
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGPROF if self.graceful else signal.SIGKILL)

    def _has_ended(self) -> bool:
        """Whether the child is dead; then what it left behind in its group is killed."""
        if hasattr(os, "waitid"):
            if not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return False
            self.guard.kill_group(self.pid)  # while the dead leader still holds the group's number
            _, self.status, usage = os.wait4(self.pid, 0)
        else:  # macOS before Python 3.13
            pid, self.status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            with contextlib.suppress(OSError):  # the group's number is not given away before
                os.killpg(self.pid, signal.SIGKILL)  # its last member has ended
        self.cpu = usage.ru_utime + usage.ru_stime
        self.ended = True
        return True

    def _starved(self, limit: float, since: float) -> bool:
        """Whether other processes keep this one from running: it wants to, and gets too little.

        Limits then count less than the clock says, but at most ten times less.
        """
        waited = time.monotonic() - since
        state, cpu = self.guard.process_state(self.pid)
        computed = cpu - (self.active_cpu if since == self.active else 0.0)
        return waited < 10 * limit and state in "RD" and computed < 0.25 * limit

    def _silent_for(self, limit: float | None, now: float) -> bool:
        if not limit or now - self.active < limit:
            return False
        return not self._printed() and not self._starved(limit, self.active)

    def _printed(self) -> bool:
        """Whether more output came since the last look, for checks that say nothing else."""
        if not self.output:
            return False
        with contextlib.suppress(OSError):
            size = os.stat(self.output).st_size
            if size != self.printed:
                self.printed, self.active = size, time.monotonic()
                return True
        return False

    def reply(self, leftovers: int) -> dict[str, Any]:
        code = os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        if number in (signal.SIGPROF, signal.SIGXCPU) and not self.timeout:
            self.timeout = "cpu"
        events = []
        for line in b"".join(self.data).split(b"\n"):
            try:
                events.append(json.loads(line.decode("utf-8")))
            except ValueError:
                continue
        return {
            "events": events,
            "code": code,
            "signal": number,
            "timeout": self.timeout,
            "seconds": time.monotonic() - self.started,
            "cpu": self.cpu,
            "leftovers": leftovers,
        }
