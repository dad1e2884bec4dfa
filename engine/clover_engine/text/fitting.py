"""Cutting texts to a context's room: what is nearest to the hole stays.

The cuts move by large steps, so that a text that grows by a keystroke keeps its beginning, for the
prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from clover_engine.errors import RequestError
from clover_engine.text.tokenizer import Tokenizer

STEP = 64
"""Tokens: a prefix that is too long is shortened by a multiple of it."""
_LEAST = 16


def require_room(room: int, reserve: int, length: int, replaced: int | None = None) -> None:
    """Raises RequestError where `reserve` and the replaced tokens leave too little of a context."""
    if room < _LEAST:
        also = "" if replaced is None else f" {replaced} replaced,"
        raise RequestError(
            f"no room for context: {reserve} tokens asked for,{also} context {length}; ask for "
            "fewer tokens"
        )


def end_of(text: str, limit: int) -> str:
    """The end of `text`, of `limit` characters at most. The cut moves by an eighth of that, and
    falls on a line's beginning where there is one."""
    if len(text) <= limit:
        return text
    step = max(1, limit // 8)
    cut = -(-(len(text) - limit) // step) * step
    line = text.find("\n", cut)
    return text[cut if line < 0 else line + 1 :]


def last_tokens(tokenizer: Tokenizer, text: str, room: int, chars_per_token: int) -> list[int]:
    """Tokens of the end of `text`, `room` at most; of more characters than that, none is read."""
    ids = tokenizer.encode(end_of(text, room * chars_per_token))
    over = len(ids) - room
    return ids[-(-over // STEP) * STEP :] if over > 0 else ids


def nearest_last(pieces: Iterable[list[int]], room: int) -> list[int]:
    """The pieces, most relevant first, as one run that ends with the first; one that does not fit
    is left out."""
    out: list[int] = []
    for ids in pieces:
        if len(out) + len(ids) <= room:
            out = ids + out
    return out
