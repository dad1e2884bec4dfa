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
import gc
import json
import os
import select
import signal
import socket
import struct
import warnings
from typing import Any


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


guard = load_sibling("guard")
watching = load_sibling("watch")

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
        self._redirect(job["output"], job["stdout"] or job["output"])
        job["pipe"] = write
        guard.limit_resources(job["wall"] or 3600.0, self.memory)
        if job["cpu"]:
            signal.setitimer(signal.ITIMER_PROF, job["cpu"])

    def _redirect(self, output: str, stdout: str) -> None:
        """Nothing to read; what is printed goes to a file, or to two."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        null = os.open(os.devnull, os.O_RDONLY)
        err = os.open(output, flags, 0o600)
        out = err if stdout == output else os.open(stdout, flags, 0o600)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        for number in {null, out, err}:
            os.close(number)

    def _watch(self, pid: int, read: int, job: dict[str, Any]) -> dict[str, Any]:
        watch = watching.Watch(guard, pid, read, job)
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
        reply: dict[str, Any] = watch.reply(leftovers)
        return reply


# --- the server -------------------------------------------------------------------------------


class Server:
    """Answers run, preload and stem requests until its socket closes."""

    def __init__(self, config: dict[str, Any], sock: socket.socket) -> None:
        self.config = config
        self.sock = sock
        self.child = load_sibling("child")
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
    relay = load_sibling("relay").Relay(guard) if config["loopback"] and config["isolate"] else None
    entered = guard.enter(config["isolate"], config["view"], load_sibling("mounts").arrange)
    os.chdir(config["cwd"])
    server = Server(config, sock)
    if relay is not None:
        entered["ports"] = relay.open() if entered["isolated"] else []
        server.forker.keep.append(relay.pid)
    ready = server.child.prepare(config)
    send(sock, dict(ready, **entered))
    server.serve()


if __name__ == "__main__":
    main()
