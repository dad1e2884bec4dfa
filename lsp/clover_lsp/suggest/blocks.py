"""Where a text of several lines has to end: with its block, before a loop, at a whole line."""

from __future__ import annotations

import re

from clover_lsp.suggest.brackets import State, scan
from clover_lsp.suggest.scene import Scene
from clover_lsp.suggest.syntax import SPANNING
from clover_lsp.suggest.text import first_line, indent_of, is_blank, is_word

_LOOP = re.compile(r"(?P<unit>[^\n]{3,40}?)(?P=unit){3,}")


def to_block_end(text: str, here: Scene) -> str:
    """`text` without what follows the block, docstring or comment that the cursor is in or opens.

    A closing bracket or word stays if nothing after the cursor closes that block yet.
    """
    if here.in_text:
        return _to_string_end(text, here)
    lines = text.split("\n")
    state = scan(lines[0] + "\n", here.language, here.state)
    lowest = len(here.state.stack) - state.closed
    missing = here.missing - state.closed
    for i, line in enumerate(lines[1:], start=1):
        if _outside(line, state, lines[0], here):
            return "\n".join(lines[:i])
        depth = len(state.stack)
        state = scan(line + "\n", here.language, state)
        newly_closed = lowest - (depth - state.closed)
        if newly_closed <= 0:
            continue
        lowest, missing = lowest - newly_closed, missing - newly_closed
        if missing < 0:
            return "\n".join(lines[:i])
        if len(state.stack) <= lowest:
            return "\n".join(lines[: i + 1])
    return text


def _outside(line: str, state: State, first: str, here: Scene) -> bool:
    """Is a further line left of the block? Lines inside brackets or strings never are."""
    if is_blank(line) or state.quote or len(state.stack) > len(here.state.stack):
        return False
    if _closes(line, state):
        return False
    columns = here.indentation.columns(indent_of(line))
    if not here.on_blank_line:
        return columns <= here.base
    return columns < (here.base or here.indentation.columns(indent_of(first)))


def _closes(line: str, state: State) -> bool:
    """Does the line begin with what closes the innermost open bracket or block?"""
    if not state.stack:
        return False
    closing, body = state.stack[-1], line.lstrip()
    whole = not closing.isalpha() or not is_word(body[len(closing) : len(closing) + 1])
    return body.startswith(closing) and whole


def _to_string_end(text: str, here: Scene) -> str:
    """Text in a string or comment that may span lines ends with the line where that ends."""
    closing = SPANNING.get(here.state.quote)
    if closing is None or (end := text.find(closing)) < 0:
        return text
    if _closed_below(closing, here):
        return text[:end]
    return text[: end + len(first_line(text[end:]))]


def _closed_below(closing: str, here: Scene) -> bool:
    """Does something after the cursor close the string or comment that it is in?"""
    opening = here.state.quote
    if opening == closing:  # each other one opens
        return here.after.count(closing) % 2 == 1
    end, next_opening = here.after.find(closing), here.after.find(opening)
    return end >= 0 and (next_opening < 0 or end < next_opening)


def without_unfinished_end(text: str, here: Scene) -> str:
    """What is whole of a text whose generation was cut off: statements, or the words of a line."""
    lines = text.split("\n")
    if len(lines) == 1:
        end = len(text)
        while end and is_word(text[end - 1]):
            end -= 1
        return text[:end]
    return "\n".join(lines[: _whole_lines(lines[:-1], here)])


def without_open_brackets(text: str, here: Scene) -> str:
    """A text of several lines ends before a bracket or block that it opens and nothing closes."""
    if "\n" not in text or here.in_text:
        return text
    after = scan(text + here.line_after + "\n", here.language, here.state)
    if len(after.stack) <= max(here.pending, len(here.state.stack)):
        return text
    lines = text.split("\n")
    return "\n".join(lines[: _whole_lines(lines, here)])


def _whole_lines(lines: list[str], here: Scene) -> int:
    """How many lines from the first leave nothing open that they opened."""
    state, whole = here.state, 0
    for i, line in enumerate(lines, start=1):
        state = scan(line + "\n", here.language, state)
        if len(state.stack) <= len(here.state.stack) and state.quote == here.state.quote:
            whole = i
    return whole


def without_loops(text: str) -> str:
    """`text` before it begins to repeat itself; a line that loops is left out as a whole."""
    lines = text.split("\n")
    for size in (1, 2, 3, 4):
        for i in range(len(lines) - 3 * size + 1):
            block = lines[i : i + size]
            again = lines[i + size : i + 2 * size] == block == lines[i + 2 * size : i + 3 * size]
            if again and any(map(is_word, "".join(block))):
                return "\n".join(lines[: i + size])
    found = _LOOP.search(text)
    if found and any(map(str.isalpha, found["unit"])):
        return text[: found.start()].rpartition("\n")[0]
    return text
