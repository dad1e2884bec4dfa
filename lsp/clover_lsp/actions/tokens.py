"""Source text as tokens, for any language: good enough to compare edits, no parser.

Blanks and line ends are no tokens. A string's prefix (`f`, `rb`) is a token of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from clover_engine.languages import COMMENTS
from clover_engine.languages import language as known_language

Kind = Literal["name", "number", "string", "comment", "sign"]

_STRINGS = (
    r"\"\"\"[\s\S]*?(?:\"\"\"|\Z)|'''[\s\S]*?(?:'''|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?"
)
_SIGNS = r"[<>=!+\-*/%&|^:]=|\*\*|//|->|=>|::|&&|\|\||\.\.\.|[^\w\s]"


@dataclass(frozen=True, slots=True)
class Token:
    """Characters [start, end) of a text."""

    text: str
    start: int
    end: int
    kind: Kind
    line: int
    """The line it starts on, from 0; a line ends with LF."""


def tokenize(text: str, language: str) -> list[Token]:
    """The tokens of a text in order; never fails."""
    return list(tokens_of(text, language))


def tokens_of(text: str, language: str) -> Iterator[Token]:
    """`tokenize`, one after the other."""
    line = at = 0
    for match in _pattern(language).finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        kind: Kind = match.lastgroup  # type: ignore[assignment]
        yield Token(match[0], at, match.end(), kind, line)


def is_name(text: str) -> bool:
    """Whether a token's text is an identifier or keyword."""
    return text.isidentifier()


@lru_cache(maxsize=32)
def _pattern(language: str) -> re.Pattern[str]:
    mark = COMMENTS.get(known_language(language).manner, "//")
    comment = rf"{re.escape(mark)}[^\n]*"
    if mark == "//":
        comment += r"|/\*[\s\S]*?(?:\*/|\Z)"
    return re.compile(
        rf"(?P<comment>{comment})|(?P<string>{_STRINGS})|(?P<name>[^\W\d]\w*)"
        rf"|(?P<number>\d[\w.]*)|(?P<sign>{_SIGNS})"
    )
