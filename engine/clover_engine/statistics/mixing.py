"""Token counts mixed into a model's distribution, in the model's own process (numpy, numba).

For models with clover-nano's vocabulary only. The counts of the repository come from a file that
the index's process writes (`store.py`); those of the open file from the request's own texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clover_engine.cpu.counts import refine
from clover_engine.cpu.kernels import Array
from clover_engine.statistics.cutter import SEPARATOR, Cutter
from clover_engine.statistics.grams import ORDERS, Grams
from clover_engine.statistics.mixture import WITH_MODEL, Lambdas

_CHUNK = 1500
_CHUNKS = 512


class Mixer:
    """Refines the distributions at one place of one file. Not for several threads at once.

    `before` and `after` are the file's tokens on both sides of the place, `skip` the repository's
    tokens that are an older state of this file. `end`, if given, is what a line break counts as:
    the token that ends a hole of a single line.
    """

    def __init__(
        self,
        before: Sequence[int],
        after: Sequence[int],
        vocabulary: int,
        *,
        breaks: Sequence[int] = (),
        end: int | None = None,
        repository: Grams | None = None,
        skip: tuple[int, int] = (0, 0),
        lambdas: Lambdas = WITH_MODEL,
    ) -> None:
        self._before = [SEPARATOR] * ORDERS + list(before[-ORDERS:])
        self._file = np.array([*before, SEPARATOR, *after], np.uint16)
        grams = repository if repository is not None else Grams((), ())
        self._tokens = np.asarray(grams.tokens, np.uint16)
        self._order = np.asarray(grams.order, np.uint32)
        self._starts = np.asarray(grams.starts, np.uint32)
        self._skip = np.array(skip, np.int64)
        self._alias = np.full(65536, -1, np.int32)
        self._alias[:vocabulary] = np.arange(vocabulary)
        self._alias[SEPARATOR] = -1
        if end is not None:
            self._alias[list(breaks)] = end
        self._strengths = np.array([lambdas.repository, lambdas.file], np.float64)
        self._matches = np.zeros((2, len(self._file)), np.int32)
        self._counts = np.zeros(vocabulary, np.float64)
        self._touched = np.zeros(vocabulary, np.int32)

    def __call__(self, probs: Tensor, made: Sequence[int], rows: Sequence[int] = ()) -> Tensor:
        """Distributions [R, vocab] after the tokens `made` in the hole and, for row i, `rows[:i]`
        as well; a new tensor of the same type."""
        mixed = np.ascontiguousarray(probs.double().numpy())
        if mixed is probs.numpy() or np.shares_memory(mixed, probs.numpy()):
            mixed = mixed.copy()
        for row in range(len(mixed)):
            context = [*self._before, *made, *rows[:row]][-ORDERS:]
            self.refine(mixed[row], context)
        return torch.from_numpy(mixed).to(probs.dtype)

    def refine(self, p: Array, context: Sequence[int]) -> None:
        """Refines one distribution float64 [vocab] in place."""
        refine(
            p, np.array(context, np.int64), self._tokens, self._order, self._starts, self._skip,
            self._file, self._matches, self._alias, self._strengths, self._counts, self._touched,
            SEPARATOR,
        )  # fmt: skip


class Chunks:
    """Cuts texts that change a little from call to call: what is the same is remembered."""

    def __init__(self, cutter: Cutter) -> None:
        self._cutter = cutter
        self._known: dict[str, list[int]] = {}

    def cut(self, text: str) -> list[int]:
        """The tokens of the text, as `Cutter.cut` gives them."""
        ids: list[int] = []
        at = 0
        while at < len(text):
            end = self._end(text, at)
            piece = text[at:end]
            found = self._known.get(piece)
            if found is None:
                if len(self._known) >= _CHUNKS:
                    self._known.clear()
                self._known[piece] = found = self._cutter.cut(piece)
            ids += found
            at = end
        return ids

    @staticmethod
    def _end(text: str, at: int) -> int:
        """Where the next chunk begins: at a line break that is the first of its run."""
        found = text.find("\n", at + _CHUNK)
        while found > 0 and text[found - 1] in "\r\n":
            found = text.find("\n", found + 1)
        return len(text) if found < 0 else found
