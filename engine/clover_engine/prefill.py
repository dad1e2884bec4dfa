"""Prefill with reuse: the last context's cache, and snapshots along it to come back to."""

from __future__ import annotations

import torch
from torch import Tensor

from clover_engine.decode.common import Limits, Start, Tally
from clover_engine.errors import RequestCancelled
from clover_engine.model import Cache, Clover
from clover_engine.model.cache import Snapshot

CHUNK = 128


class PrefixCache:
    """Keeps one context in memory. `start` gives a cache that holds exactly the asked tokens."""

    def __init__(self, model: Clover) -> None:
        self.model = model
        self._forget()

    def _forget(self) -> None:
        self.cache = Cache(self.model.config)
        self.tokens: list[int] = []
        self.marks: list[tuple[int, Snapshot, Tensor | None]] = [(0, self.cache.snapshot(), None)]

    def start(self, tokens: list[int], limits: Limits, tally: Tally) -> tuple[Start, int]:
        """Prefills `tokens`; also how many of them were cached. The returned cache may be
        decoded on: the next call rewinds it. Raises RequestCancelled between chunks."""
        shared = _common(self.tokens, tokens)
        self.marks = [m for m in self.marks if m[0] <= shared and m[1].valid]
        if not self.marks:
            self._forget()
        length, snapshot, logits = self.marks[-1]
        self.cache.restore(snapshot)
        self.tokens = tokens[:length]
        cached = length
        while length < len(tokens):
            if limits.interrupted() is not None:
                raise RequestCancelled("cancelled while the context was read")
            chunk = tokens[length : length + CHUNK]
            logits = self._pass(chunk, tally)
            length += len(chunk)
            self.tokens = tokens[:length]
            self.marks.append((length, self.cache.snapshot(), logits))
        assert logits is not None
        return Start(self.cache, logits), cached

    def _pass(self, chunk: list[int], tally: Tally) -> Tensor:
        hidden, _ = self.model(torch.tensor([chunk]), cache=self.cache)
        tally.forward_passes += 1
        return self.model.head(hidden[0, -1])


def _common(a: list[int], b: list[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
