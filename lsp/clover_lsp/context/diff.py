"""What the working tree has changed since the last commit, as the lines that are there now."""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass
from pathlib import Path

from clover_engine.line_ends import to_lf
from clover_engine.privacy.ignore import IgnoreRules
from clover_engine.privacy.secrets import redact

LOG = logging.getLogger(__name__)

MAX_FILES = 30
"""Only so many of the latest modified files are compared."""
MAX_BYTES = 256_000
"""Larger files are left out: comparing them takes too long for what it gives."""
AROUND = 2
"""Unchanged lines shown around a change."""
MAX_LINES = 30


@dataclass(frozen=True, slots=True)
class Hunk:
    """Changed lines of a file, redacted. `first_line` is 1-based, in the file as it is now."""

    path: str
    first_line: int
    text: str


def changed(root: Path, rules: IgnoreRules) -> list[Hunk]:
    """Hunks of all changed files below a root, the latest changed file first. Takes 10 ms a file.

    Empty where there is no repository, no commit, or no git.
    """
    from clover_patcher.errors import UsageError
    from clover_patcher.repository.git import Repository

    try:
        repository = Repository.open(root)
        committed = repository.committed_versions(MAX_FILES, MAX_BYTES)
    except (UsageError, OSError) as error:
        LOG.info("no git diff of %s: %s", root, error)
        return []
    found: list[Hunk] = []
    for path, old in committed:
        try:
            name = (repository.root / path).relative_to(root.resolve()).as_posix()
            if not rules.reason(name):
                new = (repository.root / path).read_bytes()
                found += hunks(name, old, new)
        except (ValueError, OSError):
            continue
    return found


def hunks(path: str, old: bytes, new: bytes) -> list[Hunk]:
    """The changes of one file; line ends do not count."""
    if b"\0" in new or b"\0" in old or len(new) > MAX_BYTES:
        return []
    before = to_lf(old.decode("utf-8", "replace")).split("\n")
    after = redact(to_lf(new.decode("utf-8", "replace"))).split("\n")
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.real_quick_ratio() == 0:
        return []
    found = []
    for group in matcher.get_grouped_opcodes(AROUND):
        first, last = group[0][3], group[-1][4]
        if any(tag in ("insert", "replace") for tag, *_ in group):
            found.append(Hunk(path, first + 1, "\n".join(after[first:last][:MAX_LINES])))
    return found
