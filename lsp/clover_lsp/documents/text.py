"""Lines and positions as the protocol has them: line ends are LF, CRLF and CR, nothing else.

Offsets count characters (code points) of the whole text; positions are (line, column) from 0 with
columns in the units that client and server agreed on. Nothing here raises for a position outside
the text: it is moved to the nearest one inside.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Literal

from clover_engine.line_ends import line_starts

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def main_line_end(text: str) -> str:
    """The line end that most of the text's lines have; LF where there is none."""
    crlf = text.count("\r\n")
    lone_lf, lone_cr = text.count("\n") - crlf, text.count("\r") - crlf
    most = max(crlf, lone_lf, lone_cr)
    if most == 0 or lone_lf == most:
        return "\n"
    return "\r\n" if crlf == most else "\r"


def units(text: str, encoding: Encoding) -> int:
    """The text's length in the encoding's units."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def characters(line: str, column: int, encoding: Encoding) -> int:
    """How many characters of `line` lie before `column`; the inside of one belongs to it."""
    column = max(0, column)
    if encoding == "utf-32" or line.isascii():
        return min(column, len(line))
    if encoding == "utf-8":
        head = line.encode("utf-8", "surrogatepass")[:column]
        return len(head) - sum(0x80 <= byte < 0xC0 for byte in head) - _is_cut(head)
    head = line.encode("utf-16-le", "surrogatepass")[: 2 * column]
    count = len(head.decode("utf-16-le", "surrogatepass")) if not _ends_high(head) else -1
    return count if count >= 0 else _cut_pair(line, head)


def _is_cut(head: bytes) -> int:
    """1 where the UTF-8 text ends inside a character."""
    tail = next((n for n in range(1, min(4, len(head)) + 1) if head[-n] >= 0xC0), 0)
    if not tail:
        return 0
    lead = head[-tail]
    return int((2 if lead < 0xE0 else 3 if lead < 0xF0 else 4) > tail)


def _ends_high(head: bytes) -> bool:
    return len(head) > 1 and 0xD8 <= head[-1] <= 0xDB


def _cut_pair(line: str, head: bytes) -> int:
    """Characters before a cut that may lie inside a surrogate pair."""
    before = len(head[:-2].decode("utf-16-le", "surrogatepass"))
    inside = before < len(line) and ord(line[before]) > 0xFFFF
    return before if inside else before + 1


def join_pairs(text: str) -> str:
    """Joins surrogates that two edits brought side by side, as a client in UTF-16 sees them."""
    if text.isascii() or _SPLIT_PAIR.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class Lines:
    """The line table of one text."""

    __slots__ = ("encoding", "starts", "text")

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.text = text
        self.encoding = encoding
        self.starts = line_starts(text)

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, number: int) -> str:
        """The line's text without its end; empty outside the text."""
        if not 0 <= number < len(self.starts):
            return ""
        return self.text[self.starts[number] : self.end(number)]

    def end(self, number: int) -> int:
        """Offset of the line's end, before the line break."""
        if number + 1 >= len(self.starts):
            return len(self.text)
        end = self.starts[number + 1] - 1
        is_crlf = self.text[end] == "\n" and end > self.starts[number]
        return end - 1 if is_crlf and self.text[end - 1] == "\r" else end

    def offset(self, line: int, column: int) -> int:
        if line < 0:
            return 0
        if line >= len(self.starts):
            return len(self.text)
        return self.starts[line] + characters(self.line(line), column, self.encoding)

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column); an offset between CR and LF counts as the line's end."""
        offset = min(max(0, offset), len(self.text))
        line = bisect_right(self.starts, offset) - 1
        start = self.starts[line]
        return line, units(self.text[start : min(offset, self.end(line))], self.encoding)
