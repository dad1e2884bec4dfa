"""Lines, blanks and indentation. A line ends at LF, CR LF or CR, as in the protocol; never at
form feeds or U+2028, which `str.splitlines` would also split at."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

BLANKS = " \t"
TAB_WIDTH = 4
"""Columns of a tab where a document does not tell."""
_INDENT = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)
_SAMPLE = 6_000
"""Characters on each side of the cursor that tell a document's indentation."""


def is_word(char: str) -> bool:
    """True for what identifiers are made of; False for the empty string."""
    return char.isalnum() or char == "_"


def last_line(text: str) -> str:
    """What stands after the last line end."""
    return text[text.rfind("\n") + 1 :]


def first_line(text: str) -> str:
    """What stands before the first line end."""
    end = text.find("\n")
    return text if end < 0 else text[:end]


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(BLANKS))]


def is_blank(line: str) -> bool:
    return not line.strip(BLANKS)


def line_above(before: str) -> str:
    """The last line above the cursor's that is not blank; "" where there is none."""
    end = before.rfind("\n")
    while end >= 0:
        start = before.rfind("\n", 0, end)
        line = before[start + 1 : end]
        if not is_blank(line):
            return line
        end = start
    return ""


def lines_below(after: str, limit: int = 40) -> list[str]:
    """Up to `limit` lines below the cursor's that are not blank."""
    found: list[str] = []
    start = after.find("\n")
    while start >= 0 and len(found) < limit:
        end = after.find("\n", start + 1)
        line = after[start + 1 : end if end >= 0 else len(after)]
        if not is_blank(line):
            found.append(line)
        start = end
    return found


@dataclass(frozen=True, slots=True)
class Indentation:
    """How a document indents: `unit` is one level (a tab, or some spaces)."""

    unit: str
    known: bool = True
    """False where neither the document nor the language tells."""

    @property
    def width(self) -> int:
        return TAB_WIDTH if self.unit == "\t" else len(self.unit)

    def columns(self, indent: str) -> int:
        """How far `indent` reaches."""
        at = 0
        for char in indent:
            at += self.width - at % self.width if char == "\t" else 1
        return at


def indentation(before: str, after: str, default: str = "") -> Indentation:
    """From the lines around the cursor, else the language's `default`, else four spaces."""
    indents = _INDENT.findall(before[-_SAMPLE:] + after[:_SAMPLE])
    if not indents:
        return Indentation(default or " " * 4, known=bool(default))
    if 2 * sum(i[0] == "\t" for i in indents) > len(indents):
        return Indentation("\t")
    widths = [len(i) for i in indents]
    steps = Counter(abs(a - b) for a, b in zip(widths, [0, *widths], strict=False))
    likely = [step for step, _ in steps.most_common() if step in (2, 3, 4, 8)]
    return Indentation(" " * (likely[0] if likely else 4))
