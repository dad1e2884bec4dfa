"""Which rows a pass of the dLLM algorithm carries. Torch only, no SGLang.

SGLang's own passes (reading a context, plain decoding) have no `Rows`: the model then behaves as
Qwen3.5 does. A pass with `Rows` never changes a GDN state or a convolution tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass, request after request along dimension 0.

    `block`: a block being denoised, bidirectional, reading the history before it.
    `clean`: token-causal continuation of the history, to be verified and perhaps committed.
    """

    kind: Literal["block", "clean"]
    counts: tuple[int, ...]
    """Rows of each request, all positive."""

    def mask(self, device: torch.device) -> Tensor:
        """True where a padded batch [N, max rows] has a row."""
        counts = torch.tensor(self.counts, device=device)
        return torch.arange(max(self.counts), device=device) < counts[:, None]

    def pad(self, flat: Tensor) -> Tensor:
        """[rows, ...] → [N, max rows, ...], zeros where a request has no row."""
        mask = self.mask(flat.device)
        padded = flat.new_zeros(*mask.shape, *flat.shape[1:])
        padded[mask] = flat
        return padded

    def flatten(self, padded: Tensor) -> Tensor:
        """[N, max rows, ...] → [rows, ...]."""
        return padded[self.mask(padded.device)]

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:
        """[rows, ...] → each request's rows."""
        return torch.split(flat, list(self.counts))


_active: Rows | None = None


def active() -> Rows | None:
    """The rows of the pass that runs now; None for SGLang's own passes."""
    return _active


@contextmanager
def using(rows: Rows) -> Iterator[None]:
    """Marks the forward pass inside as one over `rows`. A scheduler runs one pass at a time."""
    global _active
    assert _active is None, "passes do not nest"
    _active = rows
    try:
        yield
    finally:
        _active = None
