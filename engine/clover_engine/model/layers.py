"""Small layers shared by all architectures: RMSNorm, rotary embedding, gated MLP."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square norm in float32; `unit_offset` multiplies by (1 + w) (Qwen3.5)."""

    def __init__(self, size: int, eps: float, unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size) if unit_offset else torch.ones(size))
        self.eps = eps
        self.unit_offset = unit_offset

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        scale = self.weight.to(wide)
        if self.unit_offset:
            scale = scale + 1.0
        return F.rms_norm(x.to(wide), (x.shape[-1],), scale, self.eps).to(x.dtype)


class GatedRMSNorm(nn.Module):
    """norm(x) · w · silu(z), the output norm of a Gated DeltaNet head."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        normed = F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)
        return normed * F.silu(z.to(x.dtype))


class Rotary(nn.Module):
    """Rotate-half RoPE on the first `dim` channels of a head (Su et al. 2021).

    No buffer holds the frequencies: a model moved to bfloat16 would round them.
    """

    def __init__(self, dim: int, theta: float) -> None:
        super().__init__()
        self.dim, self.theta = dim, theta

    def table(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin for positions [rows]: two tensors [rows, dim]."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        powers = torch.arange(0, self.dim, 2, dtype=wide, device=positions.device) / self.dim
        angles = positions.to(wide)[:, None] * (1.0 / self.theta**powers)  # [rows, dim/2]
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies RoPE to x [..., rows, head_dim] with tables [rows, dim], dim ≤ head_dim."""
    dim = cos.shape[-1]
    turned, rest = x[..., :dim], x[..., dim:]
    half = dim // 2
    swapped = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
    turned = turned * cos + swapped * sin
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


class MLP(nn.Module):
    """down(silu(gate(x)) · up(x))."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out
