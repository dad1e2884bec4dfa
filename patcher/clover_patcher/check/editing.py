"""Candidates in a copy of the tree: written for one run, and put back after it."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clover_patcher.edits import apply_edits, safe_path
from clover_patcher.types import Edit


class Editor:
    """Writes edits below `worktree` and restores the original bytes.

    No two versions of a file share a second: the caches of some tools (mypy's, Python's own) tell
    versions apart by whole seconds and size. The times run ahead of the clock.
    """

    def __init__(self, worktree: Path) -> None:
        self._worktree = worktree
        self._time = int(time.time())

    @contextmanager
    def edited(self, edits: Sequence[Edit]) -> Iterator[frozenset[str]]:
        """While it is entered, the edits are in place; the edited paths.

        Raises `UsageError` for files that must not be written, `TreeChanged` where one is gone,
        `ValueError` for edits that overlap.
        """
        paths = frozenset(edit.path for edit in edits)
        files = {path: safe_path(self._worktree, path) for path in paths}
        before = {path: file.read_bytes() for path, file in files.items()}
        after = {p: apply_edits(b, [e for e in edits if e.path == p]) for p, b in before.items()}
        drop_bytecode(files.values())
        try:
            for path, file in files.items():
                self._write(file, after[path])
            yield paths
        finally:
            for path, file in files.items():
                self._write(file, before[path])
            drop_bytecode(files.values())

    def _write(self, file: Path, data: bytes) -> None:
        file.write_bytes(data)
        self._time += 1
        os.utime(file, (self._time, self._time))


def drop_bytecode(sources: Iterable[Path]) -> None:
    """Forgets compiled forms of files: their time and size may look unchanged after an edit."""
    for source in sources:
        folder = source.parent / "__pycache__"
        if folder.is_symlink():  # what it shows is not part of the copy
            continue
        pattern = f"{glob.escape(source.stem)}.*.pyc"
        for compiled in folder.glob(pattern):
            compiled.unlink(missing_ok=True)
