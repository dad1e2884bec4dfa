"""Starts the fork server under the user's interpreter and talks to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clover_patcher.check.command import Check
from clover_patcher.errors import UsageError

_START_S = 60.0
_LOG = "server.log"
AROUND = ".."
"""Stands for the folder around the repository in what runs cannot see."""
_MOUNTS = "CLOVER_MOUNTS"
"""The variable that, set to 0, keeps runs from mounting anything."""
_SLACK_S = 10.0
"""A server that answers this much later than its own limit is taken for dead."""
_NOT_INHERITED = ("GIT_", "PYTEST_XDIST", "PYTEST_CURRENT_TEST", "PYTEST_VERSION")


class ServerLost(Exception):
    """The server died or does not answer; a new one may be started."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server needs to know from the start."""

    check: Check
    worktree: Path
    tmp: Path
    original_root: Path | None = None
    isolate: bool = True
    cwd: str = ""
    """Where the check runs, relative to the worktree."""
    left_out: tuple[str, ...] = ()
    """Paths below `original_root` that were not copied: runs see them copy-on-write."""
    loopback: bool = False
    """Runs reach the services on the machine's loopback device all the same."""

    @property
    def folder(self) -> Path:
        """Where the check runs."""
        return self.worktree / self.cwd if self.cwd else self.worktree


@dataclass(slots=True)
class Job:
    """One run. Times are seconds, None for no limit; see `child.py` for the events."""

    stage: str = "base"
    select: list[str] | None = None
    """Run only these tests (or all of these files), in this order."""
    deselect: list[str] | None = None
    maxfail: int = 0
    ordered: bool = False
    """Run the selected tests in the given order."""
    texts: int = 0
    """So many failures are printed with their tracebacks."""
    trace: str | None = None
    modules: bool = False
    write_bytecode: bool = False
    wall: float | None = None
    idle: float | None = None
    """No sign of life for this long ends the run."""
    startup: float | None = None
    """Replaces `idle` until the first test starts: importing may take longer than any test."""
    printing: bool = False
    """Output is a sign of life."""
    cpu: float | None = None
    graceful: bool = False
    """On a timeout the child says where it is before it ends."""
    output: str = ""
    stdout: str = ""
    """Standard output goes to this file instead of `output`."""
    programs: str = ""
    """Where the Python programs of a command say how they ended; see `hook/sitecustomize.py`."""


@dataclass(slots=True)
class Reply:
    """How a run ended: exit code or signal, and which limit it met ("" for none)."""

    events: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    signal: int | None = None
    timeout: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    leftovers: int = 0
    lost: bool = False


class ForkServer:
    """One server process. Raises `ServerLost` from any call once it is gone."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.isolated = False
        self.isolation_problem = ""
        self.left_out: tuple[str, ...] = ()
        """Paths that were not copied, and could not be mounted either."""
        self.version: tuple[int, ...] = ()
        self.loaded: frozenset[str] = frozenset()
        ours, theirs = socket.socketpair()
        self._sock = ours
        try:
            self._process = self._start(theirs)
        finally:
            theirs.close()
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def run(self, job: Job) -> Reply:
        """Runs the check once."""
        limit = None if job.wall is None else job.wall + _SLACK_S
        answer = self._ask({"op": "run", **_plain(job)}, limit)
        return Reply(**answer)

    def preload(self, modules: list[str]) -> int:
        """Imports modules in the server, for all later runs."""
        loaded: int = self._ask({"op": "preload", "modules": modules}, _START_S)["loaded"]
        return loaded

    def stem(self, stage: str) -> list[str] | None:
        """Prepares runs from a later stage; the worktree's files that it has loaded by then.

        None where the stage was not reached.
        """
        request = {"op": "stem", **_plain(Job(stage=stage, wall=_SLACK_S))}
        answer = self._ask(request, 2 * _SLACK_S)
        return list(answer["loaded"]) if answer["ok"] else None

    def interrupt(self) -> None:
        """Ends a request that another thread is waiting for: it raises `ServerLost`."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the server and everything it started."""
        with suppress(OSError):
            self._sock.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _start(self, sock: socket.socket) -> subprocess.Popen[bytes]:
        options = self.options
        check = options.check
        script = Path(__file__).parent / "fork" / "server.py"
        first = check.import_first
        config = {
            "kind": check.kind,
            "argv": [
                _moved(check.argv[0], options, program=True),
                *(_moved(a, options) for a in check.argv[1:]),
            ],
            "args": [_moved(a, options) for a in check.arguments],
            "first": [] if first is None else [os.path.normpath(options.folder / first)],
            "worktree": str(options.worktree),
            "cwd": str(options.folder),
            "original_root": str(options.original_root) if options.original_root else None,
            "isolate": options.isolate,
            "loopback": options.loopback,
            "view": _view(options),
        }
        command = [
            check.interpreter or sys.executable,
            *check.flags,
            str(script),
            json.dumps(config),
            str(sock.fileno()),
        ]
        env = _environment(options)
        try:
            options.folder.mkdir(parents=True, exist_ok=True)
            with (options.tmp / _LOG).open("ab") as log:
                return subprocess.Popen(
                    command,
                    cwd=options.folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[sock.fileno()],
                    start_new_session=True,
                )
        except OSError as exc:
            raise UsageError(f"cannot start {command[0]}: {exc.strerror}") from exc

    def _greet(self) -> None:
        ready = self._receive(_START_S)
        if ready["error"]:
            name = self.options.check.interpreter
            raise UsageError(f"{name} cannot import the test framework: {ready['error']}")
        self.isolated, self.isolation_problem = ready["isolated"], ready["why"]
        nothing = (*self.options.left_out, AROUND)
        self.left_out = tuple(ready["left"]) if _view(self.options) else nothing
        self.version = tuple(ready["version"])
        self.loaded = frozenset(ready["here"])

    def _ask(self, message: Mapping[str, Any], limit: float | None) -> dict[str, Any]:
        data = json.dumps(message).encode()
        try:
            self._sock.sendall(struct.pack("!I", len(data)) + data)
        except OSError as exc:
            raise ServerLost(str(exc)) from exc
        return self._receive(limit)

    def _receive(self, limit: float | None) -> dict[str, Any]:
        self._sock.settimeout(limit)
        try:
            size = struct.unpack("!I", self._exactly(4))[0]
            answer: dict[str, Any] = json.loads(self._exactly(size))
        except OSError as exc:
            raise ServerLost(f"{exc} {log_tail(self.options.tmp)}".strip()) from exc
        return answer

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._sock.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("the check's process ended")
            parts += part
        return bytes(parts)


def _plain(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Job.__slots__}


def _view(options: ServerOptions) -> dict[str, Any] | None:
    """What `mounts.py` is to mount; None without a repository that the worktree comes from."""
    root = options.original_root
    if root is None or root == options.worktree or os.environ.get(_MOUNTS) == "0":
        return None
    scratch = options.tmp / "mounts"
    scratch.mkdir(exist_ok=True)
    names = [*options.left_out, AROUND]
    return {
        "root": str(root),
        "tree": str(options.worktree),
        "scratch": str(scratch),
        "names": names,
    }


def _moved(argument: str, options: ServerOptions, *, program: bool = False) -> str:
    """An absolute path into the original repository becomes one into the worktree.

    A program of an environment that was not copied is the original's.
    """
    root = options.original_root
    if root is None:
        return argument
    if options.check.script and argument == options.check.script:
        return re.sub(
            rf"{re.escape(str(root))}(?![\w.-])", lambda _: str(options.worktree), argument
        )
    if argument != str(root) and not argument.startswith(f"{root}{os.sep}"):
        return argument
    twin = options.worktree / os.path.relpath(argument, root)
    return argument if program and not os.path.lexists(twin) else str(twin)


def _environment(options: ServerOptions) -> dict[str, str]:
    """The user's environment, with bytecode, temporary files and git kept apart."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
    scratch = options.tmp / "t"
    scratch.mkdir(parents=True, exist_ok=True)
    env.pop("PYTHONSTARTUP", None)
    env.pop("PYTHONINSPECT", None)
    env.pop("PYTHONPYCACHEPREFIX", None)
    env |= {
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(scratch),
        "PWD": str(options.folder),
    }
    caches = {"MYPY_CACHE_DIR": "mypy", "RUFF_CACHE_DIR": "ruff", "PYLINTHOME": "pylint"}
    env |= {name: str(options.tmp / folder) for name, folder in caches.items()}
    for name, value in options.check.env:
        parts = [_moved(part, options, program=True) for part in value.split(os.pathsep)]
        env[name] = os.pathsep.join(parts)
    return env


def log_tail(tmp: Path, size: int = 400) -> str:
    """The last line that a server printed before it died."""
    with suppress(OSError):
        text = (tmp / _LOG).read_bytes()[-size:].decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else ""
    return ""
