"""What an agent left, written into the user's tree as a fix is: recorded, undone, committed."""

from __future__ import annotations

from clover_patcher.agent.task import Outcome
from clover_patcher.deliver.deliver import Delivered, deliver
from clover_patcher.deliver.message import RequestSummary
from clover_patcher.repository.git import Repository


def deliver_outcome(outcome: Outcome, *, commit: bool = False) -> Delivered:
    """Applies the changes, all or nothing. Raises `TreeChanged` where a file is not what it was."""
    passes = outcome.check and outcome.runs and outcome.runs[-1].passed
    summary = RequestSummary(
        outcome.requirement,
        "The check passes with it" if passes else "",
        outcome.check if passes else "",
        f"the model {outcome.model}",
    )
    return deliver(Repository.open(outcome.root), outcome.changes, summary, commit=commit)
