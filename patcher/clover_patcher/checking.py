"""One run of a check, as it is, in a copy of the tree: nothing is repaired or changed."""

from __future__ import annotations

from contextlib import ExitStack

from clover_engine.api import CancelToken
from clover_patcher.progress import Progress
from clover_patcher.repository.locks import require_supported
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest
from clover_patcher.stopping import stopped_by
from clover_patcher.task.task import Task
from clover_patcher.types import Outcome
from clover_patcher.validate.lanes import Lanes


def run_check(
    request: FixRequest, progress: Progress | None = None, cancel: CancelToken | None = None
) -> Outcome:
    """How the request's check ends. Raises `UsageError` for one that cannot be tried, and
    `Cancelled`."""
    require_supported()
    task = Task.of(request, progress, cancel)
    task.progress.event("snapshot", "copying the working tree")
    with (
        Workspace(
            task.repository, trees=1, overlay=request.overlay, include=task.include
        ) as workspace,
        ExitStack() as stack,
    ):
        lanes = Lanes(task, workspace, stack)
        task.progress.event("baseline", f"running {task.check.display}")
        with stopped_by(task.cancel, lanes.running):
            outcome = lanes.look(workspace.tree(0))
        task.require_going()
        return outcome
