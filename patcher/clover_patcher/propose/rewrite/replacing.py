"""Putting one text in place of another that stands in a file exactly once."""

from __future__ import annotations

from clover_patcher.propose.rewrite.answers import Replacement


def replaced(text: str, pair: Replacement) -> str | None:
    """The text with `pair.old` replaced by `pair.new`; None unless `old` stands there once.

    First to the letter, then line by line without blanks at line ends, then with the whole
    passage moved by one indentation, as models do that see a method without its class.
    """
    if not pair.old.strip():
        return None
    if text.count(pair.old) == 1:
        return text.replace(pair.old, pair.new)
    if pair.old in text:
        return None
    lines, old = text.split("\n"), pair.old.strip("\n").split("\n")
    for shift in (False, True):
        found = [at for at in range(len(lines) - len(old) + 1) if _same(lines, at, old, shift)]
        if len(found) == 1:
            at = found[0]
            new = pair.new.strip("\n").split("\n") if pair.new.strip() else []
            margin = _shift(lines, at, old) if shift else ""
            moved = [margin + line if line.strip() else line for line in new]
            return "\n".join([*lines[:at], *moved, *lines[at + len(old) :]])
        if found:
            return None
    return None


def _same(lines: list[str], at: int, old: list[str], shift: bool) -> bool:
    here = [line.rstrip() for line in lines[at : at + len(old)]]
    wanted = [line.rstrip() for line in old]
    if not shift:
        return here == wanted
    margin = _shift(lines, at, old)
    return bool(margin) and here == [margin + line if line else line for line in wanted]


def _shift(lines: list[str], at: int, old: list[str]) -> str:
    """The blanks that stand in the file before the passage and not in the answer."""
    number = next((n for n, line in enumerate(old) if line.strip()), 0)
    here, wanted = lines[at + number], old[number]
    extra = len(here) - len(here.lstrip()) - (len(wanted) - len(wanted.lstrip()))
    return here[:extra] if extra > 0 else ""
