"""The short depthwise convolution of a GDN layer: causal as pretrained, plus a right branch.

The right branch reads the following K positions of the block and starts at zero, so a
converted checkpoint begins exactly at its base's causal behaviour.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def shifted_sum(x: Tensor, weight: Tensor, rows: int) -> Tensor:
    """Σ_j weight[:, j] · x[..., i+j, :] for i in 0..rows-1; x [..., rows+J-1, C], weight [C, J].

    In float32 at least: rounding every product to bfloat16 costs a fifth of the accuracy.
    """
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    x, weight = x.to(wide), weight.to(wide)
    out = x[..., :rows, :] * weight[:, 0]
    for j in range(1, weight.shape[1]):
        out = torch.addcmul(out, x[..., j : j + rows, :], weight[:, j])
    return out


class ShortConv(nn.Module):
    """The weights; `model.block` has the equations. Depthwise, no bias; `weight` [channels, 1, K]
    as in Hugging Face checkpoints."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.empty(channels, 1, width))
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)
        self.right = nn.Parameter(torch.zeros(channels, width))
