"""What killed runs left behind, settled when the next command starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clover_patcher.deliver.apply import recover
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.deliver.undo import take_off_branch
from clover_patcher.errors import PatcherError
from clover_patcher.repository.git import Repository
from clover_patcher.repository.leftovers import unsettled
from clover_patcher.repository.locks import require_supported
from clover_patcher.repository.owned import sweep


def tidy(start: Path) -> list[str]:
    """Settles half-written fixes and undos, and removes folders of dead runs.

    Returns what the user should know, a line each. Never raises for what it finds.
    """
    try:
        require_supported()
        repository = Repository.open(start)
        said = settle(repository)
        sweep(repository.root)
    except (PatcherError, OSError):
        return []  # the command itself says what is wrong with the repository
    return said


def settle(repository: Repository) -> list[str]:
    """Finishes or takes back what killed processes were writing; says what it did, a line each."""
    if not unsettled(repository.common_dir):
        return []
    journal = Journal(repository.common_dir)
    return [found.message for found in recover(journal, take_off_branch, _is_tree_of(repository))]


def _is_tree_of(repository: Repository) -> Callable[[Entry], bool]:
    """Whether a record is about a working tree of the repository: others are not written to."""

    def is_ours(entry: Entry) -> bool:
        try:
            found = Repository.open(Path(entry.root))
        except PatcherError:
            return False
        return found.common_dir == repository.common_dir and str(found.root) == entry.root

    return is_ours
