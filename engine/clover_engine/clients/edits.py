"""Small edits of a text by models that only continue: which spans to ask about, and with what.

A served model cannot denoise many masked lines at once as the embedded one does. Instead it is
asked to fill the hole that each short span leaves; deletions need no model. The spans are words and
signs, since the client has no tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


@dataclass(frozen=True, slots=True)
class Gap:
    """`original` without one span: what stays before it and after it."""

    left: str
    right: str


def gaps(original: str, max_remove: int, limit: int) -> list[Gap]:
    """Every place where up to `max_remove` pieces can go, short removals first; at most `limit`."""
    pieces = _PIECE.findall(original)
    found = dict.fromkeys(_spans(pieces, max_remove))
    return list(found)[:limit]


def deletions(original: str, max_remove: int) -> list[str]:
    """What is left without 1 to `max_remove` neighbouring pieces; all different."""
    found = (gap.left + gap.right for gap in gaps(original, max_remove, 10_000))
    return [text for text in dict.fromkeys(found) if text != original]


def _spans(pieces: list[str], max_remove: int) -> Iterator[Gap]:
    for removed in range(max_remove + 1):
        for start in range(len(pieces) - removed + 1):
            yield Gap("".join(pieces[:start]), "".join(pieces[start + removed :]))
