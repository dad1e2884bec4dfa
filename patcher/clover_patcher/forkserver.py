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
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import time
import warnings
from typing import Any

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 0.3
_POLL_S = 0.05
_MAX_PROCESSES = 256
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


# --- isolation --------------------------------------------------------------------------------


def leave_network() -> tuple[bool, str]:
    """Moves this process into a network namespace that has only a loopback device."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(_CLONE_NEWNET) != 0:
            if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
                return False, os.strerror(ctypes.get_errno())
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
            _loopback_up()
            if uid != 0:  # the new namespace's powers would override file modes
                header = struct.pack("Ii", 0x20080522, 0)
                libc.capset(header, b"\0" * 24)
        else:
            _loopback_up()
        return True, ""
    except (OSError, AttributeError) as error:
        return False, str(error)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # up, running


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def limit_resources(cpu_s: float, memory: int) -> None:
    """Sets limits of the calling process and all it starts; never raises a hard limit."""

    def limit(which: int, value: int) -> None:
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (value, hard))

    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 256 << 20)
    limit(resource.RLIMIT_AS, memory)
    limit(resource.RLIMIT_CPU, int(cpu_s) + 5)
    limit(resource.RLIMIT_NPROC, _own_threads() + _MAX_PROCESSES)


_thread_count: list[int] = []


def _own_threads() -> int:
    """Threads of this user now; counted once, since RLIMIT_NPROC counts them all."""
    if not _thread_count:
        total, uid = 0, os.getuid()
        for pid in os.listdir("/proc") if os.path.isdir("/proc") else []:
            try:
                if pid.isdigit() and os.stat("/proc/" + pid).st_uid == uid:
                    total += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                continue
        _thread_count.append(total)
    return _thread_count[0]


def _memory_limit() -> int:
    """Address space for a run, in bytes: what is mapped already and half of the memory."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * page
        half = os.sysconf("SC_PHYS_PAGES") * page // 2
    except (OSError, ValueError):
        mapped, half = 4 << 30, 4 << 30
    return mapped + max(2 << 30, min(half, 8 << 30))


# --- processes --------------------------------------------------------------------------------


def descendants(limit: int = 100000) -> list[int]:
    """All living descendants of this process."""
    found: list[int] = []
    queue = [os.getpid()]
    while queue and len(found) < limit:
        pid = queue.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    children = [int(c) for c in file.read().split()]
                found += children
                queue += children
        except OSError:
            continue
    return found


def kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def reap_orphans(keep: list[int]) -> int:
    """Kills what a finished run left behind (we are its reaper). Returns how many."""
    killed, end = 0, time.monotonic() + 2.0
    while time.monotonic() < end:
        left = [p for p in _children() if p not in keep]
        if not left:
            break
        for pid in left:
            killed += 1
            kill_group(pid)
        for pid in left:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)
    return killed


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(c) for c in file.read().split()]
    except OSError:
        return []


class Waker:
    """Turns SIGCHLD into something that `select` sees."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        os.set_blocking(self.write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self.read, 512):
                pass

    def forget(self) -> None:
        """In a child: ordinary signals again."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.read)
        os.close(self.write)


class Forker:
    """Forks runs one at a time and watches over them; also used inside a stem."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waker = Waker()
        self.keep: list[int] = []
        self.memory = _memory_limit()
        _own_threads()

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
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(out)
        job["pipe"] = write
        limit_resources(job["wall"] or 3600.0, self.memory)
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
                kill_group(pid)
                reap_orphans(self.keep)
                os._exit(0)
            watch.check()
        while watch.take():
            pass
        leftovers = reap_orphans(self.keep)
        return watch.reply(leftovers)


class _Watch:
    """One running child: its events, its clocks and its end."""

    def __init__(self, pid: int, read: int, job: dict[str, Any]) -> None:
        os.set_blocking(read, False)
        self.pid, self.read = pid, read
        self.wall: float | None = job["wall"]
        self.idle: float | None = job["idle"]
        self.graceful: bool = job["graceful"]
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
            ends += [self.active + self.idle] if self.idle else []
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
            self.size += len(part)
        return bool(part)

    def check(self) -> None:
        """Looks at the clocks and whether the child has ended."""
        done, status, usage = os.wait4(self.pid, os.WNOHANG)
        if done:
            self.ended, self.status = True, status
            self.cpu = usage.ru_utime + usage.ru_stime
            kill_group(self.pid)
            return
        now = time.monotonic()
        if self.killed_at is not None:
            if now - self.killed_at >= _GRACE_S:
                kill_group(self.pid)
            return
        if self.wall and now - self.started >= self.wall:
            self.timeout = "wall"
        elif self.idle and now - self.active >= self.idle:
            self.timeout = "idle"
        elif now - self.checked >= _POLL_S:
            self.checked = now
            if len(descendants(4 * _MAX_PROCESSES)) > _MAX_PROCESSES:
                self.timeout = "processes"
        if self.timeout:
            self.killed_at = now
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGPROF if self.graceful else signal.SIGKILL)

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
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
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
        kill_group(pid)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)
        self.forker.keep.remove(pid)
        reap_orphans(self.forker.keep)

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
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    isolated, why = leave_network() if config["isolate"] else (False, "not asked for")
    os.chdir(config["worktree"])
    server = Server(config, sock)
    ready = server.child.prepare(config)
    send(sock, dict(ready, isolated=isolated, why=why))
    server.serve()


if __name__ == "__main__":
    main()
