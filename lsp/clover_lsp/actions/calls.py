"""Calls read from tokens, in any language with `name(…, …)`: who is called, with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clover_lsp.actions.tokens import Token, is_name

_OPEN, _CLOSE = "([{", ")]}"
_FAR = 400
"""Tokens looked through in search of a bracket."""
_NOT_CALLED = frozenset((
    "if", "for", "while", "return", "in", "and", "or", "not", "def", "fn", "func", "function",
    "switch", "catch", "with", "yield", "await", "lambda", "assert", "del", "raise", "class",
    "elif", "except", "case", "import", "print_function", "is", "else",
))  # fmt: skip
_DEFINES = frozenset(("def", "fn", "func", "function", "class"))


@dataclass(frozen=True, slots=True)
class Call:
    """Token numbers: `callee` of the last name before `opening`; arguments as [first, last)."""

    name: str
    callee: int
    opening: int
    closing: int
    arguments: tuple[tuple[int, int], ...]
    defines: bool
    """It is a definition's list of parameters instead."""


def call_around(tokens: Sequence[Token], number: int) -> Call | None:
    """The innermost call whose argument list token `number` would stand in."""
    depth = 0
    for at in range(number - 1, max(-1, number - _FAR), -1):
        text = tokens[at].text
        if tokens[at].kind != "sign":
            continue
        if text in _CLOSE:
            depth += 1
        elif text in _OPEN:
            if depth == 0:
                return call_at(tokens, at) if text == "(" else None
            depth -= 1
    return None


def call_at(tokens: Sequence[Token], opening: int) -> Call | None:
    """The call whose `(` is token `opening`; None where no plain name stands before it."""
    name = tokens[opening - 1].text if opening else ""
    if not is_name(name) or name in _NOT_CALLED or tokens[opening].text != "(":
        return None
    arguments, first, depth = [], opening + 1, 0
    for at in range(opening + 1, min(len(tokens), opening + _FAR)):
        text = tokens[at].text if tokens[at].kind == "sign" else ""
        if not text:
            continue
        if text in _OPEN:
            depth += 1
        elif text in _CLOSE:
            if depth == 0:
                if at > first:
                    arguments.append((first, at))
                defines = opening > 1 and tokens[opening - 2].text in _DEFINES
                return Call(name, opening - 1, opening, at, tuple(arguments), defines)
            depth -= 1
        elif text == "," and depth == 0:
            arguments.append((first, at))
            first = at + 1
    return None


def texts(tokens: Sequence[Token], span: tuple[int, int]) -> tuple[str, ...]:
    """The tokens' texts."""
    return tuple(token.text for token in tokens[span[0] : span[1]])
