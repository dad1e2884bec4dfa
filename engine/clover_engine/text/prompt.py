"""Text around a hole → the context tokens the model was trained on, within its budget.

Layout (the same as `train.samples`)::

    <doc> <snip> snippet … <suf> suffix <pre> prefix [<bug> original] <mid>

What is nearest to the hole is kept. Everything before the prefix must stay as it is while someone
types, or the prefix cache has nothing to reuse: shares are of the context in coarse steps, not of
what a request leaves over, and the prefix gives and takes room in multiples of `CUT` tokens.
"""

from __future__ import annotations

from clover_engine.api import Snippet
from clover_engine.text.fitting import end_of, nearest_last, require_room
from clover_engine.text.tokenizer import Tokenizer

SUFFIX_SHARE = 0.3
"""Share of the context that the suffix may take when the prefix fills the rest."""
SNIPPET_SHARE = 0.25
"""Share of the context that snippets may take when prefix and suffix would fill all of it."""
CUT = 64
"""A prefix that is too long is shortened by a multiple of this many tokens (of fewer, where it has
little room)."""
GRAIN = 32
"""What a request asks for, and the line being typed, are rounded up to so many tokens, so that the
cut does not move with every word."""
_CHARS_PER_TOKEN = 8
"""More text than this per token of room is not even tokenized."""


class Prompt:
    """Builds contexts for one tokenizer and context length."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tok, self.length = tokenizer, length
        names = ("doc", "snip", "suf", "pre", "bug", "mid", "eom", "pad")
        ids = [tokenizer.required(f"<{name}>") for name in names]
        self.doc, self.snip, self.suf, self.pre, self.bug, self.mid, self.eom, self.pad = ids
        self.ends = frozenset({self.eom, self.pad})

    def context(
        self,
        prefix: str,
        suffix: str,
        original: str | None,
        snippets: tuple[Snippet, ...],
        reserve: int,
    ) -> list[int]:
        """Context tokens, at most `length - reserve` of them, ending in <mid>.

        Raises RequestError if `reserve` or `original` leaves no room.
        """
        bug = [] if original is None else [self.bug, *self.tok.encode(original)]
        taken = reserve + 4 + len(bug)
        room = self.length - taken
        require_room(room, reserve, self.length, replaced=len(bug))
        step = self.length // 8
        steady = self.length - -(-taken // step) * step or room  # the same for like requests
        before = self._tail(prefix)
        # As long as the prefix may yet become on this line: joined tokens make it shorter again.
        line = len(self.tok.encode(prefix[prefix.rfind("\n") + 1 :]))
        count = len(before) - line + -(-(line + 1) // GRAIN) * GRAIN
        grown = -(-count // CUT) * CUT
        extra = self._snippets(snippets, int(steady * SNIPPET_SHARE))
        share = max(int(steady * SUFFIX_SHARE), steady - len(extra) - grown)
        after = self._head(suffix, share)
        even = self.length - -(-taken // GRAIN) * GRAIN
        left = (even if even >= CUT else room) - len(extra) - len(after)
        over = (count if left >= 2 * CUT else len(before)) - left
        if over > 0:
            cut = max(1, min(CUT, left // 4))
            before = before[-(-over // cut) * cut :]
        spare = steady - len(extra) - len(after) - grown
        if spare > 0:
            extra = self._snippets(snippets, len(extra) + spare)
        return [self.doc, *extra, self.suf, *after, self.pre, *before, *bug, self.mid]

    @staticmethod
    def seen(suffix: str, single_line: bool) -> str:
        """What of the suffix the model should see: all of it."""
        return suffix

    def split(self, prefix: str) -> tuple[str, str]:
        """The prefix as the context has it, and its end where that must be forced instead."""
        return prefix, ""

    def ending(self, suffix: str) -> list[int]:
        """The tokens that end a candidate text which is to be scored."""
        return [self.eom]

    def _snippets(self, snippets: tuple[Snippet, ...], room: int) -> list[int]:
        """Most relevant nearest to the hole; one that does not fit is left out."""
        pieces = ([self.snip, *self.tok.encode(snippet.text)] for snippet in snippets)
        return nearest_last(pieces, room)

    def _head(self, text: str, room: int) -> list[int]:
        return self.tok.encode(text[: room * _CHARS_PER_TOKEN])[:room]

    def _tail(self, text: str) -> list[int]:
        """Tokens of the end of `text`, at least as many as the context has."""
        return self.tok.encode(end_of(text, self.length * _CHARS_PER_TOKEN))
