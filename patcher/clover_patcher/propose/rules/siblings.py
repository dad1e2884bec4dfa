"""Edits that make a line like a similar one of the same file, and lines that are missing
where a similar place has one: code is written by analogy, and so are its repairs found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from clover_patcher.propose.rules.statement import gaps
from clover_patcher.propose.syntax import CodeLine, Source, Token
from clover_patcher.propose.templates import Proposal, Site, fill_slot, line_slot, statement_rule

_NAME = re.compile(r"[^\W\d]\w*")
_LEAST_ALIKE = 0.5
_MOST_TOKENS = 40
_MOST_SIBLINGS = 8
_FEWEST_TOKENS = 3


@dataclass(frozen=True, slots=True)
class _Sibling:
    """A line and how alike it is, at most 1."""

    line: CodeLine
    alike: float


@statement_rule
def like_a_sibling(site: Site) -> Iterator[Proposal]:
    """One difference from a similar line taken over from it, or the line as a whole."""
    source, lines = site.source, site.source.code_lines
    here = next((i for i, line in enumerate(lines) if line.number == site.line), None)
    if here is None or source.on_line(site.line)[-1] is not site.statement:
        return
    slot, tokens = line_slot(source, site.line), lines[here].tokens
    for place, sibling in enumerate(_siblings(source, here)):
        weight = sibling.alike**2 / (1 + place)
        for new, share in _adopted(tokens, sibling.line.tokens):
            yield fill_slot(source, slot, _text(new), "sibling", weight * share)


@statement_rule
def missing_beside_a_sibling(site: Site) -> Iterator[Proposal]:
    """A line that follows, or comes before, a line like the one at the gap."""
    lines = site.source.code_lines
    for slot, weight in gaps(site):
        number = site.source.line_of(slot.start) if slot.start < len(site.source.code) else None
        after = next((i for i, line in enumerate(lines) if number and line.number >= number), None)
        end = len(lines) if after is None else after
        for here, step in ((end - 1, 1), (after, -1)):
            if here is None or here < 0:
                continue
            for text, share in _continued(site.source, here, step):
                yield fill_slot(site.source, slot, text, "echo", weight * share)


def _continued(source: Source, here: int, step: int) -> Iterator[tuple[str, float]]:
    """What stands beside the siblings of a line, in this line's names."""
    lines = source.code_lines
    index = {line.number: i for i, line in enumerate(lines)}
    for place, sibling in enumerate(_siblings(source, here)):
        beside = index[sibling.line.number] + step
        if 0 <= beside < len(lines) and beside != here:
            renamed = _renames(_opcodes(lines[here].tokens, sibling.line.tokens))
            text = _text(_mapped(lines[beside].tokens, renamed))
            yield text, sibling.alike**2 / (1 + place)


@lru_cache(256)
def _siblings(source: Source, here: int) -> tuple[_Sibling, ...]:
    """The lines most like one of them, identical ones too, nearer ones first among equals."""
    lines = source.code_lines
    own, size = lines[here], len(lines[here].tokens)
    if not _FEWEST_TOKENS <= size <= _MOST_TOKENS:
        return ()
    fewest, most = max(_FEWEST_TOKENS, size / 3), min(_MOST_TOKENS, 3 * size)  # see _LEAST_ALIKE
    counts = own.counts.items()
    found = []
    for i, line in enumerate(lines):
        if i != here and fewest <= len(line.tokens) <= most:
            theirs = line.counts
            common = sum(min(count, theirs[text]) for text, count in counts if text in theirs)
            alike = 2 * common / (size + len(line.tokens))
            if alike >= _LEAST_ALIKE:
                found.append((-alike, abs(i - here), i))
    found.sort()
    return tuple(_Sibling(lines[i], -alike) for alike, _, i in found[:_MOST_SIBLINGS])


_Opcode = tuple[str, Sequence[Token], Sequence[Token], int, int]


def _opcodes(own: Sequence[Token], other: Sequence[Token]) -> list[_Opcode]:
    """(kind, own tokens, the other's tokens, own range) of each run that is not the same."""
    matcher = SequenceMatcher(None, [t.text for t in own], [t.text for t in other], autojunk=False)
    return [
        (kind, own[a:b], other[c:d], a, b)
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]


def _adopted(
    own: Sequence[Token], other: Sequence[Token]
) -> Iterator[tuple[Sequence[Token], float]]:
    """The line with one of its differences undone, the other's names turned into its own."""
    differences = _opcodes(own, other)
    for i, (_, _, theirs, start, end) in enumerate(differences):
        renamed = _renames(differences[:i] + differences[i + 1 :])
        yield [*own[:start], *_mapped(theirs, renamed), *own[end:]], 1.0
    if len(differences) > 1:
        yield other, 0.3


def _renames(differences: Sequence[_Opcode]) -> dict[str, str]:
    """The own name for each name that the other line has in its place."""
    return {
        b.text: a.text
        for kind, mine, theirs, _, _ in differences
        if kind == "replace" and len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True)
        if _NAME.fullmatch(a.text) and _NAME.fullmatch(b.text)
    }


def _mapped(tokens: Sequence[Token], renamed: dict[str, str]) -> list[Token]:
    return [Token(t.space, renamed.get(t.text, t.text)) for t in tokens]


def _text(tokens: Sequence[Token]) -> str:
    return "".join(t.space + t.text for t in tokens).strip()
