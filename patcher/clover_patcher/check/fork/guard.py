"""What keeps runs within bounds: no network, resource limits, no process left behind.

Loaded by path beside `server.py`; standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_PROCESSES = 256
"""So many descendants end a run."""
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000

# --- isolation --------------------------------------------------------------------------------


def enter(isolate: bool, view: dict[str, Any] | None, arrange: Any) -> dict[str, Any]:
    """Moves this process into namespaces of its own; says what came of it.

    With `isolate`, its network has only a loopback device. With a `view`, `arrange(view,
    unprivileged)` mounts things that only this process and its children see. "isolated" and "why"
    are about the network, "left" has the names of the view that could not be mounted.
    """
    left = list(view["names"]) if view else []
    problem = "not asked for"
    tries = [(isolate, True)] if view else []
    tries += [(True, False)] if isolate else []
    for network, mounts in tries:
        problem = _tried(network, mounts)
        if not problem:
            unprivileged = _enter_namespaces(network, mounts)
            if mounts:
                left = arrange(view, unprivileged)
            _drop_powers(unprivileged)
            return {"isolated": network, "why": "" if network else "not asked for", "left": left}
    return {"isolated": False, "why": problem if isolate else "not asked for", "left": left}


def _tried(network: bool, mounts: bool) -> str:
    """What goes wrong, in words; a child tries it, since one cannot come back from half way."""
    try:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _drop_powers(_enter_namespaces(network, mounts))
                os.write(write, b"ok")
            except Exception as error:
                os.write(write, (str(error) or type(error).__name__).encode())
            os._exit(0)
        os.close(write)
        answer = os.read(read, 1000).decode()
        os.close(read)
        os.waitpid(pid, 0)
        return "" if answer == "ok" else answer or "the attempt crashed"
    except OSError as error:
        return str(error)


def _enter_namespaces(network: bool, mounts: bool) -> bool:
    """Whether a user namespace was needed, whose powers are dropped afterwards.

    Raises `OSError`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    wanted = (_CLONE_NEWNET if network else 0) | (_CLONE_NEWNS if mounts else 0)
    unprivileged = bool(libc.unshare(wanted) != 0)
    if unprivileged:
        if libc.unshare(_CLONE_NEWUSER | wanted) != 0:
            raise OSError(os.strerror(ctypes.get_errno()))
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if network:
        _loopback_up()
    if mounts:
        none = None
        if libc.mount(none, b"/", none, ctypes.c_ulong(0x44000), none) != 0:  # private, all of it
            raise OSError(os.strerror(ctypes.get_errno()))
    return unprivileged


def _drop_powers(unprivileged: bool) -> None:
    """The powers in a new user namespace would override file modes."""
    if unprivileged and os.getuid() != 0:
        ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), b"\0" * 24)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # up, running


def prctl(option: int, value: int) -> None:
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
    limit(resource.RLIMIT_NPROC, own_threads() + MAX_PROCESSES)


_thread_count: list[int] = []


def own_threads() -> int:
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


def memory_limit() -> int:
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


def process_state(pid: int) -> tuple[str, float]:
    """The kernel's letter for what a process does, and the seconds that it computed."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return "?", 0.0


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
