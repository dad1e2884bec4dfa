"""Which brackets, blocks and strings are open at a place.

A lexer, not a parser: it knows comments, strings and brackets, which is enough to see what a
suggestion closes, and it takes any text, finished or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from clover_lsp.suggest.languages import COMMENTS, SPANNING, Language

_CLOSER = {"(": ")", "[": "]", "{": "}"}
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


def scan(text: str, language: Language, state: State = NOTHING) -> State:
    """The state after `text` that follows `state`; strays and broken strings are the text's own."""
    stack, closing = list(state.stack), language.closing
    strays: list[tuple[int, str]] = []
    floor, broken, at, quote = len(stack), 0, 0, state.quote
    while True:
        if quote:
            at, quote, snapped = _leave(text, at, quote)
            broken += snapped
            if quote:
                break
        found = language.token.search(text, at)
        if found is None:
            break
        token, at = found.group(), found.end()
        opens = _CLOSER.get(token) or closing.get(token)
        if opens:
            stack.append(opens)
        elif token in ")]}" or token in closing.values():
            if stack and stack[-1] == token:
                stack.pop()
                if len(stack) < floor:
                    floor = len(stack)
                    strays.append((found.start(), token))
            else:
                strays.append((found.start(), token))
        elif len(token) < 3 or token in SPANNING:  # not a character literal such as '('
            quote = token
    return State(tuple(stack), quote, tuple(strays), broken, len(state.stack) - floor)


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


def before_cursor(before: str, language: Language) -> State:
    """The state at the cursor, from the text near it."""
    start = 0
    if len(before) > _WINDOW:
        start = before.find("\n", len(before) - _WINDOW) + 1 or len(before) - _WINDOW
    state = scan(before[start:], language, State(quote=_quote_at(before, start, language)))
    return State(state.stack, state.quote)


def _quote_at(text: str, end: int, language: Language) -> str:
    """The string or comment over several lines that is open at `end`, guessed by counting."""
    for opening in language.spanning:
        closing = SPANNING[opening]
        if opening == closing:
            if text.count(opening, 0, end) % 2:
                return opening
        elif text.rfind(opening, 0, end) > text.rfind(closing, 0, end):
            return opening
    return ""


def after_cursor(after: str, language: Language, quote: str) -> tuple[str, ...]:
    """What the lines below the cursor's line close without having opened it, in order.

    `quote` is the string or comment that is open at the cursor.
    """
    start = after.find("\n")
    if start < 0:
        return ()
    inside = quote if quote in SPANNING else ""
    state = scan(after[start : start + _WINDOW], language, State(quote=inside))
    return tuple(char for _, char in state.strays)
