"""Raw generated text → text that a document could hold: line ends, markers, control characters."""

from __future__ import annotations

import re

from clover_engine.line_ends import to_lf
from clover_lsp.suggest.scene import Scene
from clover_lsp.suggest.syntax import MARKUP
from clover_lsp.suggest.text import BLANKS, TAB_WIDTH, Indentation, indent_of, is_blank

_MARKER = re.compile(
    r"<(?:pad|mask|eom|doc|pre|suf|mid|bug|snip|r\d\d?|s|/s|unk|bos|eos|EOT|PRE|SUF|MID|END"
    r"|fim_\w{1,20}|end_of_\w{1,20}|start_of_\w{1,20}|file_sep|repo_name|filename)>"
    r"|<\|[\w.:-]{1,40}\|>|<\uff5c[\w.:\u2581-]{1,40}\uff5c>|\[MASK\]"
)
_HTML = frozenset(("<pre>", "<mask>", "<s>", "</s>"))
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffd"
    "\ud800-\udfff]"
)
"""Control characters, what other programs take for line ends, what reorders text on the screen,
halves of characters. Tab, LF and the joiners of emoji stay."""


def clean(text: str, here: Scene) -> tuple[str, bool]:
    """(text with LF line ends up to the first thing that does not belong there, was it cut?)

    A marker ends a text as the model meant it; any other cut leaves it unfinished.
    """
    text = to_lf(text)
    end = len(text)
    for found in _MARKER.finditer(text):
        if not _own(found.group(), here):
            end = found.start()
            break
    unfit = _UNFIT.search(text, 0, end)
    return text[: unfit.start() if unfit else end], unfit is not None


def _own(marker: str, here: Scene) -> bool:
    """Does the document itself use what looks like a marker of the model?"""
    if marker in _HTML and here.identifier in MARKUP:
        return True
    return marker in here.before or marker in here.after


def reindent(text: str, here: Scene) -> str:
    """`text` with the document's kind of indentation, level for level."""
    if not here.indentation.known:
        return text
    lines = text.split("\n")
    first = 0 if here.on_blank_line and not here.in_text else 1
    indents = [indent_of(line) for line in lines[first:] if not is_blank(line)]
    if here.indentation.unit == "\t":
        step = _step([i for i in indents if "\t" not in i], here)
        lines[first:] = [_with_tabs(line, step) for line in lines[first:]]
    elif any("\t" in i for i in indents):
        unit = here.indentation
        lines[first:] = [_with_spaces(line, unit) for line in lines[first:]]
    return "\n".join(lines)


def _step(indents: list[str], here: Scene) -> int:
    """How many spaces the text uses for one level."""
    widths = {len(i) for i in indents if len(i) > 1}
    for step in (4, 2, 8, 3):
        if widths and all(w % step == 0 for w in widths):
            return 8 if step == 4 and here.base == 0 and widths == {8} else step
    return TAB_WIDTH


def _with_tabs(line: str, step: int) -> str:
    indent = indent_of(line)
    spaces = indent.lstrip("\t")
    if len(spaces) < 2 or "\t" in spaces:
        return line
    tabs = len(indent) - len(spaces) + len(spaces) // step
    return "\t" * tabs + " " * (len(spaces) % step) + line[len(indent) :]


def _with_spaces(line: str, unit: Indentation) -> str:
    indent = indent_of(line)
    levels = len(indent) - len(indent.lstrip("\t"))
    return unit.unit * levels + indent.lstrip("\t") + line[len(indent) :]


def without_trailing_blanks(text: str) -> str:
    """No blanks before line ends; those of the last line are the caller's matter."""
    *full, last = text.split("\n")
    return "\n".join([*(line.rstrip(BLANKS) for line in full), last])
