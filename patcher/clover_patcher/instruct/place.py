"""The selected lines and what stands around them, as the model sees them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from clover_patcher.errors import UsageError
from clover_patcher.instruct.request import Instruction
from clover_patcher.locate.functions import Function, functions, grammar_of

BEFORE, AFTER = 1_200, 500
"""Characters around the selection that the model reads."""
_NAMES = 40
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
        """What stands before and after, as far as the model must see it.

        That is the rest of the function that holds the selection, and the heads of what is around;
        where nothing is selected, what stands nearest. Small models answer with what they are
        shown: the less is shown, the better (docs/log.md).
        """
        inside = [] if self.is_blank else self._holders()
        first = next((f for f in inside if not f.is_class), None)
        before, after = self.before, self.after
        if not self.is_blank:
            start = self._line(first.start) if first else len(before)
            end = self._line(first.end) - len(before) - len(self.shown) + 1 if first else 0
            before, after = before[start:], after[: max(0, end)]
        shown = _nearest(before, BEFORE)
        heads = [self.before[line] for f in inside if (line := self._line(f.start)) >= 0]
        nearest = _nearest(after[::-1], AFTER)[::-1]
        missing = [head for head in heads if head not in shown]
        return "\n".join([*missing, *shown]).strip("\n"), "\n".join(nearest).strip("\n")

    def names(self) -> list[str]:
        """What the file defines and imports at its top."""
        text = self.whole(self.standing)
        found = top_names(text) if self.language == "python" else None
        if found is None and self.language:
            known = functions(self.language, text.encode())
            found = [f.qualname for f in known if not f.owner]
        return (found or [])[:_NAMES]

    def _holders(self) -> list[Function]:
        """The functions and classes around the selection, outermost first."""
        if not self.language:
            return []
        start = len("\n".join(self.before).encode()) + bool(self.before)
        found = functions(self.language, self.whole(self.standing).encode())
        return [f for f in found if f.start < start < f.end and self._line(f.start) < self._first]

    @property
    def _first(self) -> int:
        return len(self.before)

    def _line(self, offset: int) -> int:
        """The number of the line, from 0, that an offset is in."""
        return self.whole(self.standing).encode().count(b"\n", 0, offset)


def top_names(text: str) -> list[str] | None:
    """The names that a Python file binds at its top; None where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [target.id for target in targets if isinstance(target, ast.Name)]
    return list(dict.fromkeys(found))


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
