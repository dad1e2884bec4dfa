"""Prefill with reuse: what earlier contexts left in memory, and places along them to come back to.

A context that changed is recomputed from its first other token. Attention layers can be cut at
any token; the states of DeltaNet layers cannot, so there are *marks*: a state every `CHUNK` tokens,
and the last passes are short enough to be replayed to any of their tokens. Typing and deleting at
the end therefore cost just the tokens that changed, an edit further up at most a chunk more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clover_engine.decode.common import Limits, Start, Tally
from clover_engine.errors import RequestCancelled
from clover_engine.model import Cache, Clover
from clover_engine.model.cache import REPLAY_ROWS, Snapshot

CHUNK = 128
"""Tokens of a pass, and between two marks of a context that was read at once."""
MOST_CONTEXTS = 4
MOST_BYTES = 256 * 1024 * 1024
"""Of all contexts but the newest together."""
MOST_MARKS = 40
MARK_BYTES = 64 * 1024 * 1024
"""Of the states of one context's marks; a large model keeps fewer, further apart."""
REPLAYED = 4 * REPLAY_ROWS
"""Tokens before the end of a context that can be gone back to one by one."""


@dataclass(slots=True)
class _Mark:
    """A place to come back to; `logits` [vocab] follow its last token, where it ended a context."""

    snapshot: Snapshot
    logits: Tensor | None = None

    @property
    def length(self) -> int:
        return self.snapshot.length

    @property
    def first(self) -> int:
        """The earliest length that can be reached from here."""
        return self.length - self.snapshot.replayable

    @property
    def nbytes(self) -> int:
        states = (t for pair in self.snapshot.states for t in pair if t is not None)
        return sum(t.nbytes for t in states)


class _Context:
    """One context in memory."""

    def __init__(self, model: Clover) -> None:
        self.model, self.cache = model, Cache(model.config)
        self.tokens: list[int] = []
        self.marks = [_Mark(self.cache.snapshot())]

    def reach(self, tokens: list[int]) -> tuple[int, _Mark]:
        """How many of `tokens` need not be computed again, and the mark to start from."""
        shared = _common(self.tokens, tokens)
        best = (0, self.marks[0])
        for mark in self.marks:
            whole = mark.length == len(tokens) and mark.logits is not None
            limit = shared if whole else min(shared, len(tokens) - 1)
            anywhere = not self.model.config.hybrid or mark.first <= limit
            at = mark.length if mark.length <= limit else limit if anywhere else 0
            best = max(best, (at, mark), key=lambda found: found[0])
        return best

    def rewind(self, length: int, mark: _Mark) -> None:
        """Goes back to `length` from `mark`, as `reach` said."""
        self.cache.restore(self._place(length, mark))
        if self.cache.length > length:
            inside = length - mark.first
            self.cache.keep(inside)
            self.marks.append(_Mark(self.cache.snapshot_within(mark.snapshot, inside)))
        self.tokens = self.tokens[:length]
        self.marks = [m for m in self.marks if m.length <= length and m.snapshot.valid]

    def fork(self, length: int, mark: _Mark) -> _Context:
        """A context of its own with the first `length` tokens, as `reach` said."""
        twin = _Context(self.model)
        twin.cache = self.cache.copy(self._place(length, mark))
        if twin.cache.length > length:
            twin.cache.keep(length - mark.first)
        twin.tokens = self.tokens[:length]
        logits = mark.logits if length == mark.length else None
        twin.marks.append(_Mark(twin.cache.snapshot(), logits))
        return twin

    def _place(self, length: int, mark: _Mark) -> Snapshot:
        """The snapshot to go back to; without DeltaNet layers every length is one."""
        if length < mark.length and not self.model.config.hybrid:
            return Snapshot(length, [])
        return mark.snapshot

    def read(self, tokens: list[int], limits: Limits, tally: Tally) -> Tensor:
        """Appends what `tokens` has more. Returns the logits [vocab] after it."""
        while (left := len(tokens) - len(self.tokens)) > 0:
            if limits.interrupted() is not None:
                raise RequestCancelled("cancelled while the context was read")
            # The last pass is a short one, so that it can be replayed.
            size = left if left <= REPLAY_ROWS else min(CHUNK, left - REPLAY_ROWS)
            at = len(self.tokens)
            hidden, _ = self.model(torch.tensor([tokens[at : at + size]]), cache=self.cache)
            tally.forward_passes += 1
            self.tokens = tokens[: at + size]
            logits = self.model.logits(hidden[0, -1]) if size == left else None
            self.marks.append(_Mark(self.cache.snapshot(replay=size <= REPLAY_ROWS), logits))
            self._thin()
        logits = self.marks[-1].logits
        assert logits is not None
        return logits

    def _thin(self) -> None:
        """Keeps the marks within bounds; those that stand closest go first."""
        rows = 0
        for mark in reversed(self.marks):
            rows += mark.snapshot.replayable
            if rows > REPLAYED:
                mark.snapshot.forget_replay()
        while len(self.marks) > 4 and (
            len(self.marks) > MOST_MARKS or sum(m.nbytes for m in self.marks) > MARK_BYTES
        ):
            gaps = [
                (after.length - before.length, i)
                for i, (before, after) in enumerate(
                    zip(self.marks[:-3], self.marks[2:-1], strict=True), 1
                )
            ]
            del self.marks[min(gaps)[1]]

    @property
    def nbytes(self) -> int:
        return self.cache.nbytes() + sum(m.nbytes for m in self.marks)


class PrefixCache:
    """Keeps the last contexts in memory. `start` gives a cache that holds exactly the asked tokens.

    A few contexts, so that going to and fro between files or places costs nothing: at most
    `MOST_CONTEXTS`, and `MOST_BYTES` for all but the newest.
    """

    def __init__(self, model: Clover) -> None:
        self.model = model
        self._contexts: list[_Context] = []  # the newest last

    def start(self, tokens: list[int], limits: Limits, tally: Tally) -> tuple[Start, int]:
        """Prefills `tokens`; also how many of them were cached. The returned cache may be
        decoded on until the next call. Raises RequestCancelled between passes."""
        context, cached = self._nearest(tokens)
        self._contexts.append(context)
        logits = context.read(tokens, limits, tally)
        self._evict()
        return Start(context.cache, logits), cached

    def _nearest(self, tokens: list[int]) -> tuple[_Context, int]:
        """The context that has most of `tokens`, taken out of the list and rewound to them, or,
        where that would lose more than it saves, a copy of its beginning."""
        if not self._contexts:
            return _Context(self.model), 0
        found = [(context.reach(tokens), context) for context in reversed(self._contexts)]
        (length, mark), context = max(found, key=lambda f: f[0][0])
        if len(context.tokens) - length > length:
            return context.fork(length, mark), length
        self._contexts.remove(context)
        context.rewind(length, mark)
        return context, length

    def _evict(self) -> None:
        older = self._contexts[:-1]
        while older and (len(older) >= MOST_CONTEXTS or sum(c.nbytes for c in older) > MOST_BYTES):
            del older[0]
        self._contexts = [*older, self._contexts[-1]]


def _common(a: list[int], b: list[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
