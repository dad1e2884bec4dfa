"""What the kinds of next edits share: the moment they are asked at, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from clover_lsp.actions.diff import Hunk, Moved
from clover_lsp.actions.names import Names
from clover_lsp.actions.tokens import Token, tokenize
from clover_lsp.context.types import Problem

NextEditKind = Literal["rename", "repeat", "signature", "diagnostic"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Replace characters [start, end) of the text by `new`."""

    start: int
    end: int
    new: str
    kind: NextEditKind
    confidence: float
    """0..1: the share of such proposals that were right, see `bench/editor/edit.py`."""
    reason: str
    """In words, for people: "rename total to amount"."""


@dataclass(frozen=True)
class Moment:
    """A document when its next edit is asked for."""

    text: str
    language: str
    cursor: int
    history: tuple[str, ...] = ()
    """The document's former whole texts, newest first, without the present one."""
    problems: Sequence[Problem] = ()
    asked: bool = False
    """Asked for by hand: the line being typed counts too."""

    @cached_property
    def tokens(self) -> list[Token]:
        return tokenize(self.text, self.language)

    @cached_property
    def names(self) -> Names:
        return _names(self.text)


@dataclass(frozen=True)
class Change:
    """Everything that happened since one former text."""

    before: str
    language: str
    moved: Moved

    @classmethod
    def since(cls, before: str, moment: Moment) -> Change:
        return cls(before, moment.language, Moved(before, moment.text, moment.language))

    @property
    def hunks(self) -> list[Hunk]:
        return self.moved.hunks

    @cached_property
    def names(self) -> Names:
        """The names of the text before."""
        return _names(self.before)


@lru_cache(maxsize=8)
def _names(text: str) -> Names:
    """Texts are asked for again and again while a document changes step by step."""
    return Names(text)
