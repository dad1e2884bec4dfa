"""A low-rank adapter for the masked rows of a converted base model (Hu et al. 2021, 2106.09685).

The base's own weights stay as they are. Each projection's output gets up(down(x)) added on masked
rows alone; clean rows, and the known tokens of a block, are the base model's bit for bit, so drafts
of the adapted rows are verified by the base itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.model.config import CloverConfig


class LowRank(nn.Module):
    """x [..., in] → [..., out] through `rank` channels; nothing at first, since `up` is zero."""

    def __init__(self, size_in: int, size_out: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, size_in) / math.sqrt(size_in))
        self.up = nn.Parameter(torch.zeros(size_out, rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))


class BlockAdapter(nn.Module):
    """One `LowRank` for every projection of every layer (dense MLP, full attention)."""

    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        hidden, wide = config.hidden_size, config.intermediate_size
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        shapes = {
            "self_attn.q_proj": (hidden, queries * (2 if config.output_gate else 1)),
            "self_attn.k_proj": (hidden, keys),
            "self_attn.v_proj": (hidden, keys),
            "self_attn.o_proj": (queries, hidden),
            "mlp.gate_proj": (hidden, wide),
            "mlp.up_proj": (hidden, wide),
            "mlp.down_proj": (wide, hidden),
        }
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    name.replace(".", "_"): LowRank(*shape, config.adapter_rank)
                    for name, shape in shapes.items()
                }
            )
            for _ in config.layer_types
        )
        self._names = list(shapes)
        self._masked: Tensor | None = None  # [N, block rows, 1] of this pass

    def attach(self, layers: Iterable[nn.Module]) -> None:
        """Adds the adapter to the outputs of the projections of `layers`."""
        for own, layer in zip(self.layers, layers, strict=True):
            assert isinstance(own, nn.ModuleDict)
            for name in self._names:
                low_rank = own[name.replace(".", "_")]
                layer.get_submodule(name).register_forward_hook(partial(self._add, low_rank))

    def select(self, masked: Tensor) -> None:
        """Says which block rows of the pass that follows are masked, [N, block rows]."""
        self._masked = masked[..., None] if masked.shape[1] else None

    def _add(
        self, low_rank: nn.Module, _: nn.Module, inputs: tuple[Tensor], output: Tensor
    ) -> Tensor:
        """A forward hook: inputs [N, rows, in], output [N, rows, out]; block rows come last."""
        if self._masked is None:
            return output
        first = output.shape[1] - self._masked.shape[1]
        extra: Tensor = low_rank(inputs[0][:, first:]) * self._masked
        if first == 0:
            return output + extra
        output[:, first:] += extra  # in place: the clean rows are not even copied
        return output
