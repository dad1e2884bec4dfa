"""Raw text for a place → what is worth showing there, or nothing. Never raises, for any text."""

from __future__ import annotations

from collections.abc import Sequence

from clover_lsp.context.types import Place
from clover_lsp.suggest.blocks import (
    to_block_end,
    without_loops,
    without_open_brackets,
    without_unfinished_end,
)
from clover_lsp.suggest.clean import clean, reindent, without_trailing_blanks
from clover_lsp.suggest.overlap import (
    Fit,
    fit,
    repeats_line_above,
    without_lines_below,
    without_repeated_start,
)
from clover_lsp.suggest.scene import Scene, at_popup, scene
from clover_lsp.suggest.shape import Plan
from clover_lsp.suggest.text import BLANKS, first_line, indent_of, is_blank
from clover_lsp.suggest.types import Draft, Popup, Suggestion

_OPENERS = (":", "{", "(", "[", "then", "do", "else", "=>", ",")
_ROUNDS = 4
_DELETED = 8
"""Characters of a deletion that a longer suggestion must not begin with."""


def polish(
    draft: Draft,
    place: Place,
    plan: Plan,
    popup: Popup | None = None,
    deleted: Sequence[str] = (),
) -> Suggestion | None:
    """The text of `draft` fit for `place`, or None where nothing of it should be shown.

    `plan` is what was asked (`shape.plan(scene.at_popup(place, popup))`). A model's text follows
    `plan.prefix`, any other the cursor; so with a popup both follow the popup's text. The result
    then extends that text and has its range, as the protocol wants it. `deleted`: texts that the
    user removed just now.
    """
    here = scene(at_popup(place, popup))
    text, cut = clean(draft.text, here)
    asked = draft.origin in ("model", "prefetch")
    typed = _after_typed(text, plan.must_start_with if asked else "")
    if typed is None:
        return None
    found = _settled(typed, here, plan.multiline, draft.complete and not cut, popup is None)
    if found is None or not found.text.strip() or _was_deleted(found.text, deleted):
        return None
    if popup is None:
        return Suggestion(
            found.text, draft.confidence, draft.origin, 0, found.replace_after, draft.model
        )
    whole = popup.text + found.text
    before, after = popup.replace_before, popup.replace_after
    return Suggestion(whole, draft.confidence, draft.origin, before, after, draft.model)


def _after_typed(text: str, must_start_with: str) -> str | None:
    """What follows the text that was typed already; None where the draft disagrees with it.

    Blanks may differ: the model writes its own, the document's stay.
    """
    if text.startswith(must_start_with):
        return text[len(must_start_with) :]
    word = must_start_with.lstrip(BLANKS)
    body = text.lstrip(BLANKS)
    return body[len(word) :] if body.startswith(word) else None


def _settled(
    text: str, here: Scene, multiline: bool, complete: bool, may_replace: bool
) -> Fit | None:
    """`_fitted` until nothing changes: a shorter text may fit in a way that the longer did not.
    Text that does not come to rest is rubbish."""
    found = _fitted(text, here, multiline, complete, may_replace)
    for _ in range(_ROUNDS):
        again = _fitted(found.text, here, multiline, True, may_replace)
        if again == found:
            return found
        found = again
    return None


def _fitted(text: str, here: Scene, multiline: bool, complete: bool, may_replace: bool) -> Fit:
    text = reindent(text, here)
    text = _with_start(text, here, multiline)
    text = without_repeated_start(text, here)
    if not multiline:
        text, complete = first_line(text), complete or "\n" in text
    text = without_loops(text)
    ended = to_block_end(text, here)
    if not complete and ended == text:
        ended = without_unfinished_end(text, here)
    text = without_lines_below(without_open_brackets(ended, here), here)
    if repeats_line_above(text, here):
        return Fit("")
    return _with_end(fit(text, here, may_replace), here)


def _with_start(text: str, here: Scene, multiline: bool) -> str:
    """The first line's blanks and line breaks: neither doubled nor pushed down."""
    if here.on_blank_line:
        return _on_blank_line(text, here)
    body = text.lstrip(BLANKS)
    if body.startswith("\n"):
        kept = body.lstrip("\n")
        return "\n" + kept if multiline else ""
    if here.line_before.endswith((" ", "\t", "(", "[", ".")) and not here.in_text:
        return body
    return body if here.line_before.endswith((" ", "\t")) else text


def _on_blank_line(text: str, here: Scene) -> str:
    """Text after nothing but indentation: its own leading indentation counts as repeated, unless
    the cursor stands left of where the block's lines begin."""
    fresh = False
    while "\n" in text and is_blank(first_line(text)):
        text, fresh = text[text.index("\n") + 1 :], True
    lead = indent_of(text)
    body = text[len(lead) :]
    columns = here.indentation.columns(lead)
    if fresh and columns < here.base:
        return ""
    beyond = columns - here.base if fresh else columns
    above = here.above.rstrip(BLANKS)
    expected = here.indentation.columns(indent_of(above))
    if above.endswith(_OPENERS):
        expected += here.indentation.width
    if not beyond or here.base + beyond > expected:
        return body
    return _blanks(beyond, here) + body


def _blanks(columns: int, here: Scene) -> str:
    unit = here.indentation
    if unit.unit != "\t":
        return " " * columns
    return "\t" * (columns // unit.width) + " " * (columns % unit.width)


def _with_end(fitted: Fit, here: Scene) -> Fit:
    """The last line: no blanks at its end, or a line of its own for the bracket that follows."""
    text = without_trailing_blanks(fitted.text)
    rest = here.line_after[fitted.replace_after :]
    if not rest.strip(BLANKS):
        return Fit(text.rstrip(BLANKS + "\n"), fitted.replace_after)
    if "\n" not in text:
        doubled = text.endswith(" ") and rest.startswith((" ", "\t"))
        return Fit(text.rstrip(BLANKS) if doubled else text, fitted.replace_after)
    lines = text.rstrip(BLANKS + "\n")
    if not lines or here.in_text:
        return Fit(lines, fitted.replace_after)
    alone = text.startswith("\n") and rest[0] in ")]}"
    return Fit(lines + "\n" + indent_of(here.line_before) if alone else lines, fitted.replace_after)


def _was_deleted(text: str, deleted: Sequence[str]) -> bool:
    """Is it what the user just removed, a beginning of it, or a longer text that begins so?"""
    offered = " ".join(text.split())
    for removed in deleted:
        gone = " ".join(removed.split())
        if not gone:
            continue
        begins = len(offered) >= 4 and gone.startswith(offered)
        extends = len(gone) >= _DELETED and offered.startswith(gone)
        if offered == gone or begins or extends:
            return True
    return False
