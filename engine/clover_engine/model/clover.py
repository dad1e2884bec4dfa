"""The network: embedding, layers, final norm, and one head for clean and block rows."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from clover_engine.model.adapter import BlockAdapter
from clover_engine.model.attention import Attention
from clover_engine.model.cache import Cache, KVLayer, StateLayer
from clover_engine.model.config import CloverConfig
from clover_engine.model.deltanet import GatedDeltaNet
from clover_engine.model.layers import MLP, RMSNorm, Rotary
from clover_engine.model.moe import SparseMoE
from clover_engine.model.rows import Layout


class FastPath(Protocol):
    """The same computations faster (room `cpu`), on the same `Cache`."""

    def forward(self, ids: Tensor, layout: Layout, cache: Cache | None, update: bool) -> Tensor:
        """As `Clover.rows`."""

    def head(self, hidden: Tensor) -> Tensor:
        """As `Clover.head`."""


class Layer(nn.Module):
    """Pre-norm mixer and MLP with residuals."""

    def __init__(self, config: CloverConfig, kind: str) -> None:
        super().__init__()
        norm = (config.hidden_size, config.rms_norm_eps, config.norm_unit_offset)
        self.linear = kind == "linear_attention"
        if self.linear:
            self.linear_attn = GatedDeltaNet(config)
        else:
            self.self_attn = Attention(config)
        self.mlp: nn.Module = (
            SparseMoE(config)
            if config.num_experts
            else MLP(config.hidden_size, config.intermediate_size)
        )
        self.input_layernorm = RMSNorm(*norm)
        self.post_attention_layernorm = RMSNorm(*norm)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        rope: tuple[Tensor, Tensor],
        cache: KVLayer | StateLayer | None,
        update: bool,
    ) -> Tensor:
        normed = self.input_layernorm(x)
        if self.linear:
            assert cache is None or isinstance(cache, StateLayer)
            x = x + self.linear_attn(normed, layout, cache, update)
        else:
            assert cache is None or isinstance(cache, KVLayer)
            x = x + self.self_attn(normed, layout, rope, cache, update)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(config, kind) for kind in config.layer_types)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_unit_offset)
        if config.mask_embedding:
            self.mask_embedding = nn.Parameter(torch.zeros(config.hidden_size))


class Clover(nn.Module):
    """A Clover model; `forward` runs clean rows, block rows, or both in one pass."""

    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.rotary = Rotary(config.rotary_dim, config.rope_theta)
        self.adapter = BlockAdapter(config) if config.adapter_rank else None
        if self.adapter is not None:
            self.adapter.attach(self.model.layers)
        self.fused: FastPath | None = None
        """The fast path, if `accelerate` found that it fits; not used where gradients are."""

    def forward(
        self,
        clean: Tensor | None = None,
        blocks: Tensor | None = None,
        cache: Cache | None = None,
        *,
        update: bool = True,
        starts: tuple[int, ...] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One forward pass.

        clean: committed token ids [N, T], appended to `cache` if `update`;
        blocks: ids of blocks being denoised [N, b, B] ([MASK]s included), never cached;
        starts: history length each block reads, cached and clean rows of this pass together;
            None = everything. ValueError for one that `Layout` cannot serve;
        A cache of batch 1 serves any N while `update` is False.
        Returns final hidden states of clean rows [N, T, hidden] and block rows [N, b, B, hidden];
        `head` turns rows into logits.
        """
        history = cache.length if cache is not None else 0
        ids, layout = _join(clean, blocks, starts, history)
        ids = ids.to(self.device)
        layout.check(self.config.hybrid, history)
        if cache is not None:
            cache.check(ids.shape[0], appends=update and layout.clean > 0)
        if self.fused is not None and layout.starts is None and not torch.is_grad_enabled():
            x = self.fused.forward(ids, layout, cache, update)
        else:
            x = self.rows(ids, layout, cache, update)
        if cache is not None and update and layout.clean:
            cache.advanced(layout.clean)
        noisy = x[:, layout.clean :]
        if layout.blocks:
            noisy = noisy.reshape(-1, layout.blocks, layout.block_size, noisy.shape[-1])
        return x[:, : layout.clean], noisy

    def rows(self, ids: Tensor, layout: Layout, cache: Cache | None, update: bool) -> Tensor:
        """All layers and the final norm, [N, rows, hidden]."""
        x = self._embed(ids, layout)
        if self.adapter is not None:
            self.adapter.select(ids[:, layout.clean :] == self.mask_id)
        history = cache.length if cache is not None else 0
        rope = self.rotary.table(layout.positions(history).to(ids.device), x.dtype)
        for i, layer in enumerate(self.model.layers):
            memory = cache.layers[i] if cache is not None else None
            x = layer(x, layout, rope, memory, update)
        out: Tensor = self.model.norm(x)
        return out

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., hidden]."""
        if self.fused is not None and not torch.is_grad_enabled():
            return self.fused.head(hidden)
        logits: Tensor = self.lm_head(hidden)
        return logits

    def logits(self, hidden: Tensor) -> Tensor:
        """`head`, on the CPU: that is where decoders choose tokens, wherever the model is."""
        return self.head(hidden).cpu()

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    def _embed(self, ids: Tensor, layout: Layout) -> Tensor:
        if not self.config.mask_embedding or not layout.blocks:
            return self.model.embed_tokens(ids)  # type: ignore[no-any-return]
        masked = ids == -1
        x = self.model.embed_tokens(ids.masked_fill(masked, 0))
        return torch.where(masked[..., None], self.model.mask_embedding.to(x.dtype), x)

    @property
    def mask_id(self) -> int:
        """The id that stands for [MASK] in block rows; -1 with an own mask embedding."""
        if self.config.mask_embedding or self.config.mask_token_id is None:
            return -1
        return self.config.mask_token_id

    @property
    def has_mask(self) -> bool:
        """Whether there are masked rows at all; a model without them only reads forwards."""
        return self.config.mask_embedding or self.config.mask_token_id is not None

    def parameter_count(self) -> int:
        """Of this model as it was trained, quantised weights included."""
        packed = sum(getattr(module, "packed_weights", 0) for module in self.modules())
        return sum(p.numel() for p in self.parameters()) + packed


def _join(
    clean: Tensor | None, blocks: Tensor | None, starts: tuple[int, ...] | None, history: int
) -> tuple[Tensor, Layout]:
    if clean is None and blocks is None:
        raise ValueError("a pass needs clean rows or block rows")
    if blocks is None:
        assert clean is not None
        return clean, Layout(clean.shape[1])
    if starts is not None:
        starts = tuple(start - history for start in starts)
    count, size = blocks.shape[1:]
    layout = Layout(0 if clean is None else clean.shape[1], count, size, starts)
    flat = blocks.flatten(1)
    return (flat if clean is None else torch.cat([clean, flat], dim=1)), layout
