"""How a run ends: its result from what was found out until then, and which errors are results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clover_patcher.edits import FileChange, changes
from clover_patcher.errors import (
    BaselineError,
    BudgetExceeded,
    Cancelled,
    PatcherError,
    TreeChanged,
)
from clover_patcher.locate.evidence import Evidence, NothingSuspicious
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.propose.proposer import Proposer
from clover_patcher.propose.rewrite.rewriter import Rewriter
from clover_patcher.report.explain import explain
from clover_patcher.report.runlog import RunLog
from clover_patcher.repository.treecopy import is_other_source
from clover_patcher.request import FixResult, FixStatus
from clover_patcher.task.task import Task
from clover_patcher.types import Candidate, EngineUse, Outcome
from clover_patcher.validate.choice import Passing, best_first
from clover_patcher.validate.differential import Differential
from clover_patcher.validate.regressions import Regressions
from clover_patcher.validate.search import Search

ENDINGS: dict[type[PatcherError], FixStatus] = {
    NothingSuspicious: "none_found",
    BaselineError: "not_reproducible",
    TreeChanged: "tree_changed",
    BudgetExceeded: "budget",
    Cancelled: "cancelled",
}
"""Errors that are results of a run; all others are the caller's."""


_ALTERNATIVES = 5
"""So many other passing patches are shown."""


class Report:
    """What a run has to tell so far; parts that it has not come to are None or empty."""

    def __init__(self, task: Task, engine: MeteredEngine | None) -> None:
        self.notes: list[str] = []
        self.proposers: Sequence[Proposer] = ()
        self.log: RunLog | None = None
        self.search: Search | None = None
        self.regressions: Regressions | None = None
        self.differential: Differential | None = None
        self.evidence: Evidence | None = None
        self.baseline: Outcome | None = None
        self._task, self._engine = task, engine

    @property
    def own_files(self) -> frozenset[str]:
        """Files that this run itself writes, relative to the repository's top."""
        path = self.log.path if self.log else None
        root = self._task.repository.root
        return frozenset() if path is None else frozenset({os.path.relpath(path, root)})

    @property
    def why_none(self) -> str:
        """Why no candidate was taken, in one line."""
        broken = self.regressions.broken if self.regressions else []
        if not broken and self._needs_a_model:
            return (
                "templates repair Python only: a model that writes code can try other languages "
                "(clover-code model get coder-1.5b, then model use coder-1.5b; or a server)"
            )
        if not broken:
            return "no candidate makes the check pass"
        tests = f"{broken[0][0]}" + (f" and {len(broken[0]) - 1} more" if broken[0][1:] else "")
        count = "a candidate" if len(broken) == 1 else f"{len(broken)} candidates"
        return (
            f"{count} made the check pass, and broke other tests ({tests}): refused; "
            "--check-only looks at the check alone"
        )

    @property
    def _needs_a_model(self) -> bool:
        """Whether nobody could propose anything for the suspected files."""
        suspected = self.evidence.suspected if self.evidence else frozenset()
        if not suspected or not all(map(is_other_source, suspected)):
            return False
        return not any(
            isinstance(proposer, Rewriter) and proposer.answered for proposer in self.proposers
        )

    def about(
        self, best: Passing, changed: tuple[FileChange, ...], evidence: Evidence
    ) -> dict[str, Any]:
        """The fields of a result that are about its patch."""
        candidate, search = best.candidate, self.search
        assert search is not None and self.regressions is not None
        why = explain(
            candidate, evidence.baseline, evidence.locations, search.tried, len(search.passing)
        )
        around = self.regressions.summary
        if self._task.request.thorough:
            around += "; the search went on after the first patch that passed, as asked"
        if self.differential and self.differential.summary:
            around += f"; {self.differential.summary}"
        return {
            "changes": changed,
            "path": candidate.path,
            "line": candidate.line,
            "rank": best.rank,
            "origin": candidate.origin,
            "explanation": replace(why, validation=f"{why.validation}; {around}"),
            "alternatives": tuple(
                changes_of(other.candidate, evidence)
                for other in best_first(search.passing)
                if other.candidate is not candidate
            )[:_ALTERNATIVES],
        }

    def result(self, status: FixStatus, exit_code: int, **more: Any) -> FixResult:
        """The run's result as of now; `more` are fields about the patch."""
        task, search = self._task, self.search
        return FixResult(
            status,
            exit_code,
            round(task.clock.seconds, 3),
            search.tried if search else 0,
            passing=len(search.passing) if search else 0,
            check=task.check.display,
            log=self.log.path if self.log else None,
            root=task.repository.root,
            notes=self._all_notes(),
            failures=self.baseline.failures if self.baseline else (),
            engine=self._engine.use if self._engine else EngineUse(detail="no engine"),
            frozen=self._frozen(),
            **more,
        )

    def failed(self, exc: PatcherError, **more: Any) -> FixResult:
        """The result that an error of `ENDINGS` stands for."""
        return self.result(ENDINGS[type(exc)], exc.exit_code, error=str(exc), **more)

    def _frozen(self) -> tuple[tuple[str, str], ...]:
        """Files that took part in the failure and were left alone, with the reason."""
        if self.evidence is None:
            return ()
        frozen, involved = self.evidence.permission.frozen, self.evidence.involved
        return tuple((path, frozen[path]) for path in sorted(frozen.keys() & involved))

    def _all_notes(self) -> tuple[str, ...]:
        parts = [self.notes, *(proposer.notes for proposer in self.proposers)]
        if self.regressions:
            parts.append(self.regressions.notes)
        if self.log:
            parts.append(self.log.notes)
        return tuple(note for part in parts for note in part)


def changes_of(candidate: Candidate, evidence: Evidence) -> tuple[FileChange, ...]:
    """What a candidate makes of the files that it edits."""
    before = {path: evidence.read(path) for path in candidate.paths}
    return tuple(changes(before, candidate.edits))
