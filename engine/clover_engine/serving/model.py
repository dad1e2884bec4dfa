"""Clover's model class for SGLang: `CloverForBlockDiffusion`.

SGLang's text-only Qwen3.5 (dense or with experts) with the layers of `layers`. Clean rows are the
base model's, so contexts, plain decoding, tensor parallelism and quantised experts are SGLang's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor, LogitsProcessorOutput
from sglang.srt.models import qwen3_5, qwen3_5_text
from torch import Tensor, nn

from clover_engine.checkpoint.names import is_new
from clover_engine.errors import CheckpointError
from clover_engine.serving.hf_config import CloverServingConfig
from clover_engine.serving.layers import LAYERS, CloverGatedDeltaNet
from clover_engine.serving.rows import active

_NORMS = ("input_layernorm", "post_attention_layernorm", "q_norm", "k_norm", "model.norm")


class CloverBody(qwen3_5.Qwen3_5ForCausalLM):  # type: ignore[misc]
    decoder_layer_types = LAYERS


class CloverMoeBody(qwen3_5.Qwen3_5MoeForCausalLM):  # type: ignore[misc]
    decoder_layer_types = LAYERS


class CloverForBlockDiffusion(qwen3_5_text.Qwen3_5MoeForCausalLM):  # type: ignore[misc]
    """`forward` serves SGLang's passes, and those that `rows.using` marks."""

    def __init__(
        self, config: CloverServingConfig, quant_config: Any = None, prefix: str = ""
    ) -> None:
        self.body_cls = CloverMoeBody if config.num_experts else CloverBody
        super().__init__(config=config.for_layers(), quant_config=quant_config, prefix=prefix)
        self.clover = config.clover
        self.logits_processor = LogitsProcessor(self.config, return_full_logits=True)
        if self.clover.mask_embedding:
            self.mask_embedding = nn.Parameter(torch.zeros(config.hidden_size))

    @classmethod
    def get_model_config_for_expert_location(cls, config: CloverServingConfig) -> Any:
        if not config.num_experts:
            return None
        return super().get_model_config_for_expert_location(config)

    @property
    def mask_id(self) -> int:
        """What stands for [MASK] in block rows; -1 where it has an embedding of its own."""
        token = self.clover.mask_token_id
        return -1 if self.clover.mask_embedding or token is None else token

    @torch.no_grad()
    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        forward_batch: Any,
        input_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        rows = active()
        if rows is not None and rows.kind == "block" and self.mask_id < 0:
            masked = input_ids < 0
            known = self.get_input_embeddings()(input_ids.masked_fill(masked, 0))
            mask_row = self.mask_embedding.to(known.dtype)
            input_embeds = torch.where(masked[:, None], mask_row, known)
        out = super().forward(input_ids, positions, forward_batch, input_embeds, **kwargs)
        if isinstance(out, LogitsProcessorOutput) and out.next_token_logits is not None:
            self._forbid_mask(out.next_token_logits)
        return out

    def _forbid_mask(self, logits: Tensor) -> None:
        """Plain decoding must not say [MASK], which only the algorithm knows to ban."""
        if self.clover.mask_token_id is not None:
            logits[..., self.clover.mask_token_id] = -torch.inf

    def commit(self, counts: Sequence[int]) -> None:
        """Keeps the first `counts[n]` rows of the last pass of clean rows in every GDN state."""
        for module in self.modules():
            if isinstance(module, CloverGatedDeltaNet):
                module.commit(counts)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Raises `CheckpointError` where parameters of the model are missing."""
        own = dict(self.named_parameters())
        loaded: set[str] = set()
        loaded |= super().load_weights(self._base_weights(weights, own, loaded))
        tied = {"lm_head.weight"} if self.config.tie_word_embeddings else set()
        missing = sorted(set(own) - loaded - tied)
        if missing:
            raise CheckpointError(
                f"the checkpoint lacks {len(missing)} tensors, first {missing[0]!r}; fetch it again"
            )
        return loaded

    def _base_weights(
        self, weights: Iterable[tuple[str, Tensor]], own: dict[str, Tensor], loaded: set[str]
    ) -> Iterator[tuple[str, Tensor]]:
        """Loads what only Clover has; yields the base model's tensors, as its norms want them."""
        for name, value in weights:
            if is_new(name):
                name = name.replace("model.mask_embedding", "mask_embedding")
                if name not in own:
                    raise CheckpointError(
                        f"tensor {name!r} is not of this model; fetch the checkpoint again"
                    )
                loader = getattr(own[name], "weight_loader", None)
                if loader is None:
                    own[name].data.copy_(value)
                else:
                    loader(own[name], value)
                loaded.add(name)
            elif not self.clover.norm_unit_offset and _is_plain_norm(name):
                yield name, (value.float() - 1.0)  # SGLang's norm multiplies by 1 + w
            else:
                yield name, value


def _is_plain_norm(name: str) -> bool:
    return name.removesuffix(".weight").endswith(_NORMS) and ".linear_attn." not in name


EntryClass = [CloverForBlockDiffusion]
