"""The check of a requirement, run in copies of the tree with the agent's changes in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from clover_patcher.check.editing import drop_bytecode
from clover_patcher.edits import FileChange, write_changes
from clover_patcher.repository.workspace import Workspace
from clover_patcher.task.task import Task
from clover_patcher.types import Outcome
from clover_patcher.validate.lanes import Lanes

_FAILURES, _MESSAGE = 3, 600


class Checking:
    """Runs the check; every run begins cold."""

    def __init__(self, task: Task, workspace: Workspace, stack: ExitStack) -> None:
        """`stack` closes what is running."""
        self._task, self._workspace = task, workspace
        self.lanes = Lanes(task, workspace, stack)
        self._written: dict[str, FileChange] = {}

    @property
    def command(self) -> str:
        return self._task.check.display

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the command that may name files which decide."""
        return self._task.check_words

    @property
    def cwd(self) -> str:
        return self._task.cwd

    def run(self, changes: Sequence[FileChange]) -> Outcome:
        """The whole check in the first copy, which then has the changes."""
        tree = self._workspace.tree(0)
        self._write(tree, changes)
        return self.lanes.look(tree)

    def confirm(self, changes: Sequence[FileChange]) -> Outcome:
        """The whole check in a fresh copy of the tree as it is now, with the changes.

        Raises `TreeChanged` where a changed file is not what it was.
        """
        tree = self._workspace.fresh()
        write_changes(tree, changes)
        return self.lanes.look(tree)

    def _write(self, tree: Path, changes: Sequence[FileChange]) -> None:
        """Makes the copy hold these changes and no others."""
        wanted = {change.path: change for change in changes}
        for path, old in self._written.items():
            if path not in wanted:
                if old.created:
                    (tree / path).unlink(missing_ok=True)
                else:
                    (tree / path).write_bytes(old.before)
        for path, change in wanted.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(change.after)
        drop_bytecode(tree / path for path in {*wanted, *self._written})
        self._written = wanted


def said_by(outcome: Outcome) -> str:
    """What a run of the check says, failures first."""
    parts = [
        f"{failure.nodeid or 'it'} fails with {failure.kind}: {failure.message[:_MESSAGE]}".rstrip(
            ": "
        )
        for failure in outcome.failures[:_FAILURES]
    ]
    told = any(failure.nodeid and failure.message for failure in outcome.failures)
    if not told and outcome.output.strip():
        parts.append(outcome.output.strip())
    return "\n".join(parts) if outcome.status != "passed" else outcome.output.strip()
