"""The journey from a failing check to a validated patch in the working tree.

Snapshot → baseline, twice the same failure → evidence: suspicious lines of files that may change
→ candidates of all proposers, tried in copies of the tree → the best of those that pass, confirmed
by a cold run of the whole check in a fresh copy of the tree as it is then → compare-and-swap of the
patched files in the working tree. Nothing is ever run in the user's tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from clover_engine.api import CancelToken, Engine
from clover_engine.errors import EngineError
from clover_patcher.check.runners import Runner, cautions
from clover_patcher.deliver.commit import require_committable
from clover_patcher.deliver.deliver import deliver
from clover_patcher.deliver.journal import Journal
from clover_patcher.deliver.message import FixSummary
from clover_patcher.deliver.recovery import settle
from clover_patcher.edits import FileChange
from clover_patcher.ending import ENDINGS, Report, changes_of
from clover_patcher.errors import BudgetExceeded, TreeChanged, no_room
from clover_patcher.locate.counts import RepositoryCounts
from clover_patcher.locate.evidence import Evidence, gather
from clover_patcher.progress import Progress
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.propose.proposer import Proposer
from clover_patcher.propose.rewrite.rewriter import Rewriter
from clover_patcher.propose.source import Templates
from clover_patcher.propose.tools import ToolSuggestions
from clover_patcher.report.explain import describe_failures
from clover_patcher.report.runlog import RunLog, run_key
from clover_patcher.repository.locks import require_supported
from clover_patcher.repository.permission import Permission
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest, FixResult, FixStatus
from clover_patcher.stopping import LinkedToken, stopped_by
from clover_patcher.task.task import Task, stopped
from clover_patcher.types import Outcome
from clover_patcher.validate.acceptance import Acceptance
from clover_patcher.validate.choice import Passing
from clover_patcher.validate.differential import Differential
from clover_patcher.validate.lanes import Lanes, jobs_for
from clover_patcher.validate.regressions import Regressions
from clover_patcher.validate.search import Search
from clover_patcher.validate.validator import Validator

__all__ = ["FixRequest", "FixResult", "FixStatus", "fix"]

_CONFIRM_S = 5.0
"""So much of the budget is kept for the confirming run, where the baseline's time is no guide."""


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
    require_supported()
    return Repair(Task.of(request, progress, cancel), engine).run()


def proposers_for(
    request: FixRequest, engine: MeteredEngine | None, cancel: CancelToken
) -> list[Proposer]:
    """Who makes candidates, in the order in which they are asked."""
    proposers: list[Proposer] = [ToolSuggestions(), Templates(engine, cancel, request.withheld)]
    if engine is not None:
        proposers.append(Rewriter(engine, cancel, withheld=request.withheld))
    return proposers


class Repair:
    """One run, step by step."""

    def __init__(self, task: Task, engine: Engine | None) -> None:
        self.task = task
        self.cancel = LinkedToken(task.cancel)
        self.engine = MeteredEngine(engine, self.cancel) if engine else None
        self.report = Report(task, self.engine)

    def run(self) -> FixResult:
        try:
            result = self._prepare()
        except OSError as exc:
            raise no_room(exc) or exc from exc
        if self.report.log:
            self.report.log.end(result)
        return result

    def _prepare(self) -> FixResult:
        """Settles what an earlier run left, copies the tree, and turns endings into results."""
        task, request = self.task, self.task.request
        self.report.notes += settle(task.repository)
        if task.writes:
            Journal(task.repository.common_dir).require_writable()
        if request.commit:
            self.report.notes += require_committable(task.repository)
        if self.engine:
            self.engine.warm_up()
        task.progress.event("snapshot", "copying the working tree")
        try:
            with (
                Workspace(
                    task.repository,
                    trees=jobs_for(request),
                    overlay=request.overlay,
                    include=task.include,
                ) as workspace,
                ExitStack() as stack,
            ):
                lanes = Lanes(task, workspace, stack)
                with stopped_by(task.cancel, lanes.running):
                    return self._repair(workspace, lanes, stack)
        except tuple(ENDINGS) as exc:
            return self.report.failed(exc)
        except EngineError:
            if task.cancel.cancelled:
                return self.report.failed(stopped())
            raise
        finally:
            self.cancel.cancel()

    def _repair(self, workspace: Workspace, lanes: Lanes, stack: ExitStack) -> FixResult:
        task, report = self.task, self.report
        permission = Permission.of(
            workspace.python_files,
            task.paths,
            task.check_words,
            task.cwd,
            task.request.allow,
            workspace.other_sources,
        )
        counts = RepositoryCounts(workspace.python_files, workspace.read, task.request.withheld)
        stack.callback(counts.stop)
        counts.start()
        baseline, runners = self._baseline(lanes)
        self._require_engine(wait=False)
        report.log = self._open_log(workspace, baseline)
        report.regressions = regressions = Regressions.around(task, lanes, stack)
        evidence = self._gather(workspace, permission, baseline, runners[0], counts)
        report.evidence = evidence
        self._require_engine()
        report.proposers = proposers_for(task.request, self.engine, self.cancel)
        report.search = search = Search(task, evidence, report.proposers, report.log)
        stack.callback(search.stop)
        first, own = runners[0], report.own_files
        gates = Acceptance(task, workspace, lanes, first, regressions, own)
        report.differential = differential = Differential(
            lanes.tests(task.check, stack), evidence.read
        )
        with Validator(runners) as validator:
            while not (search.exhausted or task.clock.expired):
                passing = search.round(validator)
                task.require_going()
                passing = differential.order(passing, task.clock.left_s, baseline.seconds)
                for best in passing:
                    result = self._deliver(best, evidence, gates, workspace)
                    if result is not None:
                        return result
        if search.exhausted:
            return report.result("none_found", 1, error=report.why_none)
        raise BudgetExceeded(f"the budget of {task.clock.budget_s:g} s is spent")

    def _require_engine(self, *, wait: bool = True) -> None:
        """Raises the engine's error where it cannot be used; without `wait`, if that is known."""
        if self.engine:
            if wait:
                left_s = self.task.clock.left_s
                self.task.progress.event("engine", "waiting for the model", left_s=left_s)
            self.engine.require_ready(wait=wait)

    def _baseline(self, lanes: Lanes) -> tuple[Outcome, list[Runner]]:
        """The failure to repair, and the runners on which it shows reliably."""
        task, clock = self.task, self.task.clock
        task.progress.event("baseline", f"running {task.check.display}", left_s=clock.left_s)
        baseline, runners = lanes.baseline()
        self.report.baseline = baseline
        self.report.notes += [*lanes.notes, *cautions(runners[0])]
        hung = any(failure.kind == "timeout" for failure in baseline.failures)
        clock.reserve(min(clock.seconds, _CONFIRM_S) if hung else clock.seconds)
        if clock.expired:
            raise BudgetExceeded(f"the check alone takes the {clock.budget_s:g} s budget")
        failures = len(baseline.failures)
        task.progress.event("baseline", describe_failures(baseline), failures=failures)
        return baseline, runners

    def _open_log(self, workspace: Workspace, baseline: Outcome) -> RunLog:
        request, check, repository = self.task.request, self.task.check, self.task.repository
        variables = (f"{name}={value}" for name, value in check.env)
        words = (*variables, *check.argv, f"{request.check_timeout_s}")
        key = run_key(words, repository.root, workspace.files, workspace.stamps, request.log)
        place = None if request.overlay else Journal(repository.common_dir).folder / "runs"
        log = RunLog.open(request.log, place, key, resume=request.resume)
        log.start(repository.root, check.display, baseline)
        return log

    def _gather(
        self,
        workspace: Workspace,
        permission: Permission,
        baseline: Outcome,
        runner: Runner,
        counts: RepositoryCounts,
    ) -> Evidence:
        """What is known about the failure; raises `NothingSuspicious` where that is nothing."""
        task = self.task
        left_s = task.clock.left_s
        task.progress.event("localise", "tracing the failing tests", left_s=left_s)
        assert self.report.regressions is not None
        around = self.report.regressions.coverage
        evidence = gather(task, workspace, permission, baseline, runner, counts, around)
        if task.traces and not evidence.pasted:
            self.report.notes.append("no frame of the traceback is in a file of this repository")
        first, count = evidence.locations[0], len(evidence.locations)
        message = f"{first.path}:{first.line} is the first of {count} suspicious lines"
        task.progress.event("localise", message, locations=count)
        return evidence

    def _deliver(
        self, best: Passing, evidence: Evidence, gates: Acceptance, workspace: Workspace
    ) -> FixResult | None:
        """Applies a passing candidate; None where it is refused."""
        candidate, report = best.candidate, self.report
        changed = changes_of(candidate, evidence)
        try:
            accepted = gates.accepts(candidate, changed)
            about = report.about(best, changed, evidence)
            if not accepted:
                return None
            if gates.note:
                report.notes.append(gates.note)
            workspace.retire()
            return self._apply(workspace, changed, about)
        except TreeChanged as exc:
            return report.failed(exc, **report.about(best, changed, evidence))

    def _apply(
        self, workspace: Workspace, changed: Sequence[FileChange], about: dict[str, Any]
    ) -> FixResult:
        """Writes the patch into the working tree, unless this is a dry run.

        Raises `TreeChanged` where a file to be patched is not what it was in the snapshot.
        """
        task, why = self.task, about["explanation"]
        task.require_going()
        if not task.writes:
            return self.report.result("fixed", 0, **about)
        task.progress.event("apply", f"writing {', '.join(one.path for one in changed)}")
        different = set(workspace.changed())
        if mine := [one.path for one in changed if one.path in different]:
            raise TreeChanged(f"{mine[0]} changed meanwhile: the patch was not applied")
        place, origin = f"{about['path']}:{about['line']}", about["origin"]
        summary = FixSummary.of(why, task.check.display, place, origin.words)
        done = deliver(task.repository, changed, summary, commit=task.request.commit)
        self.report.notes += done.notes
        more = {"applied": True, "fix_id": done.id, "commit": done.commit}
        return self.report.result("fixed", done.exit_code, **about, **more)
