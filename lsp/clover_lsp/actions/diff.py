"""How one text became another: minimal edits, changes in tokens, and where a place moved to.

Offsets are characters. Only a line feed ends a line here, and an edit never begins or ends
between the two characters of CRLF.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from clover_lsp.actions.tokens import Token, tokenize
from clover_lsp.context.common import common_end, common_start
from clover_lsp.context.types import Edit

_MAX_TOKENS = 600
"""Longer changed blocks are taken as a whole: comparing them would take too long."""
_MAX_PAIRS = 100_000
"""With more pairs of equal lines, lines that both texts have once divide the comparison first."""
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
        head = common_start(old, new)
        tail = common_end(old[head:], new[head:])
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
        if number < len(self._starts) and self._starts[number] < end:
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
    head = before.rfind("\n", 0, common_start(before, after)) + 1
    tail = _whole_lines(before, after, common_end(before[head:], after[head:]))
    old, new = _lines(before[head : len(before) - tail]), _lines(after[head : len(after) - tail])
    old_at, new_at = _offsets(old, head), _offsets(new, head)
    return [(old_at[a], old_at[b], new_at[c], new_at[d]) for a, b, c, d in changed_runs(old, new)]


def changed_runs(old: Sequence[str], new: Sequence[str]) -> list[_Block]:
    """Runs [a, b) of `old` that became [c, d) of `new`, in order.

    Takes time in proportion to the lines: where very many lines are alike, lines that occur once
    in both divide the work, and a run without any is taken as a whole.
    """
    found: list[_Block] = []
    pending = [(0, len(old), 0, len(new))]
    while pending:
        a, b, c, d = pending.pop()
        while a < b and c < d and old[a] == new[c]:
            a, c = a + 1, c + 1
        while a < b and c < d and old[b - 1] == new[d - 1]:
            b, d = b - 1, d - 1
        if a == b or c == d:
            if (a, c) != (b, d):
                found.append((a, b, c, d))
            continue
        counts = Counter(new[c:d])
        if sum(counts[line] for line in old[a:b]) <= _MAX_PAIRS:
            matcher = SequenceMatcher(None, old[a:b], new[c:d], autojunk=False)
            found += [
                (a + i, a + j, c + k, c + m)
                for tag, i, j, k, m in matcher.get_opcodes()
                if tag != "equal"
            ]
            continue
        anchors = _anchors(old[a:b], new[c:d])
        if not anchors:
            found.append((a, b, c, d))
            continue
        ends = [(a - 1, c - 1), *((a + i, c + k) for i, k in anchors), (b, d)]
        pending += [(i + 1, j, k + 1, m) for (i, k), (j, m) in zip(ends, ends[1:], strict=False)]
    return sorted(found)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The longest rising sequence of lines that occur once in both texts ("patience diff")."""
    once_old = {line for line, count in Counter(old).items() if count == 1}
    once_new = {line for line, count in Counter(new).items() if count == 1}
    place = {line: k for k, line in enumerate(new) if line in once_new}
    pairs = [(i, place[line]) for i, line in enumerate(old) if line in once_old and line in place]
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, k) in enumerate(pairs):
        at = bisect_left(tops, k)
        tops[at : at + 1] = [k]
        ends[at : at + 1] = [number]
        before.append(ends[at - 1] if at else -1)
    found = []
    number = ends[-1] if ends else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _whole_lines(before: str, after: str, tail: int) -> int:
    """The common end cut to whole lines of both texts."""
    if not tail:
        return 0
    old, new = len(before) - tail, len(after) - tail
    whole = (not old or before[old - 1] == "\n") and (not new or after[new - 1] == "\n")
    if whole:
        return tail
    line_end = before.find("\n", old)
    return len(before) - line_end - 1 if line_end >= 0 else 0


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


def _offsets(lines: Sequence[str], first: int) -> list[int]:
    at = [first]
    for line in lines:
        at.append(at[-1] + len(line))
    return at
