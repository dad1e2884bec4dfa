"""The rows of one forward pass.

A pass carries `clean` committed tokens (token-causal) followed by `blocks` blocks of
`block_size` rows each (bidirectional inside the block, reading only the history before their
start). Row order along dimension 1 is [clean | block 0 | block 1 | …].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows a pass has, and where they stand.

    `starts[b]` counts the history tokens that block b reads (cached and clean rows of this pass
    together); None means all of them. In a hybrid model a start inside this pass's clean rows
    must be a multiple of `block_size` (training) or their end (decoding).
    """

    clean: int
    blocks: int = 0
    block_size: int = 0
    starts: tuple[int, ...] | None = None

    @property
    def block_rows(self) -> int:
        return self.blocks * self.block_size

    @property
    def rows(self) -> int:
        return self.clean + self.block_rows

    def positions(self, history: int) -> Tensor:
        """Absolute position of every row, [rows]."""
        clean = torch.arange(history, history + self.clean)
        if not self.blocks:
            return clean
        starts = self.start_tensor(history)  # [blocks]
        inside = torch.arange(self.block_size)
        return torch.cat([clean, (starts[:, None] + inside).reshape(-1)])

    def start_tensor(self, history: int) -> Tensor:
        """Absolute start of every block, [blocks]."""
        if self.starts is None:
            return torch.full((self.blocks,), history + self.clean)
        return torch.tensor(self.starts)
