"""Does a patch break tests beside the check? Those that passed before must pass with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from clover_patcher.check.command import Check
from clover_patcher.check.wider import wider_checks
from clover_patcher.errors import Cancelled, PatcherError
from clover_patcher.task.task import Task
from clover_patcher.types import Edit, TestCoverage
from clover_patcher.validate.lanes import Lanes, TestsOf

_LEAST_S = 3.0
"""A suite is not begun with less time than this."""
_TRACE_S, _TRACE_SHARE = 10.0, 6
"""Tests around the check are traced for so long, and for so much of the time that is left."""


@dataclass(slots=True)
class _Level:
    """One wider check. `before` has the tests that pass without a patch; None: not run yet."""

    what: str
    check: Check
    tests: TestsOf
    before: frozenset[str] | None = None
    given_up: bool = False
    held: int = 0
    """How many of them passed with the last patch that broke none."""


@dataclass(slots=True)
class Regressions:
    """Runs the tests around a check with patches that pass it. Not for several threads."""

    task: Task
    lanes: Lanes
    stack: ExitStack
    levels: list[_Level] = field(default_factory=list)
    broken: list[tuple[str, ...]] = field(default_factory=list)
    """For each refused patch the tests that it breaks."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def around(cls, task: Task, lanes: Lanes, stack: ExitStack) -> Regressions:
        """The wider checks of a task; copies are made when they are needed first."""
        checks = [] if task.request.check_only else wider_checks(task.check, task.folder)
        levels = [_Level(what, check, lanes.tests(check, stack)) for what, check in checks]
        notes = []
        if task.request.check_only and wider_checks(task.check, task.folder):
            notes.append("with --check-only, no tests beside the check were run")
        return cls(task, lanes, stack, levels, notes=notes)

    def broken_by(self, edits: Sequence[Edit]) -> tuple[str, ...]:
        """Tests that passed before and do not with the edits; empty for a good patch.

        A level that cannot be run within the budget is given up, with a note.
        """
        for level in self.levels:
            if level.given_up or self.task.clock.budget_left_s < _LEAST_S:
                self._give_up(level)
                continue
            try:
                broken = self._broken(level, edits)
            except Cancelled:
                self.task.require_going()
                self._give_up(level)
            except PatcherError:
                self._give_up(level)
            else:
                if broken:
                    self.broken.append(broken)
                    return broken
        return ()

    def coverage(self) -> list[TestCoverage]:
        """What tests around the check execute that pass; empty where that takes too long."""
        left_s = self.task.clock.left_s
        if not self.levels or left_s < _LEAST_S:
            return []
        level, copy = self.levels[0], self.lanes.tests(self.levels[0].check, self.stack)
        self.task.progress.event("localise", f"tracing {level.what}", left_s=left_s)
        try:
            with _within(min(_TRACE_S, left_s / _TRACE_SHARE), copy):
                level.before, coverage = copy.traced()
        except PatcherError:
            self.task.require_going()
            return []
        level.tests = copy
        passed = level.before
        return [one for one in coverage if one.nodeid in passed]

    @property
    def summary(self) -> str:
        """What was run around the check, in a sentence without its full stop."""
        done = [level for level in self.levels if level.held]
        if done:
            last = done[-1]
            return f"all {last.held} tests that passed before still pass in {last.what}"
        if self.levels or self.task.request.check_only:
            return "no tests beside the check were run"
        return "the check has no wider set of tests"

    def _broken(self, level: _Level, edits: Sequence[Edit]) -> tuple[str, ...]:
        self.task.progress.event("confirm", f"running {level.what}")
        with _within(self.task.clock.budget_left_s, level.tests):
            if level.before is None:
                level.before = level.tests.passing()
            after = level.tests.passing(edits)
        broken = tuple(sorted(level.before - after))
        if not broken:
            level.held = len(level.before)
        return broken

    def _give_up(self, level: _Level) -> None:
        if not level.given_up:
            level.given_up = True
            self.notes.append(f"{level.what} was not run: the budget does not allow it")


@contextmanager
def _within(seconds: float, tests: TestsOf) -> Iterator[None]:
    """Stops the tests, for good, where the block takes longer."""
    timer = threading.Timer(seconds, tests.stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
