"""Unsaved buffers: what an editor shows instead of what is on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from clover_patcher.edits import sha256
from clover_patcher.errors import UsageError
from clover_patcher.repository.treecopy import Stamp, is_other_source, is_python


def require_overlay(root: Path, overlay: Mapping[str, bytes]) -> None:
    """Raises `UsageError` where an overlaid path is not one of a file of the repository's own."""
    for path in overlay:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
            raise UsageError(f"{path!r} is not a path inside the repository")
        if ".git" in (part.lower() for part in parts):
            raise UsageError(f"{path} belongs to git: it cannot stand for an unsaved file")
        at = root
        for part in parts:
            at = at / part
            if at.is_symlink():
                raise UsageError(f"{path} goes through a symbolic link: name the real file")
        if at.exists() and not at.is_file():
            raise UsageError(f"{path} is not a file: it cannot stand for an unsaved one")


def write_overlay(tree: Path, overlay: Mapping[str, bytes]) -> dict[str, Stamp]:
    """Puts the buffers into a copy of the tree; stamps of those that are source files.

    Modes survive. Call `require_overlay` for the original first: a copy has the same links.
    """
    stamps = {}
    for path, data in overlay.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IWUSR)
        target.write_bytes(data)
        if is_python(path, data[:100]) or is_other_source(path):
            info = os.lstat(target)
            stamps[path] = Stamp(info.st_size, info.st_mtime_ns, info.st_ino, sha256(data))
    return stamps
