"""What the user wants copied as well: ignored paths of any size, and paths beside the copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from clover_patcher.errors import UsageError


def included(root: Path, cwd: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Paths that the user gives in `cwd`, relative to the repository.

    Raises `UsageError` for one that is not there, is the repository itself, or is further away
    than beside it.
    """
    found = []
    for path in paths:
        full = Path(os.path.abspath(cwd.resolve() / Path(path).expanduser()))
        name = os.path.relpath(full, root)
        if not os.path.lexists(full):
            raise UsageError(f"{path} does not exist: --include names files or folders to copy")
        if name in (".", "..") or name.startswith("../.."):
            raise UsageError(f"{path} cannot be copied beside the copy: name something in {root}")
        found.append(name)
    return tuple(found)
