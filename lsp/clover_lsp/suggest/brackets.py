"""Which brackets, blocks and strings are open at a place.

A lexer, not a parser: it knows comments, strings and brackets, which is enough to see what a
suggestion closes, and it takes any text, finished or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from clover_lsp.suggest.syntax import COMMENTS, SPANNING, Syntax

_INDENT = re.compile(r"[ \t]*")
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = frozenset("()[]{}")
_WINDOW = 8_000
"""Characters on each side of the cursor that are looked at."""


@dataclass(frozen=True, slots=True)
class State:
    """After some text. `stack` holds what would close each open bracket or block."""

    stack: tuple[str, ...] = ()
    quote: str = ""
    """The delimiter of the string or comment that is still open ("" for none)."""
    strays: tuple[tuple[int, str], ...] = ()
    """Where the text closes what it did not open: offset in the text, and the closing."""
    broken: int = 0
    """How many one-line strings ended with their line instead of their quote."""
    closed: int = 0
    """How many of the entries that were open before the text it closed."""


@lru_cache(maxsize=64)
def _end_of_string(quote: str) -> re.Pattern[str]:
    """Matches from inside a one-line string to its quote, its line's end or the text's end."""
    char = re.escape(quote)
    return re.compile(rf"(?:\\.|[^{char}\\\n])*({char}|\n|\\?\Z)", re.DOTALL)


NOTHING = State()


class _Brackets:
    """Iterates over a text's brackets and block words; strings and comments are passed over."""

    def __init__(self, text: str, language: Syntax, quote: str) -> None:
        self.text, self.language, self.quote, self.broken = text, language, quote, 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        at, signs = 0, _BRACKETS | self.language.words
        while True:
            if self.quote:
                at, self.quote, snapped = _leave(self.text, at, self.quote)
                self.broken += snapped
                if self.quote:
                    return
            found = self.language.token.search(self.text, at)
            if found is None:
                return
            token, at = found.group(), found.end()
            if token in signs:
                yield found.start(), token
            elif len(token) < 3 or token in SPANNING:  # not a character literal such as '('
                self.quote = token


def scan(text: str, language: Syntax, state: State = NOTHING) -> State:
    """The state after `text` that follows `state`; strays and broken strings are the text's own."""
    stack, closing = list(state.stack), language.closing
    strays: list[tuple[int, str]] = []
    floor = len(stack)
    brackets = _Brackets(text, language, state.quote)
    for offset, token in brackets:
        opens = _CLOSER.get(token) or closing.get(token)
        if opens:
            stack.append(opens)
        elif not stack or stack[-1] != token:
            strays.append((offset, token))
        else:
            stack.pop()
            if len(stack) < floor:
                floor = len(stack)
                strays.append((offset, token))
    closed = len(state.stack) - floor
    return State(tuple(stack), brackets.quote, tuple(strays), brackets.broken, closed)


def _leave(text: str, at: int, quote: str) -> tuple[int, str, int]:
    """(offset after the string or comment, "" or `quote` if it stays open, 1 if it snapped)."""
    if quote in SPANNING:
        end = _end_of_span(text, at, quote)
        return (len(text), quote, 0) if end < 0 else (end, "", 0)
    if quote in ('"', "'"):
        found = _end_of_string(quote).match(text, at)
        assert found is not None, "the pattern ends at the text's end at the latest"
        last = found.group(1)
        return found.end(), "" if last in (quote, "\n") else quote, int(last == "\n")
    end_of_line = text.find("\n", at)
    return (len(text), quote, 0) if end_of_line < 0 else (end_of_line, "", 0)


def _end_of_span(text: str, at: int, opening: str) -> int:
    """Offset after the end of a string or comment that may span lines; -1 where it stays open."""
    closing = SPANNING[opening]
    while (found := text.find(closing, at)) >= 0:
        slashes = found - len(text[at:found].rstrip("\\")) - at
        if opening in COMMENTS or slashes % 2 == 0:
            return found + len(closing)
        at = found + 1
    return -1


def before_cursor(before: str, language: Syntax) -> tuple[State, tuple[int, ...]]:
    """The state at the cursor, from the text near it, and for each entry of its stack the
    indentation (columns, with tabs at every fourth) of the statement that opened it."""
    start = 0
    if len(before) > _WINDOW:
        start = before.find("\n", len(before) - _WINDOW) + 1 or len(before) - _WINDOW
    text, closing = before[start:], language.closing
    brackets = _Brackets(text, language, _quote_at(before, start, language))
    stack: list[tuple[str, int]] = []
    line, indent = -1, 0
    for offset, token in brackets:
        here = text.rfind("\n", 0, offset) + 1
        if here != line:
            line, indent = here, _indent_at(text, here)
        opens = _CLOSER.get(token) or closing.get(token)
        if opens:
            stack.append((opens, indent))
        elif stack and stack[-1][0] == token:
            _, indent = stack.pop()  # what follows belongs to the statement that began there
    return State(tuple(c for c, _ in stack), brackets.quote), tuple(i for _, i in stack)


def _indent_at(text: str, line: int) -> int:
    found = _INDENT.match(text, line)
    return len(found.group().expandtabs(4)) if found else 0


def _quote_at(text: str, end: int, language: Syntax) -> str:
    """The string or comment over several lines that is open at `end`, guessed by counting."""
    for opening in language.spanning:
        closing = SPANNING[opening]
        if opening == closing:
            if text.count(opening, 0, end) % 2:
                return opening
        elif text.rfind(opening, 0, end) > text.rfind(closing, 0, end):
            return opening
    return ""


def after_cursor(after: str, language: Syntax, quote: str) -> tuple[tuple[str, int], ...]:
    """What the lines below the cursor's line close without having opened it, in order, with the
    indentation of the line it stands on. `quote`: the string or comment open at the cursor."""
    start = after.find("\n")
    if start < 0:
        return ()
    text = after[start : start + _WINDOW]
    state = scan(text, language, State(quote=quote if quote in SPANNING else ""))
    return tuple((c, _indent_at(text, text.rfind("\n", 0, at) + 1)) for at, c in state.strays)


def unclosed(
    stack: Sequence[str],
    indents: Sequence[int],
    pending: Sequence[tuple[str, int]],
    below: Sequence[str],
) -> int:
    """How many entries of the stack nothing after the cursor closes.

    By indentation: what stands further left than the statement that opened an entry closes
    another one. Without a closing left, an entry is closed out of sight unless one of the lines
    `below` is as far left as its statement.
    """
    missing, left = 0, list(pending)
    nearest = min((_indent_at(line, 0) for line in below if line[:1] != "#"), default=-1)
    for closing, indent in zip(reversed(stack), reversed(indents), strict=True):
        if left and left[0][0] == closing and left[0][1] >= indent:
            left.pop(0)
        elif left or nearest <= indent:
            missing += 1
    return missing
