"""Runs a check many times in a worktree, each time in a process forked from a prepared one.

The first run of the whole check (`baseline`) says which tests fail and what they import. After
that a candidate costs a fork: its edits are written, the failing tests run in a process that has
pytest, its plugins, the installed packages and (where no edited file is involved) the conftest
files loaded already, and the original bytes come back.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from clover_patcher.check.command import Check
from clover_patcher.check.editing import drop_bytecode
from clover_patcher.check.forkserver import Job, Reply, ServerLost
from clover_patcher.check.prepared import Prepared, View
from clover_patcher.check.programs import read_programs, started_script
from clover_patcher.check.runs import CoverageLog, Tally, tail
from clover_patcher.types import Candidate, Diagnostic, Edit, Outcome, Program, TestCoverage

_BASELINE_S = 10.0
_SILENT_CHECK_S = 120.0
"""A check that does not say which test it is at may print for this long."""
_SHORTEST_S, _LONGEST_S = 1.5, 10.0
_SHORTEST_CPU_S = 0.5
_MOST_HANGS, _MOST_CUTS = 3, 20
"""So many hung (hung or crashed) tests are stepped over in one run of the whole check."""
_STAGES = ("collection", "conftest")
_TRACED_S = 3.0
"""Tests that took this long in all are traced; beyond that, only some of them."""


class ProgramRunner(Prepared):
    """A check, a worktree to run it in, and the processes that do it. A context manager.

    `timeout_s` replaces the limits that are otherwise derived from the baseline. `tmp` is an
    existing folder. `original_root` is the repository that the worktree was made from: what an
    editable install would import from there is imported from the worktree. `cwd` is the folder
    where the check runs, relative to the worktree, with posix separators ("" is the top); it is
    made where it does not exist.

    Not for several threads at once. Raises `UsageError` where the check's interpreter cannot
    import the test framework.
    """

    def __init__(
        self,
        check: Check,
        worktree: Path,
        *,
        timeout_s: float | None = None,
        tmp: Path,
        original_root: Path | None = None,
        cwd: str = "",
        view: View | None = None,
    ) -> None:
        self._born = time.time()
        self._failing: tuple[str, ...] = ()
        self._expected: frozenset[str] = frozenset()
        self._durations: dict[str, float] = {}
        self._modules: list[str] = []
        self._first: Outcome | None = None
        self._alone = True
        self._seconds = 0.0
        self._cpu = 0.0
        self._hung: tuple[str, ...] = ()
        self._reached: list[str] | None = None
        self._stems: dict[str, frozenset[str]] = {}
        super().__init__(
            check,
            worktree,
            tmp=Path(tempfile.mkdtemp(prefix="", dir=tmp)),
            timeout_s=timeout_s,
            original_root=original_root,
            cwd=cwd,
            view=view,
        )

    # --- what others see ----------------------------------------------------------------------

    @property
    def failing(self) -> tuple[str, ...]:
        """The baseline's failing tests, in the order in which candidates must pass them."""
        return self._failing

    @property
    def expected(self) -> frozenset[str]:
        """The tests that passed in the first run."""
        return self._expected

    @property
    def limit_s(self) -> float:
        """Wall time that a candidate's failing tests may take."""
        return self.timeout_s or min(max(3 * self._seconds, _SHORTEST_S), _LONGEST_S)

    @property
    def cpu_limit_s(self) -> float:
        """Processor time that a candidate's failing tests may take."""
        if self.timeout_s:
            return self.timeout_s
        return min(max(0.25 + 3 * self._cpu, _SHORTEST_CPU_S), self.limit_s)

    def baseline(self) -> Outcome:
        """Runs the whole check on the worktree as it is; call it twice to see flaky checks."""
        if self._first is None:
            outcome = self.look()
            self.prepare()
            return outcome
        tally = self._run_whole(first=False)
        outcome = tally.outcome()
        if outcome.signature != self._first.signature and self._modules:
            self._modules = []  # perhaps only because of what the server imported beforehand
            self._restart()
            tally = self._run_whole(first=False)
            outcome = tally.outcome()
        self._seconds = min(self._seconds, tally.seconds - tally.hung_seconds)
        return outcome

    def look(self) -> Outcome:
        """The first run of the whole check alone; `prepare` must follow before candidates."""
        tally = self._run_whole(first=True)
        outcome = tally.outcome()
        self._learn(tally, outcome)
        self._first = outcome
        return outcome

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome:
        """Runs the check with the edits in place: first the failing tests, then everything.

        `only_failing=False` skips the first part. The original bytes are restored in any case.
        Raises as `Editor.edited` does.
        """
        cold = bool(self._server.loaded & {edit.path for edit in edits})
        try:
            with self._editor.edited(edits) as paths:
                if cold:
                    self._restart()
                if only_failing and self._failing:
                    outcome = self._run_failing(paths)
                    if outcome.status != "passed":
                        return outcome
                return self._run_candidate_whole()
        finally:
            if cold:
                self._restart()

    def trace(self) -> list[TestCoverage]:
        """Lines that each test executes; for a hanging test, until its time limit.

        Empty for a check that is not Python. Import-time lines are named "import:FILE".
        """
        if self.check.kind == "command":
            return []
        log, tally = CoverageLog(), self._tally()
        longest = max(self._durations.values(), default=0.0)
        job = Job(
            select=self._reached or self._traced_tests(),
            idle=min(max(1.0, 20 * longest), self.timeout_s or _BASELINE_S),
            startup=_BASELINE_S,
            graceful=True,
        )
        tally.finished.update(self._hung[1:])  # one of them is enough
        record = self._tmp / "trace"
        for _ in range(_MOST_CUTS):
            job.trace, job.deselect = str(record), sorted(tally.finished)
            reply = self._ask(job)
            log.add(reply, record)
            record.unlink(missing_ok=True)
            if not tally.add(reply, ""):
                break
        return log.coverage(tally)

    def passing(self, edits: Sequence[Edit] = ()) -> frozenset[str]:
        """Names of all tests that pass with the edits, whatever else fails; restores the bytes.

        Tests that hang are stepped over as in `baseline`.
        """
        self._restart() if self._server.loaded & {edit.path for edit in edits} else None
        with self._editor.edited(edits):
            return frozenset(self._run_whole(first=True).passed)

    def programs(self) -> list[Program]:
        """The Python programs that the check starts; of a command by one more run of it."""
        if self.check.kind != "command":
            return started_script(self.check, self._options.cwd, self._first or Outcome("error", 0))
        log = self._tmp / "programs"
        self._ask(Job(programs=str(log), wall=self._whole_limit(), printing=True))
        return read_programs(log)

    @property
    def targets(self) -> tuple[Diagnostic, ...]:
        """No diagnostics: see `LintRunner`."""
        return ()

    def proposals(self) -> list[Candidate]:
        """No repairs: tests do not say how they want to be satisfied."""
        return []

    def confirm(self, first: ProgramRunner) -> Outcome:
        """The whole check on the worktree as it is, from a cold start."""
        return self.baseline()

    def adopt(self, other: ProgramRunner) -> None:
        """Takes over what another runner of the same check learned from its baseline."""
        self._failing, self._expected = other._failing, other._expected
        self._durations, self._modules = other._durations, other._modules
        self._first, self._seconds = other._first, other._seconds
        self._hung, self._reached = other._hung, other._reached
        self.imported_outside = other.imported_outside
        self.prepare()

    # --- the whole check ----------------------------------------------------------------------

    def _run_whole(self, *, first: bool) -> Tally:
        """Runs everything, stepping over tests that hang or crash."""
        tally = self._tally()
        limit = self.timeout_s or (_BASELINE_S if first else self.limit_s)
        job = Job(modules=True, texts=3, write_bytecode=first, idle=limit, graceful=True)
        if self.check.kind == "pytest":
            job.startup = max(limit, _BASELINE_S)
        if self._first is not None and self._hung:  # see only whether one of them hangs again
            job.select = self._reached
            tally.finished.update(self._hung[1:])
            tally.failures = {f.nodeid: f for f in self._first.failures if f.nodeid in self._hung}
            del tally.failures[self._hung[0]]
        if self.check.kind != "pytest":
            job.printing, job.wall = True, _SILENT_CHECK_S
        for _ in range(_MOST_CUTS):
            job.deselect = sorted(tally.finished)
            stuck = tally.add(self._ask(job), tail(self._output))
            if not stuck or tally.hangs >= _MOST_HANGS:
                break
            if tally.hangs:
                longest = max(tally.passed.values(), default=0.0)
                job.idle = min(limit, max(1.0, 5 * longest))
        return tally

    def _learn(self, tally: Tally, outcome: Outcome) -> None:
        failures = sorted(outcome.failures, key=lambda f: f.kind == "timeout")  # slow ones last
        self._failing = tuple(f.nodeid for f in failures if f.nodeid)
        if any(not f.nodeid for f in failures):
            self._failing = ()  # something besides single tests: only the whole check tells
        self._hung = tuple(f.nodeid for f in failures if f.nodeid and f.kind == "timeout")
        self._reached = sorted(tally.finished | set(self._failing)) if self._hung else None
        self._expected = frozenset(tally.passed)
        self._durations = dict(tally.passed)
        self._modules = tally.modules
        self.imported_outside = tuple(sorted(tally.outside))
        self.installed_twins = tuple(tally.installed)
        self._seconds = tally.seconds - tally.hung_seconds
        self._drop_young_bytecode(tally.loaded)

    def _run_candidate_whole(self) -> Outcome:
        job = Job(maxfail=1, texts=1, wall=self._whole_limit())
        tally = self._tally()
        tally.add(self._ask(job), tail(self._output))
        return tally.outcome(self._expected | set(self._failing))

    def _traced_tests(self) -> list[str] | None:
        """All tests (None), or the failing ones and some that pass where all take too long."""
        if sum(self._durations.values()) <= _TRACED_S or not self._failing:
            return None
        files = {nodeid.split("::")[0] for nodeid in self._failing}
        near_first = sorted(
            self._durations.items(), key=lambda d: (d[0].split("::")[0] not in files, d[1])
        )
        chosen, total = list(self._failing), 0.0
        for nodeid, seconds in near_first:
            total += seconds
            if total <= _TRACED_S:
                chosen.append(nodeid)
        return chosen

    def _whole_limit(self) -> float:
        return max(self.limit_s, 3 * self._seconds)

    # --- the failing tests --------------------------------------------------------------------

    def prepare(self) -> None:
        """Gets the server ready for candidates and looks how the failing tests do alone."""
        with suppress(ServerLost):
            self._warm_up()
        if not self._failing or self._first is None:
            return
        tests = [nodeid for nodeid in self._failing if nodeid not in self._hung]
        if not tests:
            return
        job = self._failing_job(tests)
        job.maxfail, job.cpu = 0, None
        job.modules = job.write_bytecode = True
        tally = self._tally()
        tally.add(self._ask(job), "")
        seen = {(f.nodeid, f.kind) for f in tally.failures.values()}
        self._alone = seen == {s for s in self._first.signature if s[0] not in self._hung}
        self._cpu = tally.cpu
        self._drop_young_bytecode(tally.loaded)

    def _warm_up(self) -> None:
        self._stems = {}
        if self._modules:
            self._server.preload(self._modules)
        if self.check.kind == "pytest" and self._failing:
            for stage in _STAGES:
                loaded = self._server.stem(stage)
                if loaded is not None:
                    self._stems[stage] = frozenset(loaded)

    def _failing_job(self, tests: Sequence[str]) -> Job:
        if not self._alone:  # they need the tests around them
            tests = list(dict.fromkeys(t.split("::")[0] for t in tests))
        return Job(
            select=list(tests),
            maxfail=1,
            ordered=True,
            wall=self.limit_s,
            cpu=self.cpu_limit_s,
        )

    def _run_failing(self, paths: frozenset[str]) -> Outcome:
        job = self._failing_job(self._failing)
        job.stage = self._stage(paths)
        tally = self._tally()
        tally.add(self._ask(job), tail(self._output))
        return tally.outcome(self._failing)

    def _stage(self, paths: frozenset[str]) -> str:
        """The latest stage that has none of the edited files loaded."""
        if all(path.endswith(".py") for path in paths):
            for stage in _STAGES:
                if stage in self._stems and not self._stems[stage] & paths:
                    return stage
        return "base"

    # --- files and processes ------------------------------------------------------------------

    @property
    def _output(self) -> Path:
        return self._tmp / "output"

    def _ask(self, job: Job) -> Reply:
        """Runs a job, with a new server or an earlier stage where the present one is lost."""
        job.output = str(self._output)
        self._require_going()
        try:
            reply = self._server.run(job)
        except ServerLost:
            self._restart()
            job.stage = "base"
            try:
                reply = self._server.run(job)
            except ServerLost as exc:
                self._require_going()
                return Reply(code=1, events=[_lost(str(exc))])
        if reply.lost:
            self._stems.pop(job.stage, None)
            job.stage = "base"
            return self._ask(job)
        return reply

    def _tally(self) -> Tally:
        return Tally(silent=self.check.kind == "command")

    def _restart(self) -> None:
        self._require_going()
        self._replace_server()
        with suppress(ServerLost):
            self._warm_up()

    def _drop_young_bytecode(self, loaded: Iterable[str]) -> None:
        """Forgets compiled forms of files that the check itself may have written."""
        for path in loaded:
            source = self.worktree / path
            with suppress(OSError):
                if source.stat().st_mtime >= self._born:
                    drop_bytecode([source])


def _lost(why: str) -> dict[str, object]:
    return {"e": "error", "id": "", "kind": "lost", "message": why, "frames": []}
