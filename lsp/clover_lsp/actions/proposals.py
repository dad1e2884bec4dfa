"""What the kinds of next edits share: the moment they are asked at, and what they answer."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from clover_lsp.actions.callchange import CallChange, changed_call
from clover_lsp.actions.calls import Call
from clover_lsp.actions.diff import Hunk, Moved, changed_lines
from clover_lsp.actions.limit import Limit
from clover_lsp.actions.names import Names
from clover_lsp.actions.tokens import Token, tokens_of
from clover_lsp.context.types import Problem

_STEP = 256
"""Tokens made between two looks at the limit."""
NextEditKind = Literal["rename", "repeat", "signature", "diagnostic", "model"]


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
    limit: Limit = field(default_factory=Limit, compare=False)
    """Looked at in every loop over the document or its history."""
    _changed: dict[str, list[tuple[int, int, set[str]]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def tokens(self) -> list[Token]:
        return list(self.limit.each(tokens_of(self.text, self.language), _STEP))

    @cached_property
    def places(self) -> Mapping[str, list[int]]:
        """The numbers of the tokens with a text, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, token in enumerate(self.tokens):
            found[token.text].append(number)
        return found

    def line_of(self, offset: int) -> int:
        """The line of an offset, from 0."""
        return bisect_right(self._line_starts, offset) - 1

    @cached_property
    def _line_starts(self) -> list[int]:
        """Only a line feed ends a line here."""
        starts = [0]
        for line in self.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts[:-1]

    def was_line(self, line: int, stripped: str) -> bool:
        """Whether in a former text something that became this line was just that, without blanks.

        A former text without those characters is not compared; of the others, each only once.
        """
        for before in self.limit.each(self.history):
            if stripped in before and any(
                first <= line < max(last, first + 1) and stripped in old
                for first, last, old in self._changed_lines(before)
            ):
                return True
        return False

    def _changed_lines(self, before: str) -> list[tuple[int, int, set[str]]]:
        known = self._changed.get(before)
        if known is None:
            known = self._changed[before] = changed_lines(before, self.text)
        return known

    @cached_property
    def names(self) -> Names:
        self.limit.check()
        return _names(self.text)


@dataclass(frozen=True)
class Change:
    """Everything that happened since one former text."""

    before: str
    moment: Moment
    moved: Moved

    @classmethod
    def since(cls, before: str, moment: Moment) -> Change:
        return cls(before, moment, Moved(before, moment.text, moment.language))

    @property
    def hunks(self) -> list[Hunk]:
        return self.moved.hunks

    @cached_property
    def names(self) -> Names:
        """The names of the text before."""
        self.moment.limit.check()
        return _names(self.before)

    @cached_property
    def calls(self) -> dict[Hunk, tuple[Call, CallChange]]:
        """The hunks that changed one argument of a call, with the call as it is now."""
        if not self.hunks:
            return {}
        limit = self.moment.limit
        before = list(limit.each(tokens_of(self.before, self.moment.language), _STEP))
        found = {}
        for hunk in limit.each(self.hunks):
            changed = changed_call(hunk, before, self.moment.tokens)
            if changed is not None:
                found[hunk] = changed
        return found

    @cached_property
    def call_changes(self) -> dict[CallChange, set[int]]:
        """How calls changed, each with the numbers of the opening brackets of the calls."""
        found: dict[CallChange, set[int]] = defaultdict(set)
        for call, made in self.calls.values():
            found[made.general].add(call.opening)
        return found


@lru_cache(maxsize=8)
def _names(text: str) -> Names:
    """Texts are asked for again and again while a document changes step by step."""
    return Names(text)
