"""From a model's answer to the new text of the selected lines, or to a complaint in words.

Models answer with more than was asked: the function around, imports in front, the lines before
and after; or with less: "... rest unchanged". What belongs to the selection is cut out, the rest
of the file stays as it is, and what cannot be told apart is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from clover_patcher.instruct.place import Place, shared_margin
from clover_patcher.instruct.sense import lost_names, unbound_names
from clover_patcher.locate.functions import error_count
from clover_patcher.propose.rewrite.answers import Answer, read_answer
from clover_patcher.propose.rewrite.imports import missing_imports
from clover_patcher.propose.rewrite.minimal import is_abbreviated
from clover_patcher.propose.rewrite.replacing import replaced
from clover_patcher.propose.rewrite.secrets import revealed

_EMPTY = re.compile(r"```\w*\s*```")


class Refused(Exception):
    """An answer cannot be used; the message says why, in words for the model and the user."""


class Doubtful(Refused):
    """An answer that can be used, and is probably not what was wanted; `lines` are its."""

    def __init__(self, message: str, lines: NewLines) -> None:
        super().__init__(message)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class NewLines:
    """The new text of the selection, and the imports that stood before it in the answer."""

    text: str
    imports: tuple[str, ...] = ()


def new_lines(answer: str, place: Place, *, may_vanish: bool = False) -> NewLines:
    """What the answer makes of the selected lines; whether names `may_vanish` with them.

    Raises `Refused`, and `Doubtful` for one that can be used at need.
    """
    if may_vanish and _EMPTY.fullmatch(answer.strip()):
        return NewLines("")
    code = _chosen(read_answer(answer), place)
    if is_abbreviated(code, place.language) and not is_abbreviated(place.code, place.language):
        raise Refused("it leaves code out (`...`); write all of the lines")
    lines = _revealed(code, place).rstrip("\n").split("\n")
    lines, imports = _without_imports(lines, place)
    variants = [_placed(lines, place) for lines in _cuts(lines, place)]
    standing = _errors(place, place.standing)
    fitting = (text for text in variants if _errors(place, text) <= standing)
    if (text := next(fitting, None)) is None:
        raise Refused("with it the file has a syntax error; write the lines again, all of them")
    if text == place.standing:
        raise Refused("it is the same as before; do what the instruction says")
    new = NewLines(text, _needed(imports, place, text))
    if not may_vanish and (lost := lost_names(place, text)):
        raise Doubtful(f"{', '.join(lost)} is gone; write all of the selected lines", new)
    if unbound := unbound_names(place, with_imports(place.whole(text), imports)):
        raise Doubtful(f"{', '.join(unbound)} is not defined; import or define it", new)
    return new


def new_file(answer: str, language: str) -> str:
    """The one file that an answer holds. Raises `Refused`."""
    found = read_answer(answer)
    blocks = [block for block in found.blocks if block.complete]
    if not blocks:
        raise Refused("; ".join(found.complaints))
    code = max((block.code for block in blocks), key=len)
    if language and error_count(language, code.encode()):
        raise Refused("it has a syntax error; write the file again")
    return code


def _chosen(answer: Answer, place: Place) -> str:
    """The block that is the new version: the one that is most like the old one."""
    for pair in answer.replacements:
        if (changed := replaced(place.code, pair)) is not None:
            return changed
    blocks = [block for block in answer.blocks if block.complete] or list(answer.blocks)
    if not blocks or not blocks[0].complete:
        raise Refused("; ".join(answer.complaints) or "no code block was found")
    old = place.code.strip("\n")
    codes = [block.code for block in blocks]
    codes = [code for code in codes if code.strip("\n") != old] or codes  # shown once more
    if len(codes) == 1 or place.is_blank:
        return codes[0]
    return max([*codes, "\n\n".join(codes)], key=lambda code: _likeness(code, place.code))


def _likeness(code: str, other: str) -> float:
    return SequenceMatcher(None, code.split("\n"), other.split("\n"), autojunk=False).ratio()


def _revealed(code: str, place: Place) -> str:
    """The code with secrets back in place that a server saw as stars. Raises `Refused`."""
    text = revealed(place.whole(place.standing), code)
    if text is None:
        raise Refused("it would write stars over a secret; select lines without it")
    return text


def _cuts(lines: list[str], place: Place) -> Iterator[list[str]]:
    """The answer's lines, and without what stands before and after the selection anyway."""
    inner = _inner(lines, place)
    if inner is not None:
        yield inner
    yield lines
    first = next((line for line in place.shown if line.strip()), "")
    extra = first[: len(first) - len(first.lstrip(" \t"))]
    if extra:  # the first line was deeper than others, and the answer begins at the margin
        yield [extra + line if line.strip() else line for line in lines]


def _inner(lines: list[str], place: Place) -> list[str] | None:
    """The part of the answer that belongs to the selection, where the answer has more.

    The surplus must stand in the file to the letter, blanks aside: lines right before and after.
    """
    says = [line.strip() for line in lines]
    before = [line.strip() for line in place.before]
    after = [line.strip() for line in place.after]
    shown = [line.strip() for line in place.shown]
    head = _overlap(before[::-1], says, shown[0])
    tail = _overlap(after, says[head:][::-1], shown[-1])
    if not (head or tail) or head + tail >= len(lines):
        return None
    inner = lines[head : len(lines) - tail]
    margin = shared_margin(inner)
    return [line[len(margin) :] if line.strip() else "" for line in inner]


def _overlap(beside: Sequence[str], says: Sequence[str], edge: str) -> int:
    """How many lines at the start of `says` repeat what is beside the selection.

    `beside` goes away from the selection, `says` towards it. At least one of the lines must be
    telling, and the selection's own edge must not look the same.
    """
    for count in range(min(len(beside), len(says) - 1), 0, -1):
        same = list(says[:count]) == list(beside[:count])[::-1]
        telling = [line for line in says[:count] if len(line) > 4]
        if same and telling and says[0] != edge:
            return count
    return 0


def _placed(lines: list[str], place: Place) -> str:
    """The lines behind the selection's margin, with its kind of indentation."""
    if any(line.startswith("\t") for line in (*place.shown, place.margin)):
        lines = [_tabbed(line) for line in lines]
    return "\n".join(place.margin + line if line.strip() else "" for line in lines)


def _tabbed(line: str) -> str:
    blanks = len(line) - len(line.lstrip(" "))
    return "\t" * (blanks // 4) + " " * (blanks % 4) + line[blanks:]


def _errors(place: Place, text: str) -> int:
    return error_count(place.language, place.whole(text).encode()) if place.language else 0


def _without_imports(lines: list[str], place: Place) -> tuple[list[str], list[str]]:
    """Python: the answer without the imports at its top that the selection has not."""
    if place.language != "python":
        return lines, []
    head = 0
    while head < len(lines) and (not lines[head].strip() or _is_import(lines[head])):
        head += 1
    imports = [line for line in lines[:head] if line.strip()]
    begins = next((line for line in place.shown if line.strip()), "")
    if not imports or head == len(lines) or _is_import(begins) or place.is_blank:
        return lines, []
    return lines[head:], imports


def _is_import(line: str) -> bool:
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError):
        return False
    return bool(body) and all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


def _needed(imports: list[str], place: Place, text: str) -> tuple[str, ...]:
    """Those of the imports that bind names which the file uses now and does not have."""
    after = place.whole(text)
    return tuple(line for line in imports if missing_imports(line, after) != after)


def with_imports(text: str, imports: Sequence[str]) -> str:
    """The file's text with these imports behind its own."""
    return missing_imports("\n".join(imports), text)
