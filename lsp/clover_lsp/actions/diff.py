"""How one text became another: minimal edits, changes in tokens, and where a place moved to.

Offsets are characters. Only a line feed ends a line here, and an edit never begins or ends
between the two characters of CRLF.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from clover_lsp.actions.tokens import Token, tokenize
from clover_lsp.context.types import Edit

_MAX_TOKENS = 600
"""Longer changed blocks are taken as a whole: comparing them would take too long."""
_Block = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Hunk:
    """Tokens `old` at [start, end) of the text before became `new` at [new_start, new_end)."""

    start: int
    end: int
    new_start: int
    new_end: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def minimal_edits(before: str, after: str) -> list[Edit]:
    """The fewest characters to replace, changed block by changed block, in order."""
    edits = []
    for start, end, new_start, new_end in _blocks(before, after):
        old, new = before[start:end], after[new_start:new_end]
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        head, tail = _whole_line_ends(before, start, end, old, head, tail)
        edits.append(Edit(start + head, end - tail, new[head : len(new) - tail]))
    return edits


def token_hunks(before: str, after: str, language: str) -> list[Hunk]:
    """What changed in tokens; changes of blanks alone are none."""
    found: list[Hunk] = []
    for block in _blocks(before, after):
        found.extend(_block_hunks(before, after, block, language))
    return found


def changed_lines(before: str, after: str) -> list[tuple[int, int, set[str]]]:
    """Changed lines [first, last) of the later text, and what stood there, without blanks."""
    found = []
    for start, end, new_start, new_end in _blocks(before, after):
        first = after.count("\n", 0, new_start)
        last = first + len(_lines(after[new_start:new_end]))
        found.append((first, last, {line.strip() for line in _lines(before[start:end])}))
    return found


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits made; their ranges refer to it as given and do not overlap."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        pieces += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*pieces, text[at:]])


class Moved:
    """Where places of one text are in a later one."""

    def __init__(self, before: str, after: str, language: str) -> None:
        self._hunks = token_hunks(before, after, language)
        self._edits = _fine_edits(before, after, self._hunks)
        self._starts = [edit.start for edit in self._edits]
        self._shift = [0]
        for edit in self._edits:
            grown = len(edit.new) - (edit.end - edit.start)
            self._shift.append(self._shift[-1] + grown)

    @property
    def hunks(self) -> list[Hunk]:
        return self._hunks

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """The same characters in the later text; None where they were touched."""
        number = bisect_right(self._starts, start)
        if number and self._edits[number - 1].end > start:
            return None
        for edit in self._edits[number:]:
            if edit.start >= end:
                break
            return None
        return start + self._shift[number], end + self._shift[number]


def line_span(text: str, offset: int) -> tuple[int, int]:
    """The line around an offset, without its end."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    if end > start and text[end - 1] == "\r" and offset < end:
        end -= 1
    return start, end


def _fine_edits(before: str, after: str, hunks: Sequence[Hunk]) -> list[Edit]:
    """The edits token by token, blanks between them included."""
    edits, at, new_at = [], 0, 0
    for hunk in [*hunks, Hunk(len(before), len(before), len(after), len(after), (), ())]:
        gap, new_gap = before[at : hunk.start], after[new_at : hunk.new_start]
        if gap != new_gap:
            edits += [
                Edit(at + edit.start, at + edit.end, edit.new)
                for edit in minimal_edits(gap, new_gap)
            ]
        if hunk.start < hunk.end or hunk.new_start < hunk.new_end:
            edits.append(Edit(hunk.start, hunk.end, after[hunk.new_start : hunk.new_end]))
        at, new_at = hunk.end, hunk.new_end
    return edits


def _block_hunks(before: str, after: str, block: _Block, language: str) -> Iterator[Hunk]:
    start, end, new_start, new_end = block
    old = tokenize(before[start:end], language)
    new = tokenize(after[new_start:new_end], language)
    if len(old) + len(new) > _MAX_TOKENS:
        texts = tuple(t.text for t in old), tuple(t.text for t in new)
        yield Hunk(start, end, new_start, new_end, *texts)
        return
    matcher = SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        low, high = _range(old, i1, i2, end - start)
        new_low, new_high = _range(new, j1, j2, new_end - new_start)
        yield Hunk(
            start + low,
            start + high,
            new_start + new_low,
            new_start + new_high,
            tuple(t.text for t in old[i1:i2]),
            tuple(t.text for t in new[j1:j2]),
        )


def _range(tokens: Sequence[Token], first: int, last: int, length: int) -> tuple[int, int]:
    """Characters of tokens [first, last); an empty range stands right after the token before."""
    if first < last:
        return tokens[first].start, tokens[last - 1].end
    at = tokens[first - 1].end if first else (tokens[0].start if tokens else length)
    return at, at


def _blocks(before: str, after: str) -> list[_Block]:
    """Changed runs of lines, as characters of both texts."""
    if before == after:
        return []
    old, new = _lines(before), _lines(after)
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    rest = limit - head
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    matcher = SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    )
    old_at, new_at = _offsets(old), _offsets(new)
    return [
        (old_at[a + head], old_at[b + head], new_at[c + head], new_at[d + head])
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]


def _whole_line_ends(
    before: str, start: int, end: int, old: str, head: int, tail: int
) -> tuple[int, int]:
    """Gives back a character where the edit would begin or end inside CRLF."""
    if head and before[start + head - 1 : start + head + 1] == "\r\n":
        head -= 1
    at = end - tail
    if tail and before[at - 1 : at + 1] == "\r\n" and at > start + head:
        tail -= 1
    return head, tail


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _offsets(lines: Sequence[str]) -> list[int]:
    at = [0]
    for line in lines:
        at.append(at[-1] + len(line))
    return at


def _common(first: str, second: str) -> int:
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(i for i in range(limit) if first[i] != second[i])
