"""SGLang's Qwen3.5 decoder layers with block rows, and clean rows that can be taken back.

Without `rows.active()` every layer is Qwen3.5's own: contexts and plain decoding run SGLang's
kernels. With it, a GDN layer reads its history straight from SGLang's state pool and computes the
rows in torch (`model.block`); nothing is written until `commit`. That is why denoising cannot
corrupt a state, where SGLang's own dLLM passes would advance it at every step. Full attention runs
SGLang's backend with the block's keys in slots that the scheduler lent for this block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.attention.mamba.mamba import mamba_v2_sharded_weight_loader
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_context import get_attn_backend
from sglang.srt.model_loader.weight_utils import sharded_weight_loader
from sglang.srt.models import qwen3_5
from sglang.srt.runtime_context import linear_attn_parallel_group
from sglang.srt.utils import set_weight_attrs
from torch import Tensor, nn

from clover_engine.model import block
from clover_engine.serving.rows import Rows, active

CHUNK = 16


class HistoryShare(nn.Module):
    """The history unit's parameters (this rank's heads), named as in checkpoints."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.score = nn.Linear(hidden, heads)
        self.calibration = nn.Parameter(torch.zeros(heads))
        self.scale = nn.Parameter(torch.ones(heads))


@dataclass(slots=True)
class _Pending:
    """The last pass of clean rows, to be committed or forgotten."""

    done: block.CleanPass
    conv_pool: Tensor  # [slots, C, K-1]
    state_pool: Tensor  # [slots, Hv, V, K]
    slots: Tensor  # [N]


class CloverGatedDeltaNet(qwen3_5.Qwen3_5GatedDeltaNet):  # type: ignore[misc]
    """Qwen3.5's GDN layer; `forward` also serves block rows and clean rows to verify."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        tp = self.attn_tp_size
        self.heads = block.Heads(
            self.num_k_heads // tp, self.num_v_heads // tp, self.head_k_dim, self.head_v_dim
        )
        self.history = HistoryShare(self.hidden_size, self.heads.v_heads)
        channels, width = self.conv1d.weight.shape[0], self.conv_kernel_size
        self.conv1d.right = nn.Parameter(torch.zeros(channels, width))
        group = linear_attn_parallel_group()
        by_head = {"weight_loader": sharded_weight_loader(0, parallel_group=group)}
        for parameter in self.history.parameters():
            set_weight_attrs(parameter, by_head)
        shares = [(self.key_dim, 0, False), (self.key_dim, 0, False), (self.value_dim, 0, False)]
        loader = mamba_v2_sharded_weight_loader(shares, tp, self.attn_tp_rank)
        set_weight_attrs(self.conv1d.right, {"weight_loader": loader})
        self._pending: _Pending | None = None

    def forward(self, hidden_states: Tensor, forward_batch: Any) -> Tensor:
        """hidden_states [rows, hidden] → same, before the sum over tensor-parallel ranks."""
        rows = active()
        if rows is None:
            out: Tensor = super().forward(hidden_states, forward_batch)
            return out
        q, k, v, z, b, a = self.fix_query_key_value_ordering(
            *self._forward_input_proj(hidden_states)
        )
        mixed = rows.pad(torch.cat([q, k, v.flatten(1)], dim=-1))
        memory = self._memory(forward_batch)
        if rows.kind == "block":
            out = self._block(rows, mixed, hidden_states, memory)
        else:
            out = self._clean(rows, mixed, (a, b), memory)
        heads = rows.flatten(out).to(z.dtype)  # [rows, Hv, V]
        normed = self.norm(heads.flatten(0, 1), z.flatten(0, 1))
        projected: Tensor = self.out_proj(normed.view(len(z), -1))[0]
        return projected

    def commit(self, counts: Sequence[int]) -> None:
        """Advances each request's state by the first `counts[n]` rows of the last clean pass."""
        pending, self._pending = self._pending, None
        assert pending is not None, "commit without a pass of clean rows"
        tails, states = pending.done.after(counts)
        moved = [i for i, count in enumerate(counts) if count]
        slots = pending.slots[moved]
        pending.conv_pool[slots] = tails[moved].transpose(1, 2).to(pending.conv_pool.dtype)
        pending.state_pool[slots] = states[moved].transpose(2, 3).to(pending.state_pool.dtype)

    def _memory(self, forward_batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's convolution and state pools, and each request's slot in them."""
        pool = get_attn_backend().req_to_token_pool
        cache = pool.mamba2_layer_cache(self.layer_id)
        slots = pool.get_mamba_indices(forward_batch.req_pool_indices)
        return cache.conv[0], cache.temporal, pool.translate_mamba_indices(slots).long()

    def _read(self, memory: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype) -> block.Memory:
        """Copies of tails [N, J-1, C], in `dtype`, and states [N, Hv, K, V]."""
        conv, state, slots = memory
        return block.Memory(conv[slots].transpose(1, 2).to(dtype), state[slots].transpose(2, 3))

    def _weight(self) -> Tensor:
        """The causal convolution's weight, [C, K]."""
        weight: Tensor = self.conv1d.weight
        return weight.flatten(1)

    def _block(
        self, rows: Rows, mixed: Tensor, x: Tensor, memory: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        history, mask = self.history, rows.mask(x.device)
        unit = block.HistoryUnit(rows.pad(history.score(x)), history.calibration, history.scale)
        weights = block.Convolution(self._weight(), self.conv1d.right)
        held = self._read(memory, mixed.dtype)
        return block.block_rows(mixed, held, weights, unit, self.heads, mask)

    def _clean(
        self,
        rows: Rows,
        mixed: Tensor,
        gates: tuple[Tensor, Tensor],
        memory: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        a, b = gates
        held = self._read(memory, mixed.dtype)
        inputs = torch.cat([held.tail, mixed], dim=1)
        g, beta = (rows.pad(x) for x in block.gates(a, b, self.dt_bias, self.A_log))
        done = block.clean_rows(
            inputs, held.state, self._weight(), block.Gates(g, beta), self.heads, CHUNK
        )
        self._pending = _Pending(done, *memory)
        return done.out


class CloverLinearLayer(qwen3_5.Qwen3_5LinearDecoderLayer):  # type: ignore[misc]
    """A decoder layer around `CloverGatedDeltaNet`."""

    def __init__(
        self,
        config: Any,
        layer_id: int,
        quant_config: Any = None,
        prefix: str = "",
        alt_stream: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, layer_id, quant_config, prefix, alt_stream, **kwargs)
        self.linear_attn = CloverGatedDeltaNet(config, layer_id, quant_config, alt_stream, prefix)


class CloverAttentionLayer(qwen3_5.Qwen3_5AttentionDecoderLayer):  # type: ignore[misc]
    """Full attention: causal for clean rows; history and the whole block for block rows."""

    def self_attention(
        self, positions: Tensor, hidden_states: Tensor, forward_batch: Any
    ) -> Tensor:
        rows = active()
        both_ways = rows is not None and rows.kind == "block"
        self.attn.attn_type = AttentionType.ENCODER_ONLY if both_ways else AttentionType.DECODER
        out: Tensor = super().self_attention(positions, hidden_states, forward_batch)
        return out


LAYERS = {"attention": CloverAttentionLayer, "linear_attention": CloverLinearLayer}
