"""Which files of a root are worth indexing, of those that may be read."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from clover_engine.privacy.ignore import IgnoreRules

MAX_FILES = 100_000
"""Of a larger folder (a home folder, say) the files nearest to its top are indexed."""
MAX_WALKED = 50_000
_DATA_SUFFIXES_TEXT = """
.json .jsonl .csv .tsv .svg .snap .ipynb .po .pot .log .sql .txt .xml .geojson .sum
"""
DATA_SUFFIXES = frozenset(_DATA_SUFFIXES_TEXT.split())
"""Seldom code: not indexed, but read where the user works in one."""
_VENDORED_TEXT = """
.git .hg .svn node_modules bower_components .venv venv __pycache__ site-packages .tox .nox
.mypy_cache .ruff_cache .pytest_cache .hypothesis .eggs .gradle .idea .next .nuxt .terraform
third_party vendor vendored .yarn .pnpm-store
"""
VENDORED = frozenset(_VENDORED_TEXT.split())


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """A file of the walk; `path` is relative with posix separators."""

    path: str
    mtime_ns: int
    size: int


def walk(rules: IgnoreRules) -> Iterator[WalkedFile]:
    """Files that may be read and are worth indexing, those near the root first.

    Links are not followed, and no more than `MAX_WALKED` folders are looked into.
    """
    pending = deque([""])
    for _ in range(MAX_WALKED):
        if not pending:
            return
        folder = pending.popleft()
        try:
            with os.scandir(rules.root / folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if enters(rules, path):
                        pending.append(path)
                elif _is_indexed(rules, entry, path):
                    stat = entry.stat(follow_symlinks=False)
                    yield WalkedFile(path, stat.st_mtime_ns, stat.st_size)
            except OSError:
                continue


def folders(rules: IgnoreRules) -> Iterator[str]:
    """All folders of the walk, the root ("") first."""
    pending = [""]
    while pending:
        folder = pending.pop()
        yield folder
        try:
            with os.scandir(rules.root / folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False) and enters(rules, path):
                        pending.append(path)
        except OSError:
            continue


def enters(rules: IgnoreRules, folder: str) -> bool:
    """Whether the walk goes into a folder whose parent it went into."""
    return folder.rpartition("/")[2] not in VENDORED and not rules.folder_reason(folder)


def _is_indexed(rules: IgnoreRules, entry: os.DirEntry[str], path: str) -> bool:
    is_data = os.path.splitext(entry.name)[1].lower() in DATA_SUFFIXES
    return not is_data and entry.is_file(follow_symlinks=False) and not rules.reason(path)
