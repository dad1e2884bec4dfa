"""What to ask the engine for at a place, or why nothing should be asked.

*Token healing.* A prefix that ends inside a word, or in blanks, ends inside a token, and a model
that never saw such cuts answers badly. `plan(..., heal=True)` cuts the prefix back to where a token
surely ends and moves the rest into `Plan.must_start_with`. The caller gives the engine
`Plan.prefix`, and passes `must_start_with` on where the engine can force it. `polish` then expects
raw text that begins with it: text that does not is dropped, and what was typed is removed from
text that does, so blanks and words never appear twice. Models that are trained on cuts anywhere
(clover-nano) do better without it: then `must_start_with` is "" and the prefix is whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from clover_lsp.context.types import Place
from clover_lsp.suggest.scene import Scene, scene
from clover_lsp.suggest.syntax import SPANNING
from clover_lsp.suggest.text import BLANKS, indent_of, is_blank, is_word

Lines = Literal["auto", "single"]

LONGEST_LINE = 2_000
"""Characters of a line beyond which it is data, not something a person types."""
MOST_AFTER = 8
"""Characters other than brackets that may stand after the cursor (as llama.vim counts)."""
LINE_TOKENS, BLOCK_TOKENS = 32, 64
_HEALED = 40
"""Characters that healing may cut off; a longer word is data."""
_COLON_BLOCK = re.compile(
    r"\s*(?:async\s+)?(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b.*:$"
)
_WORD_BLOCK = re.compile(r"\b(?:then|do|repeat|else)$|\bfunction\b[^()]*\([^()]*\)$")
_CLOSERS = re.compile(r"[\s)\]}>\"'`;,:]*$")
_SIMPLE = re.compile(r"[\s()\[\]{}<>\"'`;,:]")


@dataclass(frozen=True, slots=True)
class Plan:
    """One request. `prefix` and `suffix` have LF line ends, whatever the document has."""

    prefix: str
    suffix: str
    must_start_with: str
    """The end of the document's own prefix that the text has to begin with; see the module."""
    multiline: bool
    stop: tuple[str, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing should be asked here; `reason` is for logs and the status."""

    reason: str


def plan(
    place: Place, *, lines: Lines = "auto", heal: bool = True, invoked: bool = False
) -> Plan | Skip:
    """What to ask at `place` (at `scene.at_popup(place, popup)` where a popup is open).

    `invoked`: the user asked for it, so text after the cursor is no reason to stay silent.
    """
    if place.prefix.endswith("\r") and place.suffix.startswith("\n"):
        return Skip("between the two characters of a line end")
    here = scene(place)
    reason = _against(here, invoked)
    if reason:
        return Skip(reason)
    multiline = lines == "auto" and opens_block(here)
    prefix, must = _heal(here.before) if heal else (here.before, "")
    tokens = BLOCK_TOKENS if multiline else LINE_TOKENS
    return Plan(prefix, here.after, must, multiline, _stop(here, multiline), tokens)


def _against(here: Scene, invoked: bool) -> str:
    """Why nothing should be asked; "" where there is no reason."""
    if is_blank(here.before.replace("\n", "")) and not any(map(is_word, here.after)):
        return "nothing to go by: the document is empty"
    if len(here.line_before) + len(here.line_after) > LONGEST_LINE:
        return f"the line is longer than {LONGEST_LINE} characters"
    if is_word(here.line_before[-1:]) and is_word(here.line_after[:1]):
        return "inside a word"
    if not invoked and len(_SIMPLE.sub("", here.line_after)) > MOST_AFTER:
        return f"more than {MOST_AFTER} characters after the cursor"
    return ""


def opens_block(here: Scene) -> bool:
    """True where a new, still empty block, argument list or docstring begins at the cursor."""
    if not _CLOSERS.match(here.line_after):
        return False
    if here.in_text:
        return here.state.quote in SPANNING and _text_begins(here)
    opener = here.above if here.on_blank_line else here.line_before
    if not _is_opener(here, _code(here, opener)):
        return False
    outer = here.indentation.columns(indent_of(opener))
    if here.on_blank_line and here.base < outer:
        return False
    inner = here.indentation.columns(indent_of(here.below[0])) if here.below else 0
    return not here.below or inner <= outer


def _is_opener(here: Scene, line: str) -> bool:
    """Does a block begin after `line`? Call brackets count only where the cursor is below them."""
    if here.language.blocks == "end" and _WORD_BLOCK.search(line):
        return True
    if here.language.name in ("python", "plain") and _COLON_BLOCK.match(line):
        return True
    return line.endswith("{") or (here.on_blank_line and line.endswith(("(", "[")))


def _text_begins(here: Scene) -> bool:
    """A docstring or block comment whose opening is all there is of it."""
    line = here.above if here.on_blank_line else here.line_before
    return line.rstrip(BLANKS).endswith(("/**", here.state.quote))


def _code(here: Scene, line: str) -> str:
    """`line` without a comment at its end."""
    for mark in here.language.line_comments:
        at = line.find(f" {mark}")
        line = line[:at] if at >= 0 else line
    return line.rstrip(BLANKS)


def _stop(here: Scene, multiline: bool) -> tuple[str, ...]:
    if not multiline:
        return ("\n",)
    stops = ["\n\n\n"]
    if here.in_text:
        stops.append(SPANNING[here.state.quote])
    elif here.below and sum(map(is_word, here.below[0])) >= 4:
        stops.append("\n" + here.below[0])
    return tuple(stops)


def _heal(before: str) -> tuple[str, str]:
    """(prefix up to where a token ends, the rest): a word and the blanks before it are cut off.

    Indentation stays: models are trained on holes that begin after it.
    """
    cut = len(before)
    while cut and is_word(before[cut - 1]):
        cut -= 1
    start = cut
    while cut and before[cut - 1] in BLANKS:
        cut -= 1
    if not cut or before[cut - 1] == "\n":
        cut = start
    return (before, "") if len(before) - cut > _HEALED else (before[:cut], before[cut:])
