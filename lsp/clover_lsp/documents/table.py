"""A document's text as a table of lines that changes without being copied or split anew.

Lines are kept in blocks; a change makes new blocks for the lines that it touches and shares the
others with the table before. The whole text is put together when somebody asks for it. Line ends,
positions and offsets are as in `text.py`.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from clover_lsp.documents.text import Encoding, characters, join_pairs, units

BLOCK = 256
"""Lines of a block when it is made; it may grow to twice as many."""


class _Block:
    """Some lines with their line ends. Only the document's last line may have none."""

    __slots__ = ("lines", "size")

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        self.size = sum(map(len, self.lines))


class Table:
    """Immutable; any thread. There is always a last line without an end, which may be empty."""

    __slots__ = ("_blocks", "_counts", "_sizes", "_text")

    def __init__(self, text: str) -> None:
        self._set(_blocks(split_lines(text)))
        self._text: str | None = text

    def _set(self, blocks: list[_Block]) -> None:
        self._blocks = blocks
        self._counts = list(accumulate((len(b.lines) for b in blocks), initial=0))
        self._sizes = list(accumulate((b.size for b in blocks), initial=0))

    def __len__(self) -> int:
        """How many lines there are."""
        return self._counts[-1]

    @property
    def size(self) -> int:
        """How many characters there are."""
        return self._sizes[-1]

    @property
    def text(self) -> str:
        """The whole text, put together once."""
        if self._text is None:
            self._text = "".join(line for block in self._blocks for line in block.lines)
        return self._text

    def offset(self, line: int, column: int, encoding: Encoding) -> int:
        """Characters before a position, which is moved into the text if it lies outside."""
        if line < 0:
            return 0
        if line >= len(self):
            return self.size
        number, inside = self._find(line)
        lines = self._blocks[number].lines
        start = self._sizes[number] + sum(map(len, lines[:inside]))
        return start + characters(_body(lines[inside]), column, encoding)

    def position(self, offset: int, encoding: Encoding) -> tuple[int, int]:
        """(line, column); an offset between CR and LF counts as the line's end."""
        offset = min(max(0, offset), self.size)
        number = min(bisect_right(self._sizes, offset), len(self._blocks)) - 1
        block, at = self._blocks[number], self._sizes[number]
        line = -1
        for length in map(len, block.lines):
            line += 1
            if offset < at + length:
                break
            at += length
        else:
            at -= len(block.lines[line])
        body = _body(block.lines[line])
        return self._counts[number] + line, units(body[: offset - at], encoding)

    def replaced(self, start: int, end: int, new: str) -> Table:
        """The table after characters [start, end) became `new`."""
        first, column = self._line_at(start)
        last, end_column = self._line_at(end)
        head, tail = self._line(first)[:column], self._line(last)[end_column:]
        if first and not head and self._line(first - 1).endswith("\r"):
            first -= 1  # a line feed may come after its carriage return
            head = self._line(first)
        lines = split_lines(join_pairs(head + new + tail))
        if last + 1 < len(self):
            lines.pop()  # the empty one: `tail` has the line end
        return self._spliced(first, last + 1, lines)

    def _spliced(self, first: int, end: int, lines: list[str]) -> Table:
        """With lines [first, end) replaced."""
        low, inside = self._find(first)
        high, inside_end = self._find(end - 1)
        kept = self._blocks[low].lines[:inside]
        rest = self._blocks[high].lines[inside_end + 1 :]
        middle = [*kept, *lines, *rest]
        blocks = [_Block(middle)] if 0 < len(middle) <= 2 * BLOCK else _blocks(middle)
        table = Table.__new__(Table)
        table._set([*self._blocks[:low], *blocks, *self._blocks[high + 1 :]])
        table._text = None
        return table

    def _find(self, line: int) -> tuple[int, int]:
        """(block, line in it)."""
        number = bisect_right(self._counts, line) - 1
        return number, line - self._counts[number]

    def _line(self, line: int) -> str:
        number, inside = self._find(line)
        return self._blocks[number].lines[inside]

    def _line_at(self, offset: int) -> tuple[int, int]:
        """(line, characters before the offset in it), also between CR and LF."""
        number = min(bisect_right(self._sizes, offset), len(self._blocks)) - 1
        lines, left = self._blocks[number].lines, offset - self._sizes[number]
        for line, text in enumerate(lines):
            if left < len(text):
                return self._counts[number] + line, left
            left -= len(text)
        return len(self) - 1, len(lines[-1])


def split_lines(text: str) -> list[str]:
    """The lines with their ends, and a last one without."""
    lines = list(io.StringIO(text, newline=""))
    if not lines or lines[-1].endswith(("\n", "\r")):
        lines.append("")
    return lines


def _body(line: str) -> str:
    """The line without its end."""
    if line.endswith("\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith(("\n", "\r")) else line


def _blocks(lines: Sequence[str]) -> list[_Block]:
    return [_Block(lines[at : at + BLOCK]) for at in range(0, len(lines), BLOCK)]
