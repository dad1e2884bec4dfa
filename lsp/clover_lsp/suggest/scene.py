"""What surrounds the cursor, worked out once for all texts that are proposed there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from clover_engine.line_ends import to_lf
from clover_lsp.context.types import Place
from clover_lsp.suggest.brackets import State, after_cursor, before_cursor, scan, unclosed
from clover_lsp.suggest.syntax import Syntax, syntax_of
from clover_lsp.suggest.text import (
    Indentation,
    first_line,
    indent_of,
    indentation,
    is_blank,
    last_line,
    line_above,
    lines_below,
)
from clover_lsp.suggest.types import Popup


@dataclass(frozen=True, slots=True)
class Scene:
    """A place with LF line ends."""

    before: str
    after: str
    identifier: str
    """The client's language id."""
    language: Syntax
    line_before: str
    line_after: str
    above: str
    """The last line above that is not blank."""
    below: tuple[str, ...]
    """Lines below that are not blank."""
    indentation: Indentation
    state: State
    pending: int
    """How many brackets or blocks the lines below close without opening them."""
    missing: int
    """How many brackets or blocks are open that nothing after the cursor closes."""

    @property
    def on_blank_line(self) -> bool:
        return is_blank(self.line_before)

    @property
    def in_text(self) -> bool:
        """Inside a string or a comment, where brackets mean nothing."""
        return bool(self.state.quote)

    @property
    def base(self) -> int:
        """Columns of the cursor line's indentation."""
        return self.indentation.columns(indent_of(self.line_before))


@lru_cache(maxsize=8)
def scene(place: Place) -> Scene:
    """The scene of a place. Takes well under a millisecond, whatever the document's size."""
    before, after = to_lf(place.prefix), to_lf(place.suffix)
    lang = syntax_of(place.language)
    line_before, line_after = last_line(before), first_line(after)
    state, indents = before_cursor(before, lang)
    pending = after_cursor(after, lang, state.quote)
    open_here = scan(line_after + "\n", lang, state).stack
    below = tuple(lines_below(after))
    opened = len(open_here) - len(indents)
    indents = (*indents[: len(open_here)], *[len(indent_of(line_before))] * max(0, opened))
    return Scene(
        before,
        after,
        identifier=place.language,
        language=lang,
        line_before=line_before,
        line_after=line_after,
        above=line_above(before),
        below=below,
        indentation=indentation(before, after, lang.indent),
        state=state,
        pending=len(pending),
        missing=unclosed(open_here, indents, pending, below),
    )


def at_popup(place: Place, popup: Popup | None) -> Place:
    """The place after the popup's item was accepted: what the model and look-ups are asked for."""
    if popup is None:
        return place
    before, after = popup.replace_before, popup.replace_after
    prefix = place.prefix[: len(place.prefix) - before] if before else place.prefix
    return Place(
        place.uri, place.language, prefix + popup.text, place.suffix[after:], place.version
    )


def accepted(place: Place, text: str, before: int = 0, after: int = 0) -> Place:
    """The place after `text` replaced so many characters around the cursor."""
    return at_popup(place, Popup(text, before, after))
