"""Reads what forked runs of a check said, and makes an `Outcome` and coverage of it."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clover_patcher.check.forkserver import Reply
from clover_patcher.types import Frame, Outcome, Status, TestCoverage, TestFailure

_TAIL = 16 << 10
_RECORD = struct.Struct("<HI")
_BUCKET = 0xFFFF
_HUNG = "timeout"
_NOT_RUN = "missing"
_NO_TESTS = 5
"""pytest's exit code where it found no test."""


@dataclass(slots=True)
class Tally:
    """Adds up one or more runs of the same check (later ones without the earlier ones' tests)."""

    silent: bool = False
    """The check is a program that says nothing but its exit code."""
    passed: dict[str, float] = field(default_factory=dict)
    """Tests that passed, with their durations in seconds."""
    failures: dict[str, TestFailure] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    """Tests that were started, including one that hung or crashed."""
    code: int | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    hung_seconds: float = 0.0
    modules: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    """Files of the worktree that were imported."""
    installed: list[tuple[str, str]] = field(default_factory=list)
    """Packages of the worktree that were imported from an installation: name and place."""
    output: str = ""
    hangs: int = 0

    def add(self, reply: Reply, output: str) -> str | None:
        """Takes in a run; the test that hung or crashed, "" for none known, None for no such."""
        self.seconds += reply.seconds
        self.cpu += reply.cpu
        self.output = output
        self.code = reply.code
        running, stuck, ended = "", None, False
        for event in reply.events:
            kind = event["e"]
            if kind == "start":
                running = event["id"]
                self.finished.add(running)
            elif kind == "phase":
                self._phase(event)
            elif kind in ("collect", "error"):
                self._fail(event)
            elif kind == "timeout":
                stuck = event
            elif kind == "modules":
                self.modules, self.outside = event["names"], event["outside"]
                self.loaded = event["here"]
                self.installed = [(name, place) for name, place in event["installed"]]
            elif kind == "exit":
                ended = stuck is None
        if ended or (self.silent and not reply.timeout and reply.signal is None):
            return None
        self._cut(reply, running, stuck)
        return running

    def outcome(self, expected: Iterable[str] = ()) -> Outcome:
        """The verdict; where nothing failed, tests of `expected` that did not pass count."""
        failures = dict(self.failures)
        if not failures:
            for nodeid in expected:
                if not self._covered(nodeid):
                    failures[nodeid] = TestFailure(nodeid, _NOT_RUN, "the test did not run")
        if self.code != 0 and not failures:
            said = "no tests were found" if self.code == _NO_TESTS else last_line(self.output)
            failures[""] = TestFailure("", f"exit {self.code}", said)
        return Outcome(
            status=self._status(failures),
            seconds=self.seconds,
            failures=tuple(failures.values()),
            passed=len(self.passed),
            output=self.output,
        )

    def _status(self, failures: Mapping[str, TestFailure]) -> Status:
        if not failures:
            return "passed"
        if self.hangs:
            return "timeout"
        return "failed" if self.finished or self.code == 1 else "error"

    def _covered(self, nodeid: str) -> bool:
        return nodeid in self.passed or any(p.startswith(f"{nodeid}::") for p in self.passed)

    def _phase(self, event: Mapping[str, Any]) -> None:
        if event["outcome"] == "passed" and event["id"] not in self.failures:
            self.passed[event["id"]] = event["duration"]
        elif event["outcome"] == "failed":
            self.passed.pop(event["id"], None)
            self._fail(event)

    def _fail(self, event: Mapping[str, Any]) -> None:
        frames = tuple(Frame(*frame) for frame in event["frames"])
        failure = TestFailure(event["id"], event["kind"], event["message"], frames)
        self.failures.setdefault(event["id"], failure)

    def _cut(self, reply: Reply, running: str, stuck: Mapping[str, Any] | None) -> None:
        """The run did not come to its end: a limit, a crash, or `os._exit`."""
        frames = tuple(Frame(*frame) for frame in stuck["frames"]) if stuck else ()
        if reply.timeout in ("wall", "idle", "cpu") or stuck:
            self.hangs += 1
            self.hung_seconds += reply.seconds
            kind, said = _HUNG, f"still running after {reply.seconds:.1f} s"
        elif reply.timeout:
            kind, said = "processes", "started too many processes"
        elif reply.signal is not None:
            kind, said = _signal_name(reply.signal), "the process was killed by a signal"
        else:
            kind, said = f"exit {reply.code}", "the process ended in the middle of the check"
        self.passed.pop(running, None)
        self.failures[running] = TestFailure(running, kind, said, frames)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_PLACES = ("inifile: ", "rootdir: ", "configfile: ")


def last_line(text: str) -> str:
    """The last line that says something; not pytest's word on where it looked."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_PLACES)]
    return (telling or lines or [""])[-1]


def tail(path: Path) -> str:
    """The end of what a run printed."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@dataclass(slots=True)
class CoverageLog:
    """Adds up trace records; see `fork/trace.py` for their form."""

    lines: dict[str, set[tuple[str, int]]] = field(default_factory=dict)

    def add(self, reply: Reply, record: Path) -> None:
        """Reads one run's record."""
        buckets = {e["i"]: e["id"] for e in reply.events if e["e"] == "bucket"}
        files = {e["i"]: e["path"] for e in reply.events if e["e"] == "file"}
        current: set[tuple[str, int]] = set()
        try:
            data = record.read_bytes()
        except OSError:
            return
        for file, line in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
            if file == 0:
                break
            if file == _BUCKET:
                current = self.lines.setdefault(buckets.get(line, ""), set())
            elif file in files:
                current.add((files[file], line))

    def coverage(self, tally: Tally) -> list[TestCoverage]:
        """Per test; what was executed while importing is named "import:FILE"."""
        found = []
        for name, lines in self.lines.items():
            nodeid = name.removeprefix("import:")
            failed = bool(nodeid) and nodeid in tally.failures
            if not name and not tally.finished:  # a script without tests is one test
                failed = tally.code != 0
            elif not nodeid:
                name = "import:"
            if lines:
                shown = nodeid if failed else name
                found.append(TestCoverage(shown, failed, frozenset(lines)))
        return found
