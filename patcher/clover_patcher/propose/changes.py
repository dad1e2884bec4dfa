"""An edit as what a model can be asked about: lines that stand there, and lines instead of them."""

from __future__ import annotations

from dataclasses import dataclass

_BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class LineChange:
    """Text with LF line ends. `prefix + old + suffix` is the file, with `new` for `old` after it.

    `prefix` ends with the first line's indentation, `suffix` begins with the last line's end.
    New lines have an `old` that is empty.
    """

    prefix: str
    old: str
    new: str
    suffix: str


def line_change(text: str, start: int, end: int, new: str) -> LineChange:
    """The change of whole lines that `new` in place of the characters [start, end) makes."""
    low, high = text.rfind("\n", 0, start) + 1, _line_end(text, end)
    before, after = text[low:high], text[low:start] + new + text[end:high]
    if start == end == low and new.endswith("\n"):  # new lines before this one
        before, after, high = "", new[:-1], low
        indentation = _indentation(after)
        suffix = "\n" + text[low:]
        return LineChange(text[:low] + indentation, "", after[len(indentation) :], suffix)
    shared = min(len(_indentation(before)), len(_common(before, after)))
    return LineChange(text[: low + shared], before[shared:], after[shared:], text[high:])


def _line_end(text: str, at: int) -> int:
    """Where the line ends that the character before `at` is on, or `at` itself at its start."""
    found = text.find("\n", at if at == 0 or text[at - 1] != "\n" else at - 1)
    return len(text) if found < 0 else found


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANKS))]


def _common(first: str, second: str) -> str:
    size = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        size += 1
    return first[:size]
