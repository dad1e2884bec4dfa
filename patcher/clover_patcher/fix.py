"""The journey from a failing check to a validated patch in the working tree.

Snapshot → baseline, twice the same failure → localise → candidates, tried in copies of the tree
→ the best of those that pass, confirmed by a cold run of the whole check in a fresh copy →
compare-and-swap into the working tree. Nothing is ever run in the user's tree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from clover_engine.api import CancelToken, Engine
from clover_engine.errors import EngineError

from .candidates import CandidateSource
from .checks import Check
from .edits import FileChange, changes, unified_diff, write_changes
from .errors import BaselineError, BudgetExceeded, Cancelled, PatcherError, TreeChanged
from .explain import describe_failures, explain
from .git import Repository
from .localise import localise
from .metered import MeteredEngine
from .progress import Clock, Progress, Quiet
from .reproduce import reproduce
from .runner import Runner
from .scope import resolve_paths, select_files
from .stopping import LinkedToken, stopped_by
from .types import Candidate, Diagnostic, Edit, EngineUse, Location, Outcome
from .validate import Feed, Pool, Verdict
from .workspace import Workspace

FixStatus = Literal[
    "fixed", "none_found", "not_reproducible", "tree_changed", "budget", "cancelled"
]

_GRACE_S = 3.0
"""How long the search goes on after the first passing candidate, to find a better one."""
_CONFIRM_S = 5.0
"""So much of the budget is kept for the confirming run, where the baseline's time is no guide."""
_MARGIN = 3.0
"""Nats below the passing candidate's priority where the search for a better one ends."""
_MAX_JOBS = 2
_FEW_FILES = 300
"""So many files may be suspected without any evidence, where a check cannot be traced."""


@dataclass(frozen=True, slots=True)
class FixRequest:
    """What to repair. `root` is a folder in the repository; `paths` are relative to it."""

    root: Path
    check: str
    paths: tuple[str, ...] = ()
    budget_s: float = 120.0
    dry_run: bool = False
    check_timeout_s: float | None = None
    """Limit for one test or command; None lets the runner choose from the baseline's time."""
    jobs: int = 0
    """Copies of the tree that are tried in parallel; 0 takes the cores, at most two."""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Unsaved buffers, by repository-relative path: the check sees them and the patch is one of
    them. With any, nothing is written to the user's tree (a dry run)."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Evidence where the fault is; these lines are tried first, in this order."""
    only: tuple[Diagnostic, ...] = ()
    """If any, no other lines are changed."""


@dataclass(frozen=True, slots=True)
class FixResult:
    """How a run ended. Fields about the patch are None or empty where there is none."""

    status: FixStatus
    exit_code: int
    seconds: float
    candidates_tried: int = 0
    changes: tuple[FileChange, ...] = ()
    path: str | None = None
    line: int | None = None
    applied: bool = False
    rank: int | None = None
    """How many candidates had been tried when the chosen one passed, itself included."""
    passing: int = 0
    """How many of the tried candidates passed the check."""
    engine: EngineUse = field(default_factory=EngineUse)
    explanation: str = ""
    notes: tuple[str, ...] = ()
    """What went wrong on the way without ending the run, such as an engine that failed."""
    error: str | None = None

    @property
    def patch(self) -> bytes:
        """The unified diff, in the files' own bytes."""
        return unified_diff(self.changes)


def fix(
    request: FixRequest,
    engine: Engine | None = None,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> FixResult:
    """Repairs the program so that the check passes; see `FixResult` for how that can end.

    Without an engine, candidates are enumerated and ranked by templates alone. `cancel` ends the
    running check and the engine's step; the result is then "cancelled" and nothing is written.
    Raises `UsageError` for a request that cannot be tried, and the engine's errors.
    """
    return _Repair(request, engine, progress or Quiet(), cancel).run()


class NothingSuspicious(PatcherError):
    """No line that may be patched is involved in the failure."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"the failing check runs no line of {', '.join(paths)}: name other files or none"
            if paths
            else "nothing says where the fault may be: name the file as PATH"
        )


_ENDINGS: dict[type[PatcherError], FixStatus] = {
    NothingSuspicious: "none_found",
    BaselineError: "not_reproducible",
    TreeChanged: "tree_changed",
    BudgetExceeded: "budget",
    Cancelled: "cancelled",
}
"""Errors that are results of a run; all others are the caller's."""


@dataclass(frozen=True, slots=True)
class _Passing:
    """A candidate that passed, and how many had been tried then."""

    candidate: Candidate
    rank: int


class _Repair:
    """One run's state: the clock, the engine's meter, and what was found out so far."""

    def __init__(
        self,
        request: FixRequest,
        engine: Engine | None,
        progress: Progress,
        cancel: CancelToken | None,
    ) -> None:
        self.request = request
        self.clock = Clock(request.budget_s)
        self.asked = cancel or CancelToken()
        self.cancel = LinkedToken(self.asked)
        self.runners: list[Runner] = []
        self.engine = MeteredEngine(engine, self.cancel) if engine else None
        self.tell = progress.event
        self.tried = 0
        self.passing: list[_Passing] = []
        self.allowed: list[str] = []
        self.notes: list[str] = []
        self.source: CandidateSource | None = None
        self.repository = Repository.open(request.root)
        self.check = Check.parse(request.check, self.repository.root)
        self.paths = resolve_paths(self.repository.root, request.root, request.paths)
        if request.root.resolve() != self.repository.root:
            self.notes.append(
                f"the check runs at the top of the repository, {self.repository.root}"
            )

    def run(self) -> FixResult:
        if self.engine:
            self.engine.warm_up()
        self.tell("snapshot", "copying the working tree")
        trees, overlay = _jobs(self.request.jobs), self.request.overlay
        try:
            with (
                stopped_by(self.asked, self.runners),
                Workspace(self.repository, trees=trees, overlay=overlay) as workspace,
            ):
                return self._repair(workspace)
        except tuple(_ENDINGS) as exc:
            return self._failed(exc)
        except EngineError:
            if self.asked.cancelled:
                return self._failed(_stopped())
            raise
        finally:
            self.cancel.cancel()

    def _require_going(self) -> None:
        if self.asked.cancelled:
            raise _stopped()

    def _repair(self, workspace: Workspace) -> FixResult:
        self.allowed = select_files(workspace.python_files, self.paths, self.check.argv)
        with ExitStack() as stack:
            runners = [stack.enter_context(self._runner(workspace, t)) for t in workspace.trees]
            self._require_engine(wait=False)
            baseline, runners = self._baseline(runners)
            self._require_engine(wait=False)
            locations = self._localise(workspace, baseline, runners[0])
            files = {path: workspace.read(path) for path in {at.path for at in locations}}
            self._require_engine()
            self.source = CandidateSource(files, locations, self.engine, self.cancel)
            feed = Feed(self.source.batches(self.clock.end))
            stack.callback(feed.stop)
            pool = stack.enter_context(Pool(runners))
            while not (feed.exhausted or self.clock.expired):
                found = _ranked(self._search(pool, feed))
                self._require_going()
                for best in found:
                    changed = tuple(changes(files, [best.candidate.edit]))
                    about = self._about(best, changed, baseline, locations)
                    try:
                        if self._confirmed(workspace, changed):
                            return self._apply(workspace, changed, about)
                    except TreeChanged as exc:
                        return self._result("tree_changed", exc.exit_code, error=str(exc), **about)
        if feed.exhausted:
            return self._result("none_found", 1, error="no candidate makes the check pass")
        raise BudgetExceeded(f"the budget of {self.request.budget_s:g} s is spent")

    def _require_engine(self, *, wait: bool = True) -> None:
        """Raises the engine's error where it cannot be used; without `wait`, if that is known."""
        if self.engine:
            if wait:
                self.tell("engine", "waiting for the model", left_s=self.clock.left_s)
            self.engine.require_ready(wait=wait)

    def _baseline(self, runners: list[Runner]) -> tuple[Outcome, list[Runner]]:
        """The failure to repair, and the runners on which it shows reliably."""
        self.tell("baseline", f"running {self.check.display}", left_s=self.clock.left_s)
        baseline, runners = reproduce(self.check, runners)
        hung = any(failure.kind == "timeout" for failure in baseline.failures)
        self.clock.reserve(min(self.clock.seconds, _CONFIRM_S) if hung else self.clock.seconds)
        if self.clock.expired:
            raise BudgetExceeded(f"the check alone takes the {self.request.budget_s:g} s budget")
        self.tell("baseline", describe_failures(baseline), failures=len(baseline.failures))
        return baseline, runners

    def _localise(self, workspace: Workspace, baseline: Outcome, runner: Runner) -> list[Location]:
        """Suspicious lines of files that may be patched, best first.

        Raises `NothingSuspicious` where nothing points anywhere.
        """
        self.tell("localise", "tracing the failing tests", left_s=self.clock.left_s)
        coverage = runner.trace()
        everything = self.paths or (not coverage and len(self.allowed) <= _FEW_FILES)
        allowed = frozenset(self.allowed)
        found = localise(
            baseline,
            coverage,
            self.allowed if everything else (),
            lambda path: path not in allowed,
            workspace.read,
            self.request.diagnostics,
            self.request.only,
        )
        usable = {path for path in {at.path for at in found} if workspace.intact(path)}
        locations = [at for at in found if at.path in usable]
        if not locations:
            raise NothingSuspicious(self.request.paths)
        first = locations[0]
        message = f"{first.path}:{first.line} is the first of {len(locations)} suspicious lines"
        self.tell("localise", message, locations=len(locations))
        return locations

    def _search(self, pool: Pool, feed: Feed) -> list[_Passing]:
        """Tries candidates until one passes, and then for a moment those that could be better."""
        self.clock.relax()
        found: list[_Passing] = []
        for validation in pool.run(feed.candidates(self.clock, partial(_verdict, found))):
            self.tried += 1
            if validation.outcome.status == "passed":
                found.append(_Passing(validation.candidate, self.tried))
                self.clock.hurry(_GRACE_S)
            text = validation.candidate.text.strip()
            numbers = {"tried": self.tried, "passing": len(found), "left_s": self.clock.left_s}
            self.tell("found" if found else "search", text, **numbers)
        self.passing += found
        return found

    def _confirmed(self, workspace: Workspace, changed: Sequence[FileChange]) -> bool:
        """Whether the whole check passes from a cold start in a fresh, patched copy."""
        self.tell("confirm", "running the whole check in a fresh copy", left_s=self.clock.left_s)
        tree = workspace.fresh()
        write_changes(tree, changed)
        with self._runner(workspace, tree) as runner:
            return runner.baseline().status == "passed"

    def _apply(
        self, workspace: Workspace, changed: Sequence[FileChange], about: dict[str, Any]
    ) -> FixResult:
        """Writes the patch into the working tree, unless this is a dry run.

        Raises `TreeChanged` where a Python file is not what it was in the snapshot.
        """
        self._require_going()
        dry_run = self.request.dry_run or bool(self.request.overlay)
        if not dry_run:
            self.tell("apply", f"writing {changed[0].path}")
            if different := workspace.changed():
                raise TreeChanged(f"{different[0]} changed meanwhile: the patch was not applied")
            write_changes(self.repository.root, changed)
        return self._result("fixed", 0, applied=not dry_run, **about)

    def _about(
        self,
        best: _Passing,
        changed: tuple[FileChange, ...],
        baseline: Outcome,
        locations: Sequence[Location],
    ) -> dict[str, Any]:
        """The fields of a result that are about its patch."""
        at = best.candidate
        return {
            "changes": changed,
            "path": at.edit.path,
            "line": at.line,
            "rank": best.rank,
            "explanation": explain(at, baseline, locations, self.tried, len(self.passing)),
        }

    def _runner(self, workspace: Workspace, tree: Path) -> Runner:
        scratch = workspace.scratch / tree.parent.name
        scratch.mkdir(exist_ok=True)
        self._require_going()
        runner = Runner(
            self.check,
            tree,
            timeout_s=self.request.check_timeout_s,
            tmp=scratch,
            original_root=self.repository.root,
        )
        self.runners.append(runner)
        return runner

    def _result(self, status: FixStatus, exit_code: int, **more: Any) -> FixResult:
        return FixResult(
            status,
            exit_code,
            round(self.clock.seconds, 3),
            self.tried,
            passing=len(self.passing),
            notes=(*self.notes, *(self.source.notes if self.source else ())),
            engine=self.engine.use if self.engine else EngineUse(detail="no engine"),
            **more,
        )

    def _failed(self, exc: PatcherError) -> FixResult:
        return self._result(_ENDINGS[type(exc)], exc.exit_code, error=str(exc))


def _stopped() -> Cancelled:
    return Cancelled("stopped: nothing was changed")


def _verdict(found: Sequence[_Passing], candidate: Candidate) -> Verdict:
    """Beside a passing candidate only a more promising one is worth trying."""
    best = max((passing.candidate.priority for passing in found), default=-math.inf)
    if candidate.priority >= best:
        return "try"
    return "stop" if candidate.priority < best - _MARGIN else "put off"


def _ranked(passing: Sequence[_Passing]) -> list[_Passing]:
    """Most probable first; of equally probable ones the smallest edit."""
    return sorted(passing, key=lambda p: (-p.candidate.priority, _size(p.candidate.edit)))


def _size(edit: Edit) -> int:
    return len(edit.new) + edit.end - edit.start


def _jobs(wanted: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return wanted or min(_MAX_JOBS, cores or 1)
