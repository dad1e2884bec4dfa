"""Single steps of a Llama-shaped model with 4-bit weights, in few operations (CPU, inference).

A step of a 135M model is bound by reading its weights and by the overhead of small operations: the
projections that share an input are one product here, and nothing is left of modules. Weights are
rounded in groups of 32 between each group's least and greatest value, as GGUF's Q4_1 has them, so
a converted Q4_1 model loses nothing but the bfloat16 rounding of scales and activations. Block
rows and passes of many rows go through the model's own layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.checkpoint.weights import load_model
from clover_engine.model.attention import Attention
from clover_engine.model.cache import Cache, KVLayer
from clover_engine.model.clover import Clover, Layer
from clover_engine.model.layers import MLP
from clover_engine.model.qlinear import product
from clover_engine.model.quant import Quantization, quantize
from clover_engine.model.rows import Layout

GROUP = 32
MAX_ROWS = 8
"""Passes of more rows are faster as products of unpacked weights."""


class PackedStep:
    """The fast path of `Clover.fused`: same calls, same cache, 4-bit weights beside the model's."""

    def __init__(self, model: Clover) -> None:
        """Raises ValueError for a model that `fits` refuses. The weights must not change later."""
        if not fits(model):
            raise ValueError("only Llama-shaped models can be packed")
        self.model, self.config = model, model.config
        with torch.no_grad():
            layers = [layer for layer in model.model.layers if isinstance(layer, Layer)]
            self._layers = [_PackedLayer(layer, self.config.rms_norm_eps) for layer in layers]
            self._norm = model.model.norm.weight.float()
            self._dtype = model.model.embed_tokens.weight.dtype  # of caches and results
            self._head = product(quantize(model.lm_head.weight, Quantization(8)))

    def forward(self, ids: Tensor, layout: Layout, cache: Cache | None, update: bool) -> Tensor:
        """Final hidden states [N, rows, hidden] of a pass, as `Clover` has it."""
        t = layout.clean
        if cache is None or ids.shape[0] != 1 or not 0 < t <= MAX_ROWS:
            return self.model.rows(ids, layout, cache, update)
        if not layout.blocks:
            return self._steps(ids, cache, update)
        if not update:
            return self.model.rows(ids, layout, cache, update)
        # Clean rows apart from the block, so that they are what they are without one; it reads
        # them from the cache, which is not told of its new length yet.
        clean = self._steps(ids[:, :t], cache, update)
        apart = Layout(0, layout.blocks, layout.block_size, (t,) * layout.blocks)
        return torch.cat([clean, self.model.rows(ids[:, t:], apart, cache, False)], dim=1)

    def _steps(self, ids: Tensor, cache: Cache, update: bool) -> Tensor:
        """Clean rows ids [1, rows] → [1, rows, hidden]."""
        x = F.embedding(ids[0], self.model.model.embed_tokens.weight).float()  # [rows, hidden]
        positions = torch.arange(cache.length, cache.length + ids.shape[1])
        cos, sin = self.model.rotary.table(positions, self._dtype)
        half = cos.shape[-1] // 2
        turn = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)  # rotate-half's signs, beforehand
        rope = (cos[:, None], turn[:, None])  # [rows, 1, D]
        for own, memory in zip(self._layers, cache.layers, strict=True):
            assert isinstance(memory, KVLayer)
            own.step(x, rope, memory, update)
        normed = F.rms_norm(x, self._norm.shape, self._norm, self.config.rms_norm_eps)
        return normed[None].to(self._dtype)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., hidden]."""
        flat = hidden.reshape(-1, self.config.hidden_size)
        return self._head(flat.float()).view(*hidden.shape[:-1], -1)


def load_packed(directory: Path) -> Clover:
    """Loads a checkpoint in bfloat16, with the fast path if it fits. Raises `CheckpointError`."""
    model = load_model(directory, torch.bfloat16)
    if fits(model):
        model.fused = PackedStep(model)
    return model


def fits(model: Clover) -> bool:
    """Dense layers of plain full attention on a CPU whose sizes the 4-bit product can have."""
    c = model.config
    plain = not (c.hybrid or c.num_experts or c.output_gate or c.qk_norm or c.norm_unit_offset)
    plain = plain and not (c.attention_bias or c.output_bias) and c.rotary_dim == c.head_dim
    sizes = (c.hidden_size, c.intermediate_size, c.head_dim * c.num_attention_heads)
    even = all(size % GROUP == 0 for size in sizes)
    return plain and even and model.lm_head.weight.device.type == "cpu"


class _PackedLayer:
    def __init__(self, layer: Layer, eps: float) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        assert isinstance(attention, Attention) and isinstance(mlp, MLP)
        self.eps, self.dim = eps, attention.dim
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.dtype = attention.k_proj.weight.dtype  # the cache's
        self.norm_in = layer.input_layernorm.weight.float()
        self.norm_mid = layer.post_attention_layernorm.weight.float()
        self.qkv = _Packed(
            [p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
        )
        self.out = _Packed([attention.o_proj.weight])
        self.gate_up = _Packed([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.down = _Packed([mlp.down_proj.weight])

    def step(self, x: Tensor, rope: tuple[Tensor, Tensor], memory: KVLayer, update: bool) -> None:
        """Adds the layer's output to x [rows, hidden] (float32), in place."""
        h = F.rms_norm(x, self.norm_in.shape, self.norm_in, self.eps).bfloat16()
        x += self.out(self._attend(self.qkv(h), rope, memory, update))
        h = F.rms_norm(x, self.norm_mid.shape, self.norm_mid, self.eps).bfloat16()
        gate, up = self.gate_up(h).chunk(2, dim=-1)
        x += self.down(F.silu(gate) * up)

    def _attend(
        self, qkv: Tensor, rope: tuple[Tensor, Tensor], memory: KVLayer, update: bool
    ) -> Tensor:
        """Attention of rows [rows, (heads + 2·kv_heads)·D] over the cache and each other."""
        rows, both = qkv.shape[0], self.heads + self.kv_heads
        parts = qkv.to(self.dtype).view(rows, both + self.kv_heads, self.dim)
        turned = parts[:, :both]
        turned = torch.addcmul(turned * rope[0], turned.roll(self.dim // 2, -1), rope[1])
        q = turned[:, : self.heads].view(rows, self.kv_heads, -1, self.dim)
        k = turned[:, self.heads :].transpose(0, 1)[None]  # [1, kv, rows, D]
        v = parts[:, both:].transpose(0, 1)[None]
        length = memory.length
        memory.append(k, v)
        keys, values = memory.view()
        if not update:
            memory.length = length  # what was written stands beyond the end
        group = q.shape[2]
        q = q.permute(1, 2, 0, 3).reshape(1, self.kv_heads, group * rows, self.dim)
        mask = None if rows == 1 else _mask(rows, length, group)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        out = out.view(self.kv_heads, group, rows, self.dim).permute(2, 0, 1, 3)
        return out.reshape(rows, -1).bfloat16()


class _Packed:
    """Weights [out, in] one below the other, packed for torch's 4-bit product."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        stacked = torch.cat([w.float() for w in weights])
        groups = stacked.view(len(stacked), -1, GROUP)
        low, high = groups.amin(-1), groups.amax(-1)  # [out, groups]
        scales = ((high - low) / 15).clamp_min(1e-30)
        codes = ((groups - low[..., None]) / scales[..., None]).round_().clamp_(0, 15)
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self._codes = pack(codes.flatten(1).to(torch.int32), 2)
        both = torch.stack([scales, low + 8 * scales], dim=-1).transpose(0, 1)  # [groups, out, 2]
        self._scales = both.to(torch.bfloat16).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] → [rows, out], bfloat16."""
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._codes, GROUP, self._scales
        )
        return out


def _mask(rows: int, history: int, group: int) -> Tensor:
    """Which keys each row of each of a group's heads sees, [group·rows, history + rows]."""
    seen = torch.ones(rows, history + rows, dtype=torch.bool).tril(history)
    return seen.repeat(group, 1)
