"""What killed runs left behind, settled when the next command starts."""

from __future__ import annotations

from pathlib import Path

from .apply import recover
from .errors import PatcherError
from .git import Repository
from .journal import Journal
from .leftovers import unsettled
from .undo import take_off_branch
from .workspace import sweep


def tidy(start: Path) -> list[str]:
    """Settles half-written fixes and undos, and removes worktrees and folders of dead runs.

    Returns what the user should know, a line each. Never raises for what it finds.
    """
    try:
        repository = Repository.open(start)
        said = settle(repository)
        sweep(repository)
    except (PatcherError, OSError):
        return []  # the command itself says what is wrong with the repository
    return said


def settle(repository: Repository) -> list[str]:
    """Finishes or takes back what killed processes were writing; says what it did, a line each."""
    if not unsettled(repository.common_dir):
        return []
    journal = Journal(repository.common_dir)
    return [found.message for found in recover(journal, take_off_branch)]
