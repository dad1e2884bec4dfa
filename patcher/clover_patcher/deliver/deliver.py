"""From a validated patch to the user's working tree and, if wanted, a commit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clover_patcher.deliver.apply import write_recorded
from clover_patcher.deliver.commit import commit_files, restage, uncommitted
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.deliver.message import Summary
from clover_patcher.edits import FileChange, sha256
from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository

NOT_COMMITTED = 5
"""Exit code: the patch is applied, and the commit that was asked for was not made."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What was done with a patch."""

    id: str
    """Names the fix for undo."""
    commit: str | None = None
    notes: tuple[str, ...] = ()
    exit_code: int = 0


def deliver(
    repository: Repository,
    changed: Sequence[FileChange],
    summary: Summary,
    *,
    commit: bool = False,
) -> Delivered:
    """Writes the patch into the working tree, all or nothing, and commits it if asked.

    Where no commit can be made the patch stays applied, and a note says why. Raises what
    `write_recorded` does.
    """
    journal = Journal(repository.common_dir)
    paths = [change.path for change in changed]
    mixed = uncommitted(repository, paths) if commit else []
    with journal.locked():
        entry = Entry.make(repository.root, summary.title, head=repository.head())
        entry = write_recorded(journal, entry, changed)
    if not commit:
        return Delivered(entry.id)
    if mixed:
        return _not_committed(
            entry,
            f"{', '.join(mixed)} had changes of yours that are not committed, which a commit "
            "would mix with the fix; commit them yourself",
        )
    message = summary.message(entry.id)
    try:
        scratch = journal.folder / f"message-{entry.id}"
        created = [change.path for change in changed if change.created]
        made = commit_files(repository, paths, message, scratch, created)
    except UsageError as exc:
        rewritten = _rewritten(repository.root, changed)
        also = f" (it rewrote {', '.join(rewritten)})" if rewritten else ""
        return _not_committed(entry, f"{exc}{also}; `git commit {shlex.join(paths)}` tries again")
    rewritten = _rewritten(repository.root, changed)
    if rewritten:
        restage(repository, paths)
    journal.note_commit(entry, made, rewritten)
    notes = tuple(f"a hook of yours rewrote {path} on the way" for path in rewritten)
    return Delivered(entry.id, made, notes)


def _not_committed(entry: Entry, why: str) -> Delivered:
    note = f"the patch is applied, but not committed: {why}"
    return Delivered(entry.id, None, (note,), NOT_COMMITTED)


def _rewritten(root: Path, changed: Sequence[FileChange]) -> dict[str, str]:
    """Files that are not what we wrote, with their digests now."""
    found = {}
    for change in changed:
        data = (root / change.path).read_bytes()
        if data != change.after:
            found[change.path] = sha256(data)
    return found
