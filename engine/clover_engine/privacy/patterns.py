"""Ignore files in git's syntax."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ANY_FOLDER = "(?P<ps_d>/)"
"""What pathspec makes of `*/`."""


class Patterns:
    """The patterns of one ignore file, asked about one level of a path at a time, as git does.

    `GitIgnoreSpec.check_file` takes a match of a parent folder for one of the file, so that
    `*`, `!*/`, `!*.md` would ignore `api/x.md`.
    """

    def __init__(self, lines: Sequence[str], ignores_case: bool = False) -> None:
        """`ignores_case`: as git does where `core.ignoreCase` is set."""
        from pathspec import GitIgnoreSpec

        self._ignores_case = ignores_case

        patterns: list[Any] = []
        for line in lines:
            try:
                patterns += GitIgnoreSpec.from_lines([self._folded(line)]).patterns
            except ValueError:
                continue  # git has no use for a malformed line either
        self._patterns = [p for p in reversed(patterns) if p.include is not None]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def verdict(self, path: str) -> bool | None:
        """Ignored, brought back, or not mentioned; folders end with "/"."""
        path = self._folded(path)
        for pattern in self._patterns:
            if pattern.regex.pattern == _ANY_FOLDER:
                if path.endswith("/"):
                    return bool(pattern.include)
                continue
            found = pattern.match_file(path)
            if found is None:
                continue
            folder = found.match.groupdict().get("ps_d")
            if not folder or found.match.end("ps_d") == len(path):
                return bool(pattern.include)
        return None

    def _folded(self, text: str) -> str:
        return unicodedata.normalize("NFC", text).lower() if self._ignores_case else text


def read_patterns(path: Path, ignores_case: bool = False) -> Patterns | None:
    """The patterns of a file; None where it has none, is missing or cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return None
    return Patterns(text.splitlines(), ignores_case) or None
