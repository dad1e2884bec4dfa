"""Edits of a line in a file that does not parse: lost, doubled or mistaken tokens.

There is no tree to work on, so these look at the line's text alone; only what makes the whole
file parse survives, which is little.
"""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterator

from clover_patcher.propose.syntax import Source
from clover_patcher.propose.templates import Proposal, line_slot, prioritised

_TOKEN = re.compile(
    r"\"\"\"|'''|\w+|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[<>=!+\-*/%&|^:]=|\*\*|//|->|[^\w\s]"
)
_CLOSERS = (")", "]", "}", ":", '"', "'", ",", "):", "]:", "))", '"""', "'''", ")]", "])", "()")
_WORDS = {"else if": "elif", "elseif": "elif", "&&": "and", "||": "or", "!": "not ", "null": "None",
          "true": "True", "false": "False", "++": " += 1", "--": " -= 1"}  # fmt: skip
_SWAPS = {"=": ("==", ":="), "==": ("=",), ";": (":", ","), ":": (";", "=", ","), ",": (":", ".")}


def propose_syntax(source: Source, line: int) -> list[Proposal]:
    """Edits of the line and of the one before it, where a bracket is often lost."""
    found: list[Proposal] = []
    for place in (line, line - 1):
        if 1 <= place <= source.line_count:
            found.extend(_line_edits(source, place, 1.0 if place == line else 0.4))
    return prioritised(found)


def _line_edits(source: Source, line: int, weight: float) -> Iterator[Proposal]:
    slot = line_slot(source, line)
    for new, share in _texts(slot.original):
        yield Proposal(slot.start, slot.end, new, "syntax", weight * share, slot, new)
    start = source.line_start(line)
    unit, present = source.indent_unit, source.indentation(line)
    levels = {present + unit, present.removesuffix(unit), ""}
    for other in range(max(1, line - 12), line):
        levels |= {source.indentation(other), source.indentation(other) + unit}
    for level in sorted(levels - {present}):
        yield Proposal(start, slot.start, level, "syntax", 0.5 * weight, None)
    yield Proposal(start, source.next_line_start(line), "", "syntax", 0.1 * weight, slot, "")


def _texts(text: str) -> Iterator[tuple[str, float]]:
    """Other texts for a line, with weights."""
    body, comment = _split_comment(text)
    for closer in _CLOSERS:
        yield f"{body}{closer}{comment}", 2.0
    for wrong, right in _WORDS.items():
        if wrong in body:
            yield text.replace(wrong, right), 2.0
    tokens = list(_TOKEN.finditer(body))
    for token in tokens:
        start, end = token.span()
        yield text[:start] + text[end:], 0.7
        for other in _SWAPS.get(token[0], ()):
            yield text[:start] + other + text[end:], 1.0
        for near in difflib.get_close_matches(token[0], keyword.kwlist, n=2, cutoff=0.6):
            yield text[:start] + near + text[end:], 1.0
        for added in (")", "]", "}", ",", ":", "(", "[", "{", '"', "'", " in ", " = ", "="):
            yield text[:end] + added + text[end:], 0.5
        yield f"{text[:start]}({text[start:]}", 0.3


def _split_comment(text: str) -> tuple[str, str]:
    """The code of a line and its comment with the blanks before it."""
    match = re.search(r"\s*(?:#.*)?$", text)
    assert match is not None
    return text[: match.start()], text[match.start() :]
