"""The selected lines and what stands around them, as the model sees them."""

from __future__ import annotations

from dataclasses import dataclass

from clover_engine.privacy.secrets import redact
from clover_patcher.errors import UsageError
from clover_patcher.instruct.request import Instruction
from clover_patcher.locate.functions import functions, grammar_of

BEFORE, AFTER = 1_200, 500
"""Characters around the selection that the model reads."""
_LONGEST = 12_000
"""Characters of a selection: longer ones do not fit the answer of a small model."""


@dataclass(frozen=True, slots=True)
class Place:
    """A selection without the margin that all its lines share."""

    path: str
    language: str
    """The grammar's name; empty where there is none."""
    before: tuple[str, ...]
    """The file's lines before the selection."""
    shown: tuple[str, ...]
    """The selected lines without `margin`."""
    after: tuple[str, ...]
    margin: str

    @classmethod
    def of(cls, request: Instruction) -> Place:
        """Raises `UsageError` for a selection that is too long."""
        lines, first, last = request.lines, request.first - 1, request.last
        selected = lines[first:last]
        if sum(map(len, selected)) > _LONGEST:
            raise UsageError("the selection is too long for one answer: select fewer lines")
        margin = shared_margin(selected)
        shown = tuple(line[len(margin) :] if line.strip() else "" for line in selected)
        language = grammar_of(request.path, lines[0].encode()) or ""
        before, after = tuple(lines[:first]), tuple(lines[last:])
        if not any(shown):
            margin = selected[0] or _margin_behind(before, language)
        return cls(request.path, language, before, shown, after, margin)

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands there yet."""
        return not any(self.shown)

    @property
    def code(self) -> str:
        return "\n".join(self.shown)

    @property
    def standing(self) -> str:
        """The selected lines as they are, with their margin."""
        return "\n".join(self.margin + line if line else "" for line in self.shown)

    def whole(self, new: str) -> str:
        """The file's text with `new` in place of the selected lines; an empty `new` removes
        them."""
        middle = new.split("\n") if new else []
        return "\n".join([*self.before, *middle, *self.after])

    def around(self) -> tuple[str, str]:
        """What stands nearest before and after, with the heads of what is around the selection."""
        before = _nearest(self.before, BEFORE)
        heads = [line for line in self._heads() if line not in before]
        after = _nearest(self.after[::-1], AFTER)[::-1]
        return "\n".join([*heads, *before]).strip("\n"), "\n".join(after).strip("\n")

    def _heads(self) -> list[str]:
        """The first lines of the functions and classes that hold the selection."""
        if not self.language:
            return []
        text = "\n".join([*self.before, *self.shown, *self.after]).encode()
        start = len("\n".join(self.before).encode()) + bool(self.before)
        found = [f for f in functions(self.language, text) if f.start < start < f.end]
        lines = text.decode().split("\n")
        numbers = [text.count(b"\n", 0, f.start) for f in found]
        return [lines[number] for number in numbers if number < len(self.before)]

    def secrets(self) -> dict[str, str]:
        """Lines of the selection that hold a secret: how a server sees each → what it is."""
        text = "\n".join([*self.before, *self.shown, *self.after])
        hidden = redact(text).split("\n")[len(self.before) : len(self.before) + len(self.shown)]
        pairs = zip(hidden, self.shown, strict=True)
        return {seen.strip(): line.strip() for seen, line in pairs if seen != line}


def shared_margin(lines: list[str]) -> str:
    """The blanks with which all lines begin that are not blank."""
    margins = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    if not margins:
        return ""
    least, most = min(margins), max(margins)
    same = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), None)
    return least[: len(least) if same is None else same]


def _margin_behind(before: tuple[str, ...], language: str) -> str:
    """The blanks with which new code begins behind these lines."""
    last = next((line for line in reversed(before) if line.strip()), "")
    margin = last[: len(last) - len(last.lstrip(" \t"))]
    opens = last.rstrip().endswith(":" if language == "python" else "{")
    return margin + ("\t" if margin.startswith("\t") else "    ") * opens


def _nearest(lines: tuple[str, ...], room: int) -> list[str]:
    """The last lines, as many as have room."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]
