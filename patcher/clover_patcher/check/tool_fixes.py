"""A tool's own suggestion how to repair what it found, as a candidate to be validated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clover_patcher.types import Candidate, Edit

PRIORITY = 1000.0
"""Above every guess: whoever wrote the rule knows best what it asks for."""
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Text for the characters between two places: (line, column), both 1-based."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def tool_candidate(
    path: str, data: bytes, line: int, replacements: Sequence[Replacement]
) -> Candidate | None:
    """One edit that makes all replacements in a file's bytes; None where they do not fit it."""
    lines = _LINE.findall(data.removeprefix(_BOM))
    starts = [len(_BOM) if data.startswith(_BOM) else 0]
    for text in lines:
        starts.append(starts[-1] + len(text))
    parts = []
    for one in dict.fromkeys(replacements):
        start, end = _offset(lines, starts, one.start), _offset(lines, starts, one.end)
        if start is None or end is None or end < start:
            return None
        parts.append((start, end, one.text.encode("utf-8")))
    parts.sort()
    if not parts or any(a[1] > b[0] for a, b in zip(parts, parts[1:], strict=False)):
        return None
    first, last = parts[0][0], max(end for _, end, _ in parts)
    new, at = b"", first
    for start, end, text in parts:
        new += data[at:start] + text
        at = end
    edit = Edit(path, first, last, new)
    text = new.decode("utf-8", "replace")
    return Candidate((edit,), line, "linter", text, priority=PRIORITY, proposer="tool")


def _offset(lines: Sequence[bytes], starts: Sequence[int], at: tuple[int, int]) -> int | None:
    """A place's byte offset in a UTF-8 file."""
    line, column = at
    if not 1 <= line <= len(starts):
        return None
    if line > len(lines):
        return starts[-1] if column == 1 else None
    try:
        text = lines[line - 1].decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not 1 <= column <= len(text) + 1:
        return None
    return starts[line - 1] + len(text[: column - 1].encode("utf-8"))
