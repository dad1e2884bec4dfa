"""A Clover `config.json` as the configuration that SGLang's Qwen3.5 layers are built from."""

from __future__ import annotations

import copy
from typing import Any

from sglang.srt.configs.qwen3_5 import Qwen3_5TextConfig

from clover_engine.errors import CheckpointError
from clover_engine.model.config import CloverConfig

ARCHITECTURE = "CloverForBlockDiffusion"
_LAYER_NAMES = {"linear_attention": "linear_attention", "full_attention": "attention"}


class CloverServingConfig(Qwen3_5TextConfig):  # type: ignore[misc]
    """Reads the fields of `clover_engine.model.config.CloverConfig`, kept as `clover`.

    Raises `CheckpointError` for a checkpoint that SGLang's hybrid layers cannot run.
    """

    model_type = "clover"
    plugin_problem = ""
    """Set by the plugin where it cannot work: the reason, one line."""

    def __init__(self, **given: Any) -> None:
        if self.plugin_problem:
            raise CheckpointError(self.plugin_problem)
        if "layer_types" not in given:  # transformers makes an empty one to compare with
            super().__init__(**given)
            return
        if given.get("quantization"):
            raise CheckpointError(
                "this checkpoint is quantised for the embedded engine; serve the one that it was "
                "made from"
            )
        clover = CloverConfig.from_hf({**given, "model_type": "clover"})
        _check(clover)
        rope = {
            "rope_type": "default",
            "rope_theta": clover.rope_theta,
            "partial_rotary_factor": clover.partial_rotary_factor,
        }
        ours = set(clover.to_json())
        rest = {name: value for name, value in given.items() if name not in ours}
        super().__init__(
            vocab_size=clover.vocab_size,
            hidden_size=clover.hidden_size,
            intermediate_size=clover.intermediate_size,
            num_hidden_layers=len(clover.layer_types),
            num_attention_heads=clover.num_attention_heads,
            num_key_value_heads=clover.num_key_value_heads,
            head_dim=clover.head_dim,
            max_position_embeddings=clover.max_position_embeddings,
            rms_norm_eps=clover.rms_norm_eps,
            tie_word_embeddings=clover.tie_word_embeddings,
            rope_theta=clover.rope_theta,
            rope_parameters=rope,
            partial_rotary_factor=clover.partial_rotary_factor,
            linear_conv_kernel_dim=clover.linear_conv_kernel_dim,
            linear_key_head_dim=clover.linear_key_head_dim,
            linear_value_head_dim=clover.linear_value_head_dim,
            linear_num_key_heads=clover.linear_num_key_heads,
            linear_num_value_heads=clover.linear_num_value_heads,
            num_experts=clover.num_experts,
            num_experts_per_tok=clover.num_experts_per_tok,
            moe_intermediate_size=clover.moe_intermediate_size,
            shared_expert_intermediate_size=clover.shared_expert_intermediate_size,
            norm_topk_prob=clover.norm_topk_prob,
            architectures=[ARCHITECTURE],
            **rest,
        )
        self.clover_fields = clover.to_json()
        # SGLang finds a pipeline stage's first full-attention layer by this.
        self.full_attention_interval = clover.layer_types.index("full_attention") + 1

    @property
    def clover(self) -> CloverConfig:
        """The checkpoint's own description."""
        return CloverConfig.from_hf(self.clover_fields)

    @property
    def layers_block_type(self) -> list[str]:
        """What SGLang calls each layer's kind."""
        return [_LAYER_NAMES[kind] for kind in self.clover.layer_types]

    def for_layers(self) -> CloverServingConfig:
        """A copy under the model type by which Qwen3.5's layers choose a dense MLP or experts."""
        known = copy.copy(self)
        known.model_type = "qwen3_5_moe_text" if self.num_experts else "qwen3_5_text"
        return known


def _check(config: CloverConfig) -> None:
    problems = {
        "has no linear-attention layer": not config.hybrid,
        "has no full-attention layer": "full_attention" not in config.layer_types,
        "has no output gate": not config.output_gate,
        "has no q/k norm": not config.qk_norm,
        "has attention biases": config.attention_bias or config.output_bias,
        "has masked rows that predict the next token": config.block_shift != 0,
    }
    for problem, found in problems.items():
        if found:
            raise CheckpointError(
                f"this checkpoint {problem}, and SGLang's Qwen3.5 layers need it otherwise; "
                "serve a Clover made from Qwen3.5 or Qwen3.6, or use the embedded engine"
            )
