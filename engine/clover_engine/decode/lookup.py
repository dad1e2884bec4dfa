"""Drafts that cost no pass: copy what followed the same tokens earlier.

The caller's own drafts come first as long as they agree with what was generated, then the text
being replaced (an edit repeats most of it), then the whole context. A wrong guess costs a few rows
of the next pass and never changes the result.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 4
"""Longest run of last tokens that is looked for."""
SHORTEST_IN_CONTEXT = 2


class Lookup:
    """Looks in `drafts`, `original` (the tokens being replaced, may be empty) and `context`."""

    def __init__(
        self,
        original: Sequence[int],
        context: Sequence[int],
        drafts: Sequence[Sequence[int]] = (),
    ) -> None:
        self.original, self.context = list(original), list(context)
        self.drafts = [list(draft) for draft in drafts]

    def draft(self, generated: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` tokens that may follow `generated`; [] where nothing matches."""
        if not generated or limit <= 0:
            return []
        done = len(generated)
        for draft in self.drafts:
            if len(draft) > done and draft[:done] == list(generated):
                return draft[done : done + limit]
        for length in range(min(LONGEST, len(generated)), 0, -1):
            at = _nearest(self.original, list(generated[-length:]), done)
            if at is not None:
                return self.original[at : at + limit]
        tail = [*self.context[-LONGEST:], *generated][-LONGEST:]
        for length in range(LONGEST, SHORTEST_IN_CONTEXT - 1, -1):
            at = _last(self.context, tail[-length:])
            if at is not None:
                return self.context[at : at + limit]
        return []


def _nearest(tokens: list[int], run: list[int], near: int) -> int | None:
    """Where the occurrence of `run` ends whose end is nearest to `near`."""
    size = len(run)
    ends = [i + size for i in range(len(tokens) - size + 1) if tokens[i : i + size] == run]
    return min(ends, key=lambda end: abs(end - near), default=None)


def _last(tokens: list[int], run: list[int]) -> int | None:
    """Where the last occurrence of `run` that has something after it ends."""
    size = len(run)
    for i in range(len(tokens) - size - 1, -1, -1):
        if tokens[i] == run[0] and tokens[i : i + size] == run:
            return i + size
    return None
