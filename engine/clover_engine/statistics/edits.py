"""What the counts say about an edit: the log-probability of the changed lines against the old.

The lines that an edit touches are taken out of the counts first: a line that is wrong would
otherwise speak for itself.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from clover_engine.statistics.cutter import SEPARATOR, Cutter
from clover_engine.statistics.grams import ORDERS, Grams
from clover_engine.statistics.mixture import (
    ALONE,
    NOTHING,
    Counts,
    Lambdas,
    log_probability,
    probability,
)

_BREAK = re.compile(r"\n+[ \t]*")
"""The tokenizer makes one word of it, whatever stands around it."""


class FileStatistics:
    """One text with LF line ends, and the repository that it is a part of (or not).

    `counted`: this file's text as `repository` counts it, which may be older; None if it does not.
    Used by one thread at a time.
    """

    def __init__(
        self,
        text: str,
        cutter: Cutter,
        repository: Grams | None = None,
        counted: str | None = None,
        *,
        lambdas: Lambdas = ALONE,
    ) -> None:
        self.text, self._cutter, self._lambdas = text, cutter, lambdas
        self._repository = repository
        breaks = [m.span() for m in _BREAK.finditer(text)]
        self._breaks = [0, *(start for start, _ in breaks), len(text)]
        self._ends = [0, *(end for _, end in breaks), len(text)]
        self._tokens, self._places = _cut_at(text, {*self._breaks, *self._ends}, cutter)
        self._grams = Grams.of([self._tokens])
        self._older = None
        if counted is not None:
            self._older = self._grams if counted == text else Grams.of([cutter.cut(counted)])
        self._regions: dict[tuple[int, int], Region] = {}

    def delta(self, start: int, end: int, new: str) -> float:
        """log p(after) − log p(before), nats, for `new` in place of the characters [start, end)."""
        region = self.region(start, end)
        low, high = region.span
        after = self.text[low:start] + new + self.text[end:high]
        return region.logprob(self._cutter.cut(after)) - region.before

    def logprob(self, start: int, end: int, new: str) -> float:
        """Of the lines that hold [start, end), with `new` there, and the line end after them."""
        region = self.region(start, end)
        low, high = region.span
        return region.logprob(self._cutter.cut(self.text[low:start] + new + self.text[end:high]))

    def region(self, start: int, end: int) -> Region:
        """The whole lines of [start, end), with the line break before and the one after them."""
        first = max(0, bisect_right(self._breaks, max(0, start - 1)) - 1)
        last = min(max(bisect_left(self._breaks, end), first + 1), len(self._breaks) - 1)
        found = self._regions.get((first, last))
        if found is None:
            span = (self._breaks[first], self._ends[last])
            found = Region(self, span, self._places[span[0]], self._places[span[1]])
            self._regions[first, last] = found
        return found

    def counts(self, context: Sequence[int], token: int) -> tuple[Counts, Counts]:
        """Of the repository without this file, and of this file, nothing taken out."""
        file = _counts(self._grams, context, token)
        if self._repository is None:
            return NOTHING, file
        whole = _counts(self._repository, context, token)
        if self._older is None:
            return whole, file
        same = self._older is self._grams
        return whole.less(file if same else _counts(self._older, context, token)), file

    def chance(self, context: Sequence[int], token: int, region: Region) -> float:
        repository, file = self.counts(context, token)
        own = file.less(region.counts(context, token))
        return probability(repository, own, self._cutter.size, self._lambdas)

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens


class Region:
    """Tokens [low, high) of a file, counted out."""

    def __init__(self, file: FileStatistics, span: tuple[int, int], low: int, high: int) -> None:
        self.span, self._file = span, file
        padded = [*[SEPARATOR] * ORDERS, *file.tokens, SEPARATOR]
        self._tokens = padded
        self._low, self._high = low + ORDERS, high + ORDERS
        self.left = padded[self._low - ORDERS : self._low]
        self.tokens = padded[self._low : self._high]
        self._places: dict[int, list[int]] = {}
        for at in range(self._low, min(self._high + ORDERS, len(padded))):
            self._places.setdefault(padded[at - 1], []).append(at)
        self._known: dict[tuple[int, ...], float] = {}
        self.before = self.logprob(self.tokens)

    def logprob(self, tokens: Sequence[int]) -> float:
        """Of `tokens` in the region's place, nats."""
        whole = [*self.left, *tokens]
        total = 0.0
        for at in range(ORDERS, len(whole)):
            key = tuple(whole[at - ORDERS : at + 1])
            value = self._known.get(key)
            if value is None:
                chance = self._file.chance(key[:-1], key[-1], self)
                self._known[key] = value = log_probability(chance)
            total += value
        return total

    def counts(self, context: Sequence[int], token: int) -> Counts:
        """What the region itself adds to the file's counts."""
        tokens, low, high = self._tokens, self._low, self._high
        seen, hits = [0] * ORDERS, [0] * (ORDERS + 1)
        hits[0] = tokens[low:high].count(token)
        for at in self._places.get(context[-1], ()):
            least = 0 if at < high else at - high  # shorter contexts are not of the region
            for k in range(1, ORDERS + 1):
                if tokens[at - k] != context[-k]:
                    break
                if k > least:
                    seen[k - 1] += 1
                    hits[k] += tokens[at] == token
        return Counts(seen, hits, high - low)


def _counts(grams: Grams, context: Sequence[int], token: int) -> Counts:
    return Counts(grams.contexts(context), grams.followed(context, token), len(grams))


def _cut_at(text: str, places: set[int], cutter: Cutter) -> tuple[list[int], dict[int, int]]:
    """The text's tokens, and how many of them stand before each place where words meet."""
    tokens: list[int] = []
    found = {}
    ordered = sorted(places)
    for low, high in zip(ordered, [*ordered[1:], len(text)], strict=True):
        found[low] = len(tokens)
        tokens += cutter.cut(text[low:high])
    return tokens, found
