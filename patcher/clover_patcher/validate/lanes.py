"""The runners of a run, one in each copy of the tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from clover_patcher.check.baseline import reproduce
from clover_patcher.check.command import Check
from clover_patcher.check.fidelity import Fidelity
from clover_patcher.check.hopeless import why_hopeless
from clover_patcher.check.prepared import View
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.check.runners import Runner, start_runner
from clover_patcher.errors import Cancelled
from clover_patcher.repository.scope import matching
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest
from clover_patcher.task.task import Task
from clover_patcher.types import Edit, Outcome, TestCoverage

_MAX_JOBS = 2
_MOST_REPAIRS = 5
"""So often a copy is made more complete before a failure in it is taken as it is."""


class Lanes:
    """Starts runners in a workspace's copies; `stack` closes them, `running` has all of them."""

    def __init__(self, task: Task, workspace: Workspace, stack: ExitStack) -> None:
        self.running: list[Runner] = []
        self._task, self._workspace, self._stack = task, workspace, stack
        view = View(left_out=workspace.left_out, network=task.request.network)
        self._fidelity = Fidelity(workspace, task.cwd, view)

    def baseline(self) -> tuple[Outcome, list[Runner]]:
        """The failure to repair, and the runners on which it shows reliably; see `reproduce`."""
        numbers = range(jobs_for(self._task.request))
        starts = [partial(self._start, number) for number in numbers]
        return reproduce(self._task.check, starts, self._fidelity.mend, self._hopeless)

    @property
    def notes(self) -> list[str]:
        """What was brought into the copies, in words."""
        return self._fidelity.notes

    def tests(self, check: Check, stack: ExitStack) -> TestsOf:
        """The tests of another check, to be run in a copy of its own; `stack` closes it."""
        return TestsOf(self, check, stack)

    def program(self, check: Check, stack: ExitStack) -> ProgramRunner:
        """A runner of another check in a fresh copy; raises as `Workspace.fresh` does."""
        tree = self._workspace.fresh(frozenset())
        tmp = self._workspace.scratch / tree.parent.name
        tmp.mkdir(exist_ok=True)
        runner = ProgramRunner(
            check,
            tree,
            timeout_s=self._task.request.check_timeout_s,
            tmp=tmp,
            original_root=self._task.repository.root,
            cwd=self._task.cwd,
            view=self._fidelity.view,
        )
        stack.callback(runner.close)
        self.running.append(runner)
        return runner

    def look(self, tree: Path) -> Outcome:
        """One cold run of the whole check in a tree, once what the copies miss is brought in."""
        for _ in range(_MOST_REPAIRS):
            with ExitStack() as stack:
                runner = self.runner(tree, stack)
                stack.callback(self.running.remove, runner)
                outcome = runner.look()
                if not self._fidelity.mend(outcome, runner):
                    break
        return outcome

    def _hopeless(self, outcome: Outcome, runner: Runner) -> str | None:
        task, workspace = self._task, self._workspace
        freed = (*task.paths, *matching(workspace.python_files, task.request.allow))
        return why_hopeless(task.check, outcome, workspace.files, runner, freed)

    def _start(self, number: int) -> Runner:
        return self.runner(self._workspace.tree(number), self._stack)

    def runner(self, tree: Path, stack: ExitStack) -> Runner:
        """Starts a runner in one of the workspace's trees; `stack` closes it."""
        task = self._task
        task.require_going()
        runner = start_runner(
            task.check,
            tree,
            timeout_s=task.request.check_timeout_s,
            tmp=self._workspace.scratch / tree.parent.name,
            original_root=task.repository.root,
            cwd=task.cwd,
            only=task.request.only,
            view=self._fidelity.view,
        )
        stack.callback(runner.close)
        self.running.append(runner)
        return runner


class TestsOf:
    """The tests of a wider check, in a copy of the tree that is made at the first run."""

    __test__ = False

    def __init__(self, lanes: Lanes, check: Check, stack: ExitStack) -> None:
        self._lanes, self._check, self._stack = lanes, check, stack
        self._runner: ProgramRunner | None = None
        self._stopped = False

    @property
    def tree(self) -> Path:
        """The copy, which is made now if it was not before."""
        return self._started().worktree

    def passing(self, edits: Sequence[Edit] = ()) -> frozenset[str]:
        """Names of the tests that pass with the edits. Raises `Cancelled` once stopped."""
        return self._started().passing(edits)

    def traced(self) -> tuple[frozenset[str], list[TestCoverage]]:
        """Names of the tests that pass without edits, and what they and the others execute."""
        runner = self._started()
        runner.look()
        return runner.expected, runner.trace()

    def _started(self) -> ProgramRunner:
        if self._stopped:
            raise Cancelled("the time is up")
        if self._runner is None:
            self._runner = self._lanes.program(self._check, self._stack)
        return self._runner

    def stop(self) -> None:
        """From another thread: ends a run, for good."""
        self._stopped = True
        if self._runner is not None:
            self._runner.stop()


def jobs_for(request: FixRequest) -> int:
    """How many copies of the tree are tried in parallel."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return request.jobs or min(_MAX_JOBS, cores or 1)
