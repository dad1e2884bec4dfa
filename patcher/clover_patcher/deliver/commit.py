"""Committing a fix as the user would: only its files, whatever else is staged or changed.

`git commit --only` does it: the commit is HEAD's tree with the named files, the user's index
keeps everything else that is staged, their hooks run and their configuration (signing, say)
holds. What the hooks refuse stays in the working tree.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository

_OPERATIONS = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
    "BISECT_LOG": "a bisection",
}


def require_committable(repository: Repository) -> list[str]:
    """Makes sure that a commit can be made, before there is anything to commit.

    Returns what the user should know all the same. Raises `UsageError`: an operation such as a
    rebase is in progress, there is no commit yet, or git does not know who the user is.
    """
    require_no_operation(repository, "commit")
    if repository.head() is None:
        raise UsageError(
            "there is no commit yet: make the first one yourself, or leave out --commit"
        )
    for role in ("AUTHOR", "COMMITTER"):
        if not repository.run("var", f"GIT_{role}_IDENT", check=False, as_user=True):
            raise UsageError(
                "git does not know who commits: run `git config user.name NAME` and "
                "`git config user.email ADDRESS`, or leave out --commit"
            )
    if not repository.run("symbolic_ref", "--quiet", "HEAD", check=False):
        return ["HEAD is detached: the commit is on no branch; `git switch -c NAME` keeps it"]
    return []


def require_no_operation(repository: Repository, what: str) -> None:
    """Raises `UsageError` in the middle of a rebase, merge, cherry-pick, revert or bisection."""
    if operation := in_progress(repository):
        raise UsageError(
            f"{operation} is in progress: finish or abort it first; cannot {what} meanwhile"
        )


def in_progress(repository: Repository) -> str | None:
    """The operation that the working tree is in the middle of, in words."""
    folder = Path(os.fsdecode(repository.run("rev_parse", "--absolute-git-dir")).rstrip("\n"))
    return next((name for mark, name in _OPERATIONS.items() if (folder / mark).exists()), None)


def uncommitted(repository: Repository, paths: Sequence[str]) -> list[str]:
    """Those of the files that differ from HEAD, in the index or the tree, or are not tracked."""
    said = repository.run(
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignored=matching",
        "--",
        *map(_literal, paths),
    )
    return [os.fsdecode(entry[3:]) for entry in said.split(b"\0") if entry]


def commit_files(
    repository: Repository,
    paths: Sequence[str],
    message: str,
    scratch: Path,
    created: Sequence[str] = (),
) -> str:
    """Commits the files as they are in the tree, and nothing else; returns the commit.

    `scratch` is a path for the message; those of the files that are `created` are new to git.
    Raises `UsageError` with the first words of the hook or of git where no commit was made; index
    and HEAD are as before then.
    """
    before = repository.head()
    scratch.write_text(message, "utf-8", "surrogateescape")
    try:
        if created:
            new = map(_literal, created)
            repository.run("add", "--intent-to-add", "--", *new, as_user=True)
        repository.run(
            "commit",
            "--only",
            "--quiet",
            "--cleanup=whitespace",
            "-F",
            str(scratch),
            "--",
            *map(_literal, paths),
            as_user=True,
        )
    except UsageError:
        if created:
            restage(repository, created)
        raise
    finally:
        scratch.unlink(missing_ok=True)
    made = repository.head()
    if made is None or made == before:
        raise UsageError("git commit made no commit")
    return made


def restage(repository: Repository, paths: Sequence[str]) -> None:
    """Makes the index hold what HEAD holds of the files: what they are in the tree stays.

    `git commit --only` leaves the index at what it was before a hook rewrote the files.
    """
    repository.run("reset", "--quiet", "--no-refresh", "--", *map(_literal, paths))


def _literal(path: str) -> str:
    """A path that git takes for itself, whatever characters it has."""
    return f":(top,literal){path}"
