"""Greedy decoding with this engine's clean rows, as what a server's answers are compared with."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clover_engine.checkpoint.weights import load_model
from clover_engine.model import Cache

TIE = 1e-3
"""Where the best two logits are closer than this, rounding may decide: errors are about 1e-5."""


@dataclass(frozen=True, slots=True)
class Expected:
    ids: tuple[int, ...]
    sure: int
    """So many tokens come before the first tie."""

    def matches(self, ids: Sequence[int]) -> bool:
        """Whether an answer, perhaps a beginning of one, equals these tokens up to the tie."""
        end = min(len(ids), self.sure)
        return tuple(ids[:end]) == self.ids[:end]


class Greedy:
    """Decodes over a checkpoint; remembers its answers."""

    def __init__(self, checkpoint: Path) -> None:
        self._model = load_model(checkpoint)
        self._decode = functools.lru_cache(maxsize=None)(self._run)

    def __call__(self, prompt: Sequence[int], max_new_tokens: int) -> Expected:
        return self._decode(tuple(prompt), max_new_tokens)

    @torch.no_grad()
    def _run(self, prompt: tuple[int, ...], max_new_tokens: int) -> Expected:
        cache, out, sure = Cache(self._model.config), list[int](), max_new_tokens
        rows = list(prompt)
        while len(out) < max_new_tokens:
            hidden, _ = self._model(torch.tensor([rows]), cache=cache)
            best = self._model.head(hidden[0, -1]).topk(2)
            if best.values[0] - best.values[1] < TIE:
                sure = min(sure, len(out))
            rows = [int(best.indices[0])]
            out += rows
        return Expected(tuple(out), sure)
