"""The last run before a patch is written: the whole check, cold, in a fresh copy of the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clover_patcher.check.runners import Runner
from clover_patcher.edits import FileChange, write_changes
from clover_patcher.errors import TreeChanged
from clover_patcher.repository.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Confirms patches in copies that show the user's files as they are then.

    Only the files of a patch must be what they were; whatever else the user has saved since the
    snapshot takes part in the run.
    """

    workspace: Workspace
    start: Callable[[Path, ExitStack], Runner]
    """Starts a runner in a copy; the stack closes it."""
    first: Runner
    """The runner of the baseline."""
    own: frozenset[str]
    """Files in the tree that this program itself writes."""

    def passes(self, changed: Sequence[FileChange]) -> bool:
        """Whether the check passes with the patch.

        Raises `TreeChanged` where a file to be patched is not what it was, and where others have
        changed and the check does not pass.
        """
        different = self.workspace.changed(self.own)
        tree = self.workspace.fresh(self.own)
        write_changes(tree, changed)
        with ExitStack() as stack:
            passes = self.start(tree, stack).confirm(self.first).status == "passed"
        if different and not passes:
            raise TreeChanged(
                f"{different[0]} changed meanwhile, and with that the check does not pass: "
                "the patch was not applied"
            )
        return passes

    def require_current(self, changed: Sequence[FileChange]) -> str | None:
        """After `passes`: one more run where other files have changed since; what changed.

        Raises `TreeChanged` as `passes` does.
        """
        different = self.workspace.changed(self.own)
        if not different:
            return None
        if not self.passes(changed):
            raise TreeChanged("the check did not pass a second time: the patch was not applied")
        return different[0]
