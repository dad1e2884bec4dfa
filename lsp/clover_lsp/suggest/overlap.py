"""Texts that repeat what stands around the cursor: the rest of its line, lines below, words before.

What closes what is decided by counting: of several ways to fit a text to the rest of the line, the
one that leaves the fewest brackets and quotes unbalanced is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clover_lsp.suggest.brackets import scan
from clover_lsp.suggest.scene import Scene
from clover_lsp.suggest.text import BLANKS, first_line, indent_of, is_blank, is_word

_CLOSING = re.compile(r"[)\]}>\"'`;,:]*")
_WORD = re.compile(r"\w")
_LAST_WORD = re.compile(r"(?<!\w)[^\W\d]\w+$")
_PUNCTUATION = re.compile(r"[;,:]+")
_SHORTEST_COMMON, _LONGEST_COMMON = 3, 200
"""Characters of code (not brackets) that must agree for an overlap that ends inside the line."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A text, and how many characters after the cursor it replaces."""

    text: str
    replace_after: int = 0


def fit(text: str, here: Scene, may_replace: bool = True) -> Fit:
    """Fits the text to what stands after the cursor on its line."""
    rest = here.line_after.rstrip(BLANKS)
    if not rest or not text:
        return Fit(text)
    ranked = [
        (rank, Fit(text[:end], after))
        for rank, end, after in _ways(text, rest, here)
        if may_replace or not after
    ]
    costs = [(_cost(way, here), rank) for rank, way in ranked]
    return ranked[min(range(len(ranked)), key=costs.__getitem__)][1]


def _ways(text: str, rest: str, here: Scene) -> list[tuple[int, int, int]]:
    """(rank among equals, end of the text to keep, characters to replace)."""
    ways = [(1, len(text), 0)]
    for size in range(1, min(len(text), len(rest), _LONGEST_COMMON) + 1):
        common = rest[:size]
        if not text.endswith(common):
            continue
        if size == len(rest) or _PUNCTUATION.fullmatch(common) or _joins(common, rest[size]):
            ways.append((0, len(text) - size, 0))
        elif _CLOSING.fullmatch(common):
            ways.append((4, len(text) - size, 0))
    closers = _CLOSING.match(rest)
    for size in range(1, closers.end() + 1 if closers else 0):
        if _holds(text, rest[:size]):
            ways.append((2 if size == len(rest) else 5, len(text), size))
    for offset, closer in scan(text, here.language, here.state).strays:
        if rest.startswith(closer):
            ways.append((3, offset, 0))
    return ways


def _joins(common: str, following: str) -> bool:
    """A common part that is code, long enough, and does not end inside a word."""
    long = len(_CLOSING.sub("", common).strip()) >= _SHORTEST_COMMON
    return long and not (is_word(common[-1]) and is_word(following))


def _holds(text: str, signs: str) -> bool:
    """Are all signs in the text, in this order?"""
    at = 0
    for sign in signs:
        at = text.find(sign, at) + 1
        if not at:
            return False
    return True


def _cost(way: Fit, here: Scene) -> int:
    """How unbalanced the code is once the text stands there."""
    as_it_is = scan(here.line_after + "\n", here.language, here.state)
    line = way.text + here.line_after[way.replace_after :]
    after = scan(line + "\n", here.language, here.state)
    pending = min(here.pending, len(as_it_is.stack))
    wrong = len(after.strays) - after.closed + after.broken + (after.quote != as_it_is.quote)
    return abs(len(after.stack) - pending) + 2 * wrong


def without_repeated_start(text: str, here: Scene) -> str:
    """`text` without a repetition of the line or the word that stands before the cursor."""
    start = here.line_before.strip(BLANKS)
    body = text.lstrip(BLANKS)
    spaced = here.line_before.endswith((" ", "\t"))
    if len(start) >= 4 and body.startswith(start) and start != "long" and _WORD.search(start):
        follows = body[len(start) : len(start) + 1]
        if not (spaced and is_word(start[-1]) and is_word(follows)):
            return body[len(start) :].lstrip(BLANKS) if spaced else body[len(start) :]
    found = _LAST_WORD.search(here.line_before)
    if found is None or here.in_text:
        return text
    word = found.group()
    return text[len(word) :] if text.startswith(word) else text


def repeats_line_above(text: str, here: Scene) -> bool:
    """Is the first line of the text the line that stands above?"""
    if not here.on_blank_line or sum(map(is_word, here.above)) < 6:
        return False
    return _alike(here.line_before + first_line(text), here.above)


def without_lines_below(text: str, here: Scene) -> str:
    """`text` up to where it goes on with the lines that stand below the cursor anyway."""
    if not here.below:
        return text
    lines = text.split("\n")
    full = [here.line_before + lines[0], *lines[1:]]
    for i, line in enumerate(full):
        if not is_blank(line) and _repeats(full[i:], here, whole=i == 0):
            return "\n".join(lines[:i])
    return text


def _repeats(lines: list[str], here: Scene, whole: bool) -> bool:
    """Do `lines` begin as the lines below do, so that it cannot be chance?

    A line of brackets or one word says nothing, unless all that is left of the text repeats.
    """
    own = [line for line in lines if not is_blank(line)]
    same = 0
    for mine, theirs in zip(own, here.below, strict=False):
        if not _alike(mine, theirs):
            break
        same += 1
        if sum(map(is_word, mine)) >= 6 and len(re.findall(r"\w+", mine)) >= 2:
            return True
    if same < len(own):
        return False
    return whole or any(is_word(c) for line in own for c in line)


def _alike(mine: str, theirs: str) -> bool:
    """Equal but for blanks and a comma or semicolon at the end; the indentation counts."""
    if len(indent_of(mine).expandtabs(4)) != len(indent_of(theirs).expandtabs(4)):
        return False
    return mine.strip().rstrip(",; ") == theirs.strip().rstrip(",; ")
