"""How probable a token is after others, by what the repository and the file say.

The estimate starts from the token's share in the repository and is refined order by order, the
repository's counts first, then the file's: with c of n places where the last k tokens stood
having gone on with the token,

    p ← (c + λ_k · p) / (n + λ_k)

(Dirichlet smoothing towards the shorter context, MacKay and Peto 1995). One λ for each order and
scope; ``python -m bench.suggest.ngrams --fit`` fits them on packages that no figure is about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clover_engine.statistics.grams import ORDERS

BASE = 0.05
"""Occurrences that each token of the vocabulary is taken to have had."""


@dataclass(frozen=True, slots=True)
class Lambdas:
    """λ of orders 1, 2, … `ORDERS`, by scope."""

    repository: tuple[float, ...]
    file: tuple[float, ...]


ALONE = Lambdas(
    (130, 70, 43.3, 25.7, 27.3, 28.7, 23.4, 17.6, 11.8, 6.73, 3.47, 2.04),
    (23.7, 7.67, 8.85, 9.42, 8.83, 9.75, 10.5, 11, 10.8, 8.89, 7.02, 5.94),
)
"""Where nothing but counts is known."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one scope: `seen[k - 1]` places where the last k tokens stood, `hits[k]` of them followed
    by the token (`hits[0]`: its places in all), `size` places in all. Both may end early."""

    seen: Sequence[int]
    hits: Sequence[int]
    size: int

    def less(self, other: Counts) -> Counts:
        """Without the places of `other`, which are among them."""
        return Counts(
            _difference(self.seen, other.seen),
            _difference(self.hits, other.hits),
            self.size - other.size,
        )


NOTHING = Counts((), (), 0)


def _difference(more: Sequence[int], less: Sequence[int]) -> list[int]:
    padded = [*less, *[0] * (len(more) - len(less))]
    return [max(0, a - b) for a, b in zip(more, padded, strict=False)]


def probability(
    repository: Counts, file: Counts, vocabulary: int, lambdas: Lambdas = ALONE
) -> float:
    """Of one token, in (0, 1)."""
    hits = sum(c.hits[0] for c in (repository, file) if c.hits)
    p = (hits + BASE) / (repository.size + file.size + BASE * vocabulary)
    return refined(p, repository, file, lambdas)


def refined(p: float, repository: Counts, file: Counts, lambdas: Lambdas) -> float:
    """Another's probability of the token, such as a model's, after the counts are taken in."""
    pairs = ((repository, lambdas.repository), (file, lambdas.file))
    for k in range(1, ORDERS + 1):
        for counts, weights in pairs:
            if k <= len(counts.seen) and (n := counts.seen[k - 1]) > 0:
                c = counts.hits[k] if k < len(counts.hits) else 0
                p = (c + weights[k - 1] * p) / (n + weights[k - 1])
    return p


def log_probability(p: float) -> float:
    return math.log(max(p, 1e-12))
