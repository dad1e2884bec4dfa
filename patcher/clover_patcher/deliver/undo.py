"""Taking an applied fix back, byte for byte, and only if nobody has touched its files since.

A fix that was committed comes off the branch only as long as it is exactly HEAD, on no remote,
and nothing else: the branch moves back by one commit (which stays in the reflog), files and
their index entries with it. In every other case history belongs to the user, who is told the
`git revert` that does it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clover_patcher.deliver.apply import write_recorded
from clover_patcher.deliver.commit import require_no_operation, restage, uncommitted
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.deliver.message import TRAILER
from clover_patcher.edits import FileChange, safe_path, sha256, unified_diff
from clover_patcher.errors import PatcherError, TreeChanged, UsageError
from clover_patcher.repository.git import Repository


class NothingToUndo(PatcherError):
    """There is no applied fix on record."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A fix on record. `commit` is what it was committed as, whether that still exists or not."""

    entry: Entry
    undone: bool
    commit: str | None


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did, or would do."""

    fix: Fix
    changes: tuple[FileChange, ...]
    removed_commit: str | None
    """The commit that came off the branch."""

    @property
    def patch(self) -> bytes:
        """What was done to the files, as a unified diff."""
        return unified_diff(self.changes)


def history(repository: Repository) -> list[Fix]:
    """The fixes on record for this working tree, newest first."""
    journal = Journal(repository.common_dir)
    entries = journal.entries("done")
    undone = {entry.undoes for entry in entries}
    return [
        Fix(entry, entry.id in undone, journal.committed(entry)[0])
        for entry in reversed(entries)
        if entry.undoes is None and entry.root == str(repository.root)
    ]


def undo(repository: Repository, wanted: str | None = None, *, dry_run: bool = False) -> Undone:
    """Takes back the newest fix that stands, or the one whose id begins with `wanted`.

    Raises `NothingToUndo`, `UsageError` for an id that is not one, or a commit that is not ours
    to remove, and `TreeChanged` where a file is not what the fix made of it.
    """
    fixes = history(repository)
    fix = _choose(fixes, wanted)
    paths = [file.path for file in fix.entry.files]
    commit = _find_commit(repository, fix.entry)
    if commit:
        _require_ours(repository, fix.entry, commit, paths)
    journal = Journal(repository.common_dir)
    changes = _reversed(repository, journal, fix, fixes)
    if not dry_run:
        entry = Entry.make(
            repository.root,
            f"undo: {fix.entry.title}",
            head=repository.head(),
            undoes=fix.entry.id,
            commit=commit,
        )
        with journal.locked():
            write_recorded(journal, entry, changes, take_off_branch)
    return Undone(fix, tuple(changes), commit)


def take_off_branch(entry: Entry) -> None:
    """Moves HEAD's branch from an undone fix's commit to the one before; index entries follow.

    Can be repeated. Raises `UsageError` where HEAD is neither.
    """
    if entry.commit is None:
        return
    repository = Repository.open(Path(entry.root))
    parent = repository.run("rev_parse", "--verify", f"{entry.commit}^").decode().strip()
    if repository.head() != parent:
        repository.run(
            "update_ref", "-m", f"clover-code {entry.title}", "HEAD", parent, entry.commit
        )
    restage(repository, [file.path for file in entry.files])


def _choose(fixes: Sequence[Fix], wanted: str | None) -> Fix:
    if wanted is None:
        standing = [fix for fix in fixes if not fix.undone]
        if not standing:
            raise NothingToUndo("there is no fix to undo in this working tree")
        return standing[0]
    found = [fix for fix in fixes if fix.entry.id.startswith(wanted)]
    if len(found) != 1:
        what = "no fix" if not found else "more than one fix"
        raise UsageError(f"{what} begins with {wanted!r}: `clover-code undo --list` shows them")
    if found[0].undone:
        raise UsageError(f"the fix {found[0].entry.id} is undone already")
    return found[0]


def _find_commit(repository: Repository, entry: Entry) -> str | None:
    """The fix's commit on the way from where HEAD was then to where it is now."""
    if entry.head is None:
        return None
    found = repository.run(
        *("log", "--format=%H", "-n", "1", "--fixed-strings", f"--grep={TRAILER}: {entry.id}"),
        f"{entry.head}..HEAD",
        check=False,
    )
    return found.decode().strip() or None


def _require_ours(repository: Repository, entry: Entry, commit: str, paths: list[str]) -> None:
    """Raises `UsageError` unless the commit is ours alone to remove."""
    short = commit[:10]
    revert = f"take it back with `git revert {short}`"
    require_no_operation(repository, "undo a commit")
    if repository.head() != commit:
        raise UsageError(f"other commits came after the fix's commit {short}: {revert}")
    remote = repository.run(
        "branch", "--remotes", "--contains", commit, "--format=%(refname:short)"
    )
    if remote:
        where = remote.decode(errors="replace").split("\n")[0]
        raise UsageError(f"the fix's commit {short} is on {where} already: {revert}")
    named = repository.run("diff_tree", "--no-commit-id", "--name-only", "-r", "-z", commit)
    if {os.fsdecode(name) for name in named.split(b"\0") if name} != set(paths):
        raise UsageError(f"the fix's commit {short} holds other changes too: {revert}")
    if dirty := uncommitted(repository, paths):
        raise TreeChanged(
            f"{', '.join(dirty)} has changes since the fix's commit: commit or unstage them first"
        )


def _reversed(
    repository: Repository, journal: Journal, fix: Fix, fixes: Sequence[Fix]
) -> list[FileChange]:
    """The changes that lead back; raises `TreeChanged` where there is something else in a file."""
    entry, (_, rewritten) = fix.entry, journal.committed(fix.entry)
    back = []
    for number, file in enumerate(entry.files):
        now = safe_path(repository.root, file.path).read_bytes()
        if sha256(now) != rewritten.get(file.path, file.after):
            raise TreeChanged(_changed_since(file.path, fix, fixes))
        before = journal.content(entry, "done", number, "before")
        back.append(FileChange(file.path, now, before, removed=not file.before))
    return back


def _changed_since(path: str, fix: Fix, fixes: Sequence[Fix]) -> str:
    for later in fixes[: fixes.index(fix)]:
        if not later.undone and path in {file.path for file in later.entry.files}:
            return (
                f"a later fix changed {path} too: undo that one first, `clover-code undo "
                f"{later.entry.id}`"
            )
    return f"{path} changed since the fix {fix.entry.id}: nothing was undone; take it back by hand"
