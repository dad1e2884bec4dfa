"""How a run ends: its result from what was found out until then, and which errors are results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from clover_patcher.errors import (
    BaselineError,
    BudgetExceeded,
    Cancelled,
    PatcherError,
    TreeChanged,
)
from clover_patcher.locate.evidence import NothingSuspicious
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.propose.proposer import Proposer
from clover_patcher.report.runlog import RunLog
from clover_patcher.request import FixResult, FixStatus
from clover_patcher.task import Task
from clover_patcher.types import EngineUse, Outcome
from clover_patcher.validate.search import Search

ENDINGS: dict[type[PatcherError], FixStatus] = {
    NothingSuspicious: "none_found",
    BaselineError: "not_reproducible",
    TreeChanged: "tree_changed",
    BudgetExceeded: "budget",
    Cancelled: "cancelled",
}
"""Errors that are results of a run; all others are the caller's."""


class Report:
    """What a run has to tell so far; parts that it has not come to are None or empty."""

    def __init__(self, task: Task, engine: MeteredEngine | None) -> None:
        self.notes: list[str] = []
        self.proposers: Sequence[Proposer] = ()
        self.log: RunLog | None = None
        self.search: Search | None = None
        self.baseline: Outcome | None = None
        self._task, self._engine = task, engine

    @property
    def own_files(self) -> frozenset[str]:
        """Files that this run itself writes, relative to the repository's top."""
        path = self.log.path if self.log else None
        root = self._task.repository.root
        return frozenset() if path is None else frozenset({os.path.relpath(path, root)})

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
            **more,
        )

    def failed(self, exc: PatcherError, **more: Any) -> FixResult:
        """The result that an error of `ENDINGS` stands for."""
        return self.result(ENDINGS[type(exc)], exc.exit_code, error=str(exc), **more)

    def _all_notes(self) -> tuple[str, ...]:
        parts = [self.notes, *(proposer.notes for proposer in self.proposers)]
        if self.log:
            parts.append(self.log.notes)
        return tuple(note for part in parts for note in part)
