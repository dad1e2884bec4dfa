"""What is staged for the next commit, as far as a model may see it."""

from __future__ import annotations

import os
from collections.abc import Callable

from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository

_DIFF = ("--cached", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames")


def staged_diff(repository: Repository, withheld: Callable[[str], bool]) -> str:
    """The diff of the index against HEAD without files that are `withheld`.

    Raises `UsageError` where nothing is staged that may be seen.
    """
    names = repository.run("diff", *_DIFF, "--name-only", "-z")
    paths = [os.fsdecode(name) for name in names.split(b"\0") if name]
    if not paths:
        raise UsageError("nothing is staged: `git add` what the commit is to have")
    shown = [path for path in paths if not withheld(path)]
    if not shown:
        raise UsageError("all staged files are withheld from models: write the message yourself")
    literal = (f":(top,literal){path}" for path in shown)
    return repository.run("diff", *_DIFF, "--", *literal).decode("utf-8", "replace")


def recent_subjects(repository: Repository, count: int = 5) -> tuple[str, ...]:
    """First lines of the newest commits, for their manner."""
    said = repository.run("log", f"--max-count={count}", "--no-merges", "--format=%s", check=False)
    return tuple(said.decode("utf-8", "replace").splitlines())
