"""Text around a hole → the context tokens the model was trained on, within its budget.

Layout (the same as `train.samples`)::

    <doc> <snip> snippet … <suf> suffix <pre> prefix [<bug> original] <mid>

What is nearest to the hole is kept. Cuts fall on multiples, so that a context which grows by a
keystroke keeps its beginning and the prefix cache stays useful.
"""

from __future__ import annotations

from clover_engine.api import Snippet
from clover_engine.errors import RequestError
from clover_engine.tokenizer import Tokenizer

SUFFIX_SHARE = 0.3
"""Share of the context that the suffix may take when the prefix fills the rest."""
SNIPPET_SHARE = 0.25
"""Share of the context that snippets may take when prefix and suffix would fill all of it."""
CUT = 64
"""A prefix that is too long is shortened by a multiple of this many tokens."""
_CHARS_PER_TOKEN = 8
"""More text than this per token of room is not even tokenized."""


class Prompt:
    """Builds contexts for one tokenizer and context length."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tok, self.length = tokenizer, length
        names = ("doc", "snip", "suf", "pre", "bug", "mid", "eom", "pad")
        ids = [tokenizer.required(f"<{name}>") for name in names]
        self.doc, self.snip, self.suf, self.pre, self.bug, self.mid, self.eom, self.pad = ids

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
        room = self.length - reserve - 4 - len(bug)
        if room < 16:
            raise RequestError(
                f"no room for context: {reserve} tokens asked for, {len(bug)} replaced, context "
                f"{self.length}; ask for fewer tokens"
            )
        extra = self._snippets(snippets, int(room * SNIPPET_SHARE))
        room -= len(extra)
        after = self._head(suffix, room)
        before = self._tail(prefix, room)
        after = after[: max(int(room * SUFFIX_SHARE), room - len(before))]
        over = len(before) - (room - len(after))
        if over > 0:
            before = before[-(-over // CUT) * CUT :]
        spare = room - len(after) - len(before)
        if spare:
            extra = self._snippets(snippets, len(extra) + spare)
        return [self.doc, *extra, self.suf, *after, self.pre, *before, *bug, self.mid]

    def split(self, prefix: str) -> tuple[str, str]:
        """The prefix as the context has it, and its end where that must be forced instead."""
        return prefix, ""

    def ending(self, suffix: str) -> list[int]:
        """The tokens that end a candidate text which is to be scored."""
        return [self.eom]

    def _snippets(self, snippets: tuple[Snippet, ...], room: int) -> list[int]:
        """Most relevant nearest to the hole; one that does not fit is left out."""
        out: list[int] = []
        for snippet in snippets:
            ids = [self.snip, *self.tok.encode(snippet.text)]
            if len(out) + len(ids) <= room:
                out = ids + out
        return out

    def _head(self, text: str, room: int) -> list[int]:
        return self.tok.encode(text[: room * _CHARS_PER_TOKEN])[:room]

    def _tail(self, text: str, room: int) -> list[int]:
        """Tokens of the end of `text`; the cut falls on a multiple of characters, then a line."""
        limit = room * _CHARS_PER_TOKEN
        if len(text) > limit:
            step = limit // 8
            cut = -(-(len(text) - limit) // step) * step
            line = text.find("\n", cut)
            text = text[cut if line < 0 else line + 1 :]
        return self.tok.encode(text)
