"""The journey from a failing check to a validated patch in the working tree.

Snapshot → baseline, twice the same failure → localise → candidates, tried in copies of the tree
→ the best of those that pass, confirmed by a cold run of the whole check in a fresh copy of the
tree as it is then → compare-and-swap of the patched files in the working tree. Nothing is ever
run in the user's tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from clover_engine.api import CancelToken, Engine
from clover_engine.errors import EngineError
from clover_patcher.check.baseline import reproduce
from clover_patcher.check.command import Check
from clover_patcher.check.runners import AnyRunner, cautions, start_runner
from clover_patcher.deliver.commit import require_committable
from clover_patcher.deliver.deliver import deliver
from clover_patcher.deliver.journal import Journal
from clover_patcher.deliver.message import Story
from clover_patcher.deliver.recovery import settle
from clover_patcher.edits import FileChange, changes
from clover_patcher.errors import (
    BaselineError,
    BudgetExceeded,
    Cancelled,
    PatcherError,
    TreeChanged,
    no_room,
)
from clover_patcher.locate.implied import implied_check
from clover_patcher.locate.suspects import NothingSuspicious, suspects
from clover_patcher.locate.tracebacks import located, read_traceback
from clover_patcher.progress import Clock, Progress, Quiet
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.propose.source import CandidateSource
from clover_patcher.report.explain import describe_failures, explain
from clover_patcher.report.runlog import RunLog, run_key
from clover_patcher.repository.git import Repository
from clover_patcher.repository.scope import (
    matching,
    named_files,
    resolve_paths,
    select_files,
    writable,
)
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest, FixResult, FixStatus
from clover_patcher.stopping import LinkedToken, stopped_by
from clover_patcher.types import EngineUse, Location, Outcome
from clover_patcher.validate.choice import Passing, ranked, verdict
from clover_patcher.validate.confirm import Confirmation
from clover_patcher.validate.trials import Feed, Pool

__all__ = ["FixRequest", "FixResult", "FixStatus", "fix"]

_GRACE_S = 3.0
"""How long the search goes on after the first passing candidate, to find a better one."""
_CONFIRM_S = 5.0
"""So much of the budget is kept for the confirming run, where the baseline's time is no guide."""
_MAX_JOBS = 2


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


_ENDINGS: dict[type[PatcherError], FixStatus] = {
    NothingSuspicious: "none_found",
    BaselineError: "not_reproducible",
    TreeChanged: "tree_changed",
    BudgetExceeded: "budget",
    Cancelled: "cancelled",
}
"""Errors that are results of a run; all others are the caller's."""


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
        self.runners: list[AnyRunner] = []
        self.engine = MeteredEngine(engine, self.cancel) if engine else None
        self.tell = progress.event
        self.tried = 0
        self.passing: list[Passing] = []
        self.allowed: list[str] = []
        self.unfrozen: frozenset[str] = frozenset()
        self.words: tuple[str, ...] = ()
        self.notes: list[str] = []
        self.source: CandidateSource | None = None
        self.log: RunLog | None = None
        self.repository = Repository.open(request.root)
        self.paths = resolve_paths(self.repository.root, request.root, request.paths)
        self.cwd = resolve_paths(self.repository.root, request.root, ["."])[0]
        self.traces = read_traceback(request.traceback) if request.traceback else []
        named = (*request.only, *request.diagnostics)
        check = request.check or implied_check(named, request.traceback, self.cwd)
        self.check = Check.parse(check, request.root)

    def run(self) -> FixResult:
        try:
            result = self._run()
        except OSError as exc:
            raise no_room(exc) or exc from exc
        if self.log:
            self.log.end(result)
        return result

    def _run(self) -> FixResult:
        self.notes += settle(self.repository)
        if self._writes:
            Journal(self.repository.common_dir).require_writable()
        if self.request.commit:
            self.notes += require_committable(self.repository)
        if self.engine:
            self.engine.warm_up()
        self.tell("snapshot", "copying the working tree")
        trees, overlay = jobs_for(self.request), self.request.overlay
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
        self.words = () if self.check.kind == "lint" else self.check.argv
        python = workspace.python_files
        self.unfrozen = matching(python, self.request.allow)
        self.allowed = select_files(python, self.paths, self.words, self.cwd, self.unfrozen)
        with ExitStack() as stack:
            jobs = range(jobs_for(self.request))
            starts = [partial(self._start, workspace, number, stack) for number in jobs]
            baseline, runners = self._baseline(starts)
            self._require_engine(wait=False)
            self.log = self._open_log(workspace, baseline)
            locations = self._localise(workspace, baseline, runners[0])
            files = {path: workspace.read(path) for path in {at.path for at in locations}}
            self._require_engine()
            self.source = CandidateSource(
                files, locations, self.engine, self.cancel, unread=self.request.unread
            )
            own = [c for c in runners[0].proposals() if c.edit.path in files]
            feed = Feed(chain([own], self.source.batches(self.clock.end)))
            stack.callback(feed.stop)
            pool = stack.enter_context(Pool(runners))
            while not (feed.exhausted or self.clock.expired):
                found = ranked(self._search(pool, feed, self.log))
                self._require_going()
                for best in found:
                    changed = tuple(changes(files, [best.candidate.edit]))
                    about = self._about(best, changed, baseline, locations)
                    try:
                        if self._confirmed(workspace, changed, runners[0]):
                            workspace.retire()
                            return self._apply(changed, about)
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

    def _baseline(
        self, starts: Sequence[Callable[[], AnyRunner]]
    ) -> tuple[Outcome, list[AnyRunner]]:
        """The failure to repair, and the runners on which it shows reliably."""
        self.tell("baseline", f"running {self.check.display}", left_s=self.clock.left_s)
        baseline, runners = reproduce(self.check, starts)
        self.notes += cautions(runners[0])
        hung = any(failure.kind == "timeout" for failure in baseline.failures)
        self.clock.reserve(min(self.clock.seconds, _CONFIRM_S) if hung else self.clock.seconds)
        if self.clock.expired:
            raise BudgetExceeded(f"the check alone takes the {self.request.budget_s:g} s budget")
        self.tell("baseline", describe_failures(baseline), failures=len(baseline.failures))
        return baseline, runners

    def _open_log(self, workspace: Workspace, baseline: Outcome) -> RunLog:
        request, root = self.request, self.repository.root
        words = (*self.check.argv, f"{request.check_timeout_s}")
        key = run_key(words, root, workspace.files, workspace.stamps, request.log)
        place = None if request.overlay else Journal(self.repository.common_dir).folder / "runs"
        log = RunLog.open(request.log, place, key, resume=request.resume)
        log.start(root, self.check.display, baseline)
        return log

    def _localise(
        self, workspace: Workspace, baseline: Outcome, runner: AnyRunner
    ) -> list[Location]:
        """Suspicious lines of files that may be patched, best first.

        Raises `NothingSuspicious` where nothing points anywhere.
        """
        self.tell("localise", "tracing the failing tests", left_s=self.clock.left_s)
        pasted = located(self.traces, workspace.python_files, workspace.read)
        if self.traces and not pasted:
            self.notes.append("no frame of the traceback is in a file of this repository")
        locations = suspects(
            workspace,
            replace(baseline, failures=(*pasted, *baseline.failures)),
            runner,
            self.allowed,
            self.paths,
            self.request.diagnostics,
            self.request.only,
            self.unfrozen,
            named_files(self.words, self.cwd),
        )
        if self._writes:
            locations = writable(self.repository.root, locations)
        first = locations[0]
        message = f"{first.path}:{first.line} is the first of {len(locations)} suspicious lines"
        self.tell("localise", message, locations=len(locations))
        return locations

    def _search(self, pool: Pool, feed: Feed, log: RunLog) -> list[Passing]:
        """Tries candidates until one passes, and then for a moment those that could be better."""
        self.clock.relax()
        found: list[Passing] = []
        candidates = feed.candidates(self.clock, partial(verdict, found))
        for validation in pool.run(filter(log.is_new, candidates)):
            self.tried += 1
            log.candidate(validation, self.tried)
            if validation.outcome.status == "passed":
                found.append(Passing(validation.candidate, self.tried))
                self.clock.hurry(_GRACE_S)
            shown = ranked(found)[0].candidate if found else validation.candidate
            text = shown.text.strip()
            numbers = {"tried": self.tried, "passing": len(found), "left_s": self.clock.left_s}
            self.tell("found" if found else "search", text, **numbers)
        self.passing += found
        return found

    def _confirmed(
        self, workspace: Workspace, changed: Sequence[FileChange], first: AnyRunner
    ) -> bool:
        """Whether the whole check passes in a fresh copy, with what the user saves meanwhile."""
        self.tell("confirm", "running the whole check in a fresh copy", left_s=self.clock.left_s)
        start = partial(self._runner, workspace)
        confirmation = Confirmation(workspace, start, first, self._own_files())
        if not confirmation.passes(changed):
            return False
        if self._writes and (file := confirmation.require_current(changed)):
            self.notes.append(f"{file} changed meanwhile: the check passes with that too")
        return True

    def _own_files(self) -> frozenset[str]:
        """Files in the tree that this run itself writes."""
        log = self.log.path if self.log else None
        return (
            frozenset() if log is None else frozenset({os.path.relpath(log, self.repository.root)})
        )

    @property
    def _writes(self) -> bool:
        return not (self.request.dry_run or self.request.overlay)

    def _apply(self, changed: Sequence[FileChange], about: dict[str, Any]) -> FixResult:
        """Writes the patch into the working tree, unless this is a dry run.

        Raises `TreeChanged` where a file to be patched is not what it was in the snapshot.
        """
        self._require_going()
        request, why = self.request, about["explanation"]
        if not self._writes:
            return self._result("fixed", 0, **about)
        self.tell("apply", f"writing {changed[0].path}")
        model = self.engine.use.detail if self.engine else ""
        story = Story.of(why, self.check.display, f"{about['path']}:{about['line']}", model)
        done = deliver(self.repository, changed, story, commit=request.commit)
        self.notes += done.notes
        more = {"applied": True, "fix_id": done.id, "commit": done.commit}
        return self._result("fixed", done.exit_code, **about, **more)

    def _about(
        self,
        best: Passing,
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

    def _start(self, workspace: Workspace, number: int, stack: ExitStack) -> AnyRunner:
        return self._runner(workspace, workspace.tree(number), stack)

    def _runner(self, workspace: Workspace, tree: Path, stack: ExitStack) -> AnyRunner:
        self._require_going()
        runner = start_runner(
            self.check,
            tree,
            timeout_s=self.request.check_timeout_s,
            tmp=workspace.scratch / tree.parent.name,
            original_root=self.repository.root,
            cwd=self.cwd,
            only=self.request.only,
        )
        stack.callback(runner.close)
        self.runners.append(runner)
        return runner

    def _result(self, status: FixStatus, exit_code: int, **more: Any) -> FixResult:
        return FixResult(
            status,
            exit_code,
            round(self.clock.seconds, 3),
            self.tried,
            passing=len(self.passing),
            check=self.check.display,
            log=self.log.path if self.log else None,
            root=self.repository.root,
            notes=tuple(note for part in self._noted() for note in part),
            engine=self.engine.use if self.engine else EngineUse(detail="no engine"),
            **more,
        )

    def _noted(self) -> Iterator[Sequence[str]]:
        yield self.notes
        if self.source:
            yield self.source.notes
        if self.log:
            yield self.log.notes

    def _failed(self, exc: PatcherError) -> FixResult:
        return self._result(_ENDINGS[type(exc)], exc.exit_code, error=str(exc))


def _stopped() -> Cancelled:
    return Cancelled("stopped: nothing was changed")


def jobs_for(request: FixRequest) -> int:
    """How many copies of the tree are tried in parallel."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return request.jobs or min(_MAX_JOBS, cores or 1)
