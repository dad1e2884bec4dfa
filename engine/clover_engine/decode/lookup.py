"""Drafts that cost no pass: copy what followed the same tokens earlier.

The caller's own drafts come first as long as they agree with what was generated, then the text
being replaced (an edit repeats most of it), then the whole context. A wrong guess costs a few rows
of the next pass and never changes the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LONGEST = 4
"""Longest run of last tokens that is looked for."""
SHORTEST_IN_CONTEXT = 2


class Lookup:
    """Looks in `drafts`, `original` (the tokens being replaced, may be empty) and `context`.

    It remembers how far the original has been copied: ask it about one text, as that grows.
    """

    def __init__(
        self,
        original: Sequence[int],
        context: Sequence[int],
        drafts: Sequence[Sequence[int]] = (),
    ) -> None:
        self.original, self.context = list(original), list(context)
        self.drafts = [list(draft) for draft in drafts]
        self._original, self._context = _text(original), _text(context)
        self._place, self._done = 0, 0  # the last whole run's end in the original; tokens then

    def draft(self, generated: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` tokens that may follow `generated`; [] where nothing matches."""
        if not generated or limit <= 0:
            return []
        done = len(generated)
        for draft in self.drafts:
            if len(draft) > done and draft[:done] == list(generated):
                return draft[done : done + limit]
        if (at := self._resume(generated)) is not None:
            return self.original[at : at + limit]
        tail = _text([*self.context[-LONGEST:], *generated[-LONGEST:]][-LONGEST:])
        for length in range(LONGEST, SHORTEST_IN_CONTEXT - 1, -1):
            found = self._context.rfind(tail[-length:], 0, len(self._context) - 1)
            if found >= 0:
                return self.context[found + length : found + length + limit]
        return []

    def _resume(self, generated: Sequence[int]) -> int | None:
        """Where the original goes on after `generated`: after the longest run of its last tokens.

        Of several places the one nearest to where the copy would be if tokens had been replaced
        one for one since the last whole run; those before that run only if none comes after it,
        as an edit seldom goes back.
        """
        done, tail = len(generated), _text(generated[-LONGEST:])
        straight = self._place + done - self._done
        for length in range(len(tail), 0, -1):
            ends = _ends(self._original, tail[-length:])
            at = min(ends, key=lambda end: (end < self._place, abs(end - straight)), default=None)
            if at is not None:
                if length in (LONGEST, done):
                    self._place, self._done = at, done
                return at
        return None


def _text(tokens: Sequence[int]) -> str:
    """Tokens as characters, for the speed of searching in a string."""
    return "".join(map(chr, tokens))


def _ends(text: str, run: str) -> Iterator[int]:
    """Where each occurrence of `run` ends."""
    at = text.find(run)
    while at >= 0:
        yield at + len(run)
        at = text.find(run, at + 1)
