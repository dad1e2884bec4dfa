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

    `starts[b]` counts this pass's clean rows that block b reads, after the whole cached history;
    None means all of them. Below zero, so many rows of the cached history are left out as well. In
    a hybrid model it must be a multiple of `block_size` (training) or the clean rows' end
    (decoding), since only the GDN states of those places are at hand.
    """

    clean: int
    blocks: int = 0
    block_size: int = 0
    starts: tuple[int, ...] | None = None

    def check(self, hybrid: bool, history: int) -> None:
        """Raises ValueError for starts that this pass after `history` rows cannot serve."""
        if self.starts is None:
            return
        if len(self.starts) != self.blocks:
            raise ValueError(f"{len(self.starts)} starts for {self.blocks} blocks")
        for start in self.starts:
            if not (0 if hybrid else -history) <= start <= self.clean:
                raise ValueError("a block's start lies outside the rows that it can read")
            if hybrid and start != self.clean and start % self.block_size:
                raise ValueError("a block's start is no multiple of the block size")

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
        return history + torch.tensor(self.starts)
