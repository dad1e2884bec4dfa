"""A process under the user's interpreter that forks one child per run of the check.

Started by path, never imported: standard library only, syntax of Python 3.8. It leaves the
network, imports the test framework and then answers requests on a socket; each run is a fork in
its own session with hard limits, and everything that the run started is killed when it ends.

Protocol: 4 bytes of length, then JSON. The first argument is the configuration (`_Config`), the
second the number of the inherited socket.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and __file__.startswith(sys.path[0] or "?"):
    del sys.path[0]  # this script's folder must not lend its modules to the user's programs

import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import struct
import time
import warnings
from typing import Any

_GRACE_S = 0.3
_POLL_S = 0.05
_MAX_EVENT_BYTES = 64 << 20


def load_sibling(name: str) -> Any:
    """Imports a file beside this one under a private name."""
    import importlib.util

    private = "_clover_" + name
    if private not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
        spec = importlib.util.spec_from_file_location(private, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[private] = module
        spec.loader.exec_module(module)
    return sys.modules[private]


guard = load_sibling("forkguard")

# --- messages ---------------------------------------------------------------------------------


def send(sock: socket.socket, message: Any) -> None:
    """Writes one message."""
    data = json.dumps(message).encode("utf-8", "backslashreplace")
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket) -> Any:
    """Reads one message; None when the other side is gone."""
    head = _exactly(sock, 4)
    if head is None:
        return None
    body = _exactly(sock, struct.unpack("!I", head)[0])
    return None if body is None else json.loads(body.decode("utf-8"))


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        try:
            part = sock.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# --- runs -------------------------------------------------------------------------------------


class Forker:
    """Forks runs one at a time and watches over them; also used inside a stem."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waker = guard.Waker()
        self.keep: list[int] = []
        self.memory = guard.memory_limit()
        guard.own_threads()

    def run(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Forks. The parent returns the reply; the child returns None and goes on with the job."""
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            os.close(read)
            self._become_child(job, write)
            return None
        os.close(write)
        try:
            return self._watch(pid, read, job)
        finally:
            os.close(read)

    def _become_child(self, job: dict[str, Any], write: int) -> None:
        self.waker.forget()
        self.sock.close()
        os.setsid()
        guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(out)
        job["pipe"] = write
        guard.limit_resources(job["wall"] or 3600.0, self.memory)
        if job["cpu"]:
            signal.setitimer(signal.ITIMER_PROF, job["cpu"])

    def _watch(self, pid: int, read: int, job: dict[str, Any]) -> dict[str, Any]:
        watch = _Watch(pid, read, job)
        polled = [read, self.waker.read, self.sock.fileno()]
        while not watch.ended:
            ready = select.select(polled, [], [], watch.patience())[0]
            if self.waker.read in ready:
                self.waker.drain()
            if read in ready and not watch.take():
                polled.remove(read)
            if self.sock.fileno() in ready:  # our side is gone, or talks out of turn
                guard.kill_group(pid)
                guard.reap_orphans(self.keep)
                os._exit(0)
            watch.check()
        while watch.take():
            pass
        leftovers = guard.reap_orphans(self.keep)
        return watch.reply(leftovers)


class _Watch:
    """One running child: its events, its clocks and its end."""

    def __init__(self, pid: int, read: int, job: dict[str, Any]) -> None:
        os.set_blocking(read, False)
        self.pid, self.read = pid, read
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
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            guard.kill_group(self.pid)  # while the dead leader still holds the group's number
            _, self.status, usage = os.wait4(self.pid, 0)
            self.cpu = usage.ru_utime + usage.ru_stime
            self.ended = True
            return
        now = time.monotonic()
        if self.killed_at is not None:
            if now - self.killed_at >= _GRACE_S:
                guard.kill_group(self.pid)
            return
        if self.active != self.noted:
            self.noted, self.active_cpu = self.active, guard.process_state(self.pid)[1]
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
            if len(guard.descendants(4 * guard.MAX_PROCESSES)) > guard.MAX_PROCESSES:
                self.timeout = "processes"
        if self.timeout:
            self.killed_at = now
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGPROF if self.graceful else signal.SIGKILL)

    def _starved(self, limit: float, since: float) -> bool:
        """Whether other processes keep this one from running: it wants to, and gets too little.

        Limits then count less than the clock says, but at most ten times less.
        """
        waited = time.monotonic() - since
        state, cpu = guard.process_state(self.pid)
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


# --- the server -------------------------------------------------------------------------------


class Server:
    """Answers run, preload and stem requests until its socket closes."""

    def __init__(self, config: dict[str, Any], sock: socket.socket) -> None:
        self.config = config
        self.sock = sock
        self.child = load_sibling("forkchild")
        self.stems: dict[str, tuple[int, socket.socket]] = {}
        self.forker = Forker(sock)

    def serve(self) -> None:
        gc.collect()
        getattr(gc, "freeze", lambda: None)()
        while True:
            request = receive(self.sock)
            if request is None or request["op"] == "quit":
                self.close()
                os._exit(0)
            send(self.sock, self.answer(request))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "preload":
            loaded = self.child.preload(request["modules"])
            gc.collect()
            getattr(gc, "freeze", lambda: None)()
            return {"loaded": loaded}
        if request["op"] == "stem":
            return self.start_stem(request)
        if request.get("stage", "base") != "base":
            return self.relay(request)
        reply = self.forker.run(request)
        if reply is None:
            self.forget_stems()
            self.child.execute(self.config, request)
            os._exit(70)
        return reply

    def start_stem(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forks a process that goes part of the way and then serves runs from there."""
        stage = request["stage"]
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            ours.close()
            self.forget_stems()
            self.forker.waker.forget()
            self.sock.close()
            guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
            guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for target in (0, 1, 2):
                os.dup2(null, target)
            self.child.execute(self.config, request, stem=Stem(theirs))
            os._exit(70)
        theirs.close()
        ours.settimeout(request["wall"])
        self.stems[stage] = (pid, ours)
        self.forker.keep.append(pid)
        try:
            reply = receive(ours)
        except OSError:
            reply = None
        ours.settimeout(None)
        if reply is None:
            self.drop_stem(stage)
            return {"ok": False}
        return dict(reply, ok=True)

    def relay(self, request: dict[str, Any]) -> dict[str, Any]:
        stage = request["stage"]
        if stage not in self.stems:
            return {"lost": True}
        stem = self.stems[stage][1]
        try:
            send(stem, request)
            if self.sock in select.select([stem, self.sock], [], [])[0]:
                self.close()
                os._exit(0)
            reply = receive(stem)
        except OSError:
            reply = None
        if reply is None:
            self.drop_stem(stage)
            return {"lost": True}
        return dict(reply)

    def drop_stem(self, stage: str) -> None:
        pid, sock = self.stems.pop(stage)
        sock.close()
        guard.kill_group(pid)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)
        self.forker.keep.remove(pid)
        guard.reap_orphans(self.forker.keep)

    def forget_stems(self) -> None:
        """In a child: these sockets belong to the server."""
        for _, sock in self.stems.values():
            sock.close()

    def close(self) -> None:
        for stage in list(self.stems):
            self.drop_stem(stage)


class Stem:
    """Inside a stem: waits for jobs at its stage; only forked children leave `serve`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.forker = Forker(sock)

    def serve(self, loaded: list[str]) -> dict[str, Any]:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        getattr(gc, "freeze", lambda: None)()
        if len(os.listdir("/proc/self/task")) > 1:  # a fork would lose the other threads
            os._exit(0)
        send(self.sock, {"loaded": loaded})
        while True:
            job = receive(self.sock)
            if job is None:
                os._exit(0)
            reply = self.forker.run(job)
            if reply is None:
                return dict(job)
            send(self.sock, reply)


def main() -> None:
    config = json.loads(sys.argv[1])
    sock = socket.socket(fileno=int(sys.argv[2]))
    os.set_inheritable(sock.fileno(), False)
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    isolated, why = guard.leave_network() if config["isolate"] else (False, "not asked for")
    os.chdir(config["worktree"])
    server = Server(config, sock)
    ready = server.child.prepare(config)
    send(sock, dict(ready, isolated=isolated, why=why))
    server.serve()


if __name__ == "__main__":
    main()
