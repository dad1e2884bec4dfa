"""Grammars in llama.cpp's notation (GBNF): what a generated text must look like.

A grammar works on characters, so that a forced text may end inside a token of the model, and the
model chooses among all tokens that go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """The text as a terminal."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def starting_with(text: str) -> str:
    """Any text that begins like this one."""
    return f"root ::= {literal(text)} any*\nany ::= [^\\x00]"


def answers(options: Sequence[Sequence[str]]) -> str:
    """Lines ``1: X``, each with one of its options."""
    lines = [
        f"{literal(f'{number}: ')} ({' | '.join(map(literal, choices))})"
        for number, choices in enumerate(options, 1)
    ]
    return "root ::= " + f" {literal(chr(10))} ".join(lines)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\x{ord(char):02X}" if ord(char) < 32 or ord(char) == 127 else char
