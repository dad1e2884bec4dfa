"""The last gates before a patch is written: tests around the check, then the check from cold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clover_patcher.check.runners import Runner
from clover_patcher.edits import FileChange
from clover_patcher.repository.workspace import Workspace
from clover_patcher.task.task import Task
from clover_patcher.types import Candidate
from clover_patcher.validate.confirm import Confirmation
from clover_patcher.validate.lanes import Lanes
from clover_patcher.validate.regressions import Regressions


@dataclass(slots=True)
class Acceptance:
    """Decides whether a candidate that passed the failing tests may be written."""

    task: Task
    workspace: Workspace
    lanes: Lanes
    first: Runner
    """The runner of the baseline."""
    regressions: Regressions
    own: frozenset[str]
    """Files in the tree that this program itself writes."""
    note: str = ""
    """What changed meanwhile."""

    def accepts(self, candidate: Candidate, changed: Sequence[FileChange]) -> bool:
        """Whether it breaks no test that passed, and the whole check passes from cold.

        Raises `TreeChanged` as `Confirmation` does.
        """
        if self.regressions.broken_by(candidate.edits):
            return False
        message = "running the whole check in a fresh copy"
        self.task.progress.event("confirm", message, left_s=self.task.clock.left_s)
        confirmation = Confirmation(self.workspace, self.lanes.runner, self.first, self.own)
        if not confirmation.passes(changed):
            return False
        if self.task.writes and (file := confirmation.require_current(changed)):
            self.note = f"{file} changed meanwhile: the check passes with that too"
        return True
