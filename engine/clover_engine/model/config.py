"""What `config.json` says: one frozen description that every layer is built from.

Understood `model_type`s: `clover` (our own), `qwen3_5_moe`, `qwen3_5`, `qwen3_next`, `qwen3`,
`qwen3_moe`, `qwen2` and `llama`, with or without the `_text` suffix and the `text_config` level.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from clover_engine.errors import CheckpointError

LayerType = Literal["linear_attention", "full_attention"]


@dataclass(frozen=True, slots=True)
class CloverConfig:
    vocab_size: int
    hidden_size: int
    layer_types: tuple[LayerType, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int = 0
    """Dense MLP width; 0 where every layer is a mixture of experts."""

    rope_theta: float = 10_000.0
    partial_rotary_factor: float = 1.0
    attention_bias: bool = False
    output_bias: bool = False
    """Llama's `attention_bias` also covers o_proj; Qwen2's biases do not."""
    output_gate: bool = False
    """q_proj is doubled, per head [q | gate]; the attention output is multiplied by σ(gate)."""
    qk_norm: bool = False
    norm_unit_offset: bool = False
    """RMSNorm multiplies by (1 + w) instead of w."""
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True

    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 4

    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    norm_topk_prob: bool = True

    max_position_embeddings: int = 4096
    block_size: int = 16
    """Block size that decoding uses unless told otherwise; at most 32."""
    threshold: float = 0.9
    """Confidence threshold that decoding uses unless told otherwise."""
    mask_token_id: int | None = None
    mask_embedding: bool = False
    """The [MASK] row has an embedding of its own instead of a vocabulary entry."""
    block_shift: int = 0
    """Masked rows predict the token so many places after their own: 0, or 1 as rows of AR do."""
    adapter_rank: int = 0
    """Rank of the adapter that masked rows carry (`model.adapter`); 0 without one."""
    base_model_type: str = "clover"

    def __post_init__(self) -> None:
        check = _Checker()
        kinds = {"int": int, "float": int | float, "bool": bool, "int | None": int | None}
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            check(isinstance(value, kinds.get(kind, object)), f"{field.name} must be {kind}")
        positive = ["vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads"]
        if self.hybrid:
            positive += ["linear_num_key_heads", "linear_num_value_heads"]
            positive += ["linear_key_head_dim", "linear_value_head_dim"]
        for name in [*positive, "head_dim"]:
            check(getattr(self, name) > 0, f"{name} must be positive")
        check(len(self.layer_types) > 0, "there are no layers")
        check(
            self.num_attention_heads % self.num_key_value_heads == 0,
            "num_attention_heads must be a multiple of num_key_value_heads",
        )
        check(set(self.layer_types) <= {"linear_attention", "full_attention"}, "unknown layer type")
        check(
            0 < self.rotary_dim <= self.head_dim and self.rotary_dim % 2 == 0,
            "head_dim * partial_rotary_factor must be even and at most head_dim",
        )
        if self.hybrid:
            check(
                self.linear_num_value_heads % self.linear_num_key_heads == 0,
                "linear_num_value_heads must be a multiple of linear_num_key_heads",
            )
            check(self.linear_conv_kernel_dim > 1, "linear_conv_kernel_dim must be at least 2")
        check(self.num_experts > 0 or self.intermediate_size > 0, "neither MLP nor experts given")
        if self.num_experts:
            check(
                1 <= self.num_experts_per_tok <= self.num_experts,
                "num_experts_per_tok must be 1..num_experts",
            )
            check(self.moe_intermediate_size > 0, "moe_intermediate_size must be positive")
        check(
            self.mask_token_id is None or 0 <= self.mask_token_id < self.vocab_size,
            "mask_token_id must be a token of the vocabulary",
        )
        check(1 <= self.block_size <= 32, "block_size must be 1..32")
        check(self.block_shift in (0, 1), "block_shift must be 0 or 1")
        check(self.adapter_rank >= 0, "adapter_rank must not be negative")
        check(
            not self.adapter_rank or not (self.hybrid or self.num_experts),
            "adapter_rank needs dense layers of full attention",
        )

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def hybrid(self) -> bool:
        return "linear_attention" in self.layer_types

    def to_json(self) -> dict[str, Any]:
        return {
            "model_type": "clover",
            "architectures": ["CloverForBlockDiffusion"],
            **asdict(self),
        }

    def with_(self, **changes: Any) -> CloverConfig:
        return replace(self, **changes)

    @classmethod
    def load(cls, directory: Path) -> CloverConfig:
        """Reads `config.json`. Raises `CheckpointError`."""
        path = directory / "config.json"
        if not path.is_file():
            raise CheckpointError(
                f"no checkpoint at {directory}: config.json is missing; set CLOVER_CHECKPOINT to a "
                "checkpoint directory or reinstall clover-code"
            )
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}); fetch the checkpoint again"
            ) from error
        return cls.from_hf(data)

    @classmethod
    def from_hf(cls, data: dict[str, Any]) -> CloverConfig:
        """Builds the configuration from a Hugging Face `config.json` dictionary."""
        if not isinstance(data, dict):
            raise CheckpointError("config.json is no JSON object; fetch the checkpoint again")
        outer_tie = data.get("tie_word_embeddings")
        if isinstance(data.get("text_config"), dict):
            data = {"tie_word_embeddings": outer_tie, **data["text_config"]}
        kind = str(data.get("model_type", "")).removesuffix("_text")
        try:
            if kind == "clover":
                known = {f.name for f in fields(cls)}
                values = {k: v for k, v in data.items() if k in known}
                return cls(**{**values, "layer_types": tuple(values["layer_types"])})
            if kind in _FAMILIES:
                return cls(**_common(data), **_FAMILIES[kind](data), base_model_type=kind)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise CheckpointError(
                f"config.json of model type {kind!r} lacks or has a bad value for {error}; "
                "use a complete checkpoint"
            ) from error
        raise CheckpointError(
            f"unknown architecture {kind or 'without model_type'!r}; supported: clover, "
            + ", ".join(sorted(_FAMILIES))
        )


class _Checker:
    def __call__(self, ok: bool, message: str) -> None:
        if not ok:
            raise CheckpointError(f"config.json: {message}; use a matching checkpoint")


def _rope(data: dict[str, Any], default_partial: float) -> tuple[float, float]:
    rope = data.get("rope_parameters") or {}
    scaling = data.get("rope_scaling") or {}
    kind = rope.get("rope_type", scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in ("default", None):
        raise CheckpointError(f"RoPE scaling {kind!r} is not supported; use an unscaled checkpoint")
    theta = rope.get("rope_theta", data.get("rope_theta", 10_000.0))
    partial = rope.get("partial_rotary_factor", data.get("partial_rotary_factor", default_partial))
    return float(theta), float(partial)


def _positive(data: dict[str, Any], name: str) -> int:
    value = data[name]
    if not isinstance(value, int) or value < 1:
        raise CheckpointError(f"config.json: {name} must be positive; use a complete checkpoint")
    return value


def _refuse_what_would_run_wrongly(data: dict[str, Any], types: list[str]) -> None:
    first_sliding = data.get("max_window_layers", 28)
    sliding = data.get("use_sliding_window") and not data.get("layer_types")
    if "sliding_attention" in types or (sliding and first_sliding < len(types)):
        raise CheckpointError("sliding-window layers are not supported; use a full-attention model")
    if data.get("mlp_bias"):
        raise CheckpointError("mlp_bias is not supported; use a model without it")
    act = data.get("hidden_act", "silu")
    if act not in ("silu", "swish"):
        raise CheckpointError(f"activation {act!r} is not supported; use a model with silu")
    if data.get("mlp_only_layers") or data.get("decoder_sparse_step", 1) != 1:
        raise CheckpointError("mixed dense and expert layers are not supported; use another model")


def _common(data: dict[str, Any]) -> dict[str, Any]:
    heads = _positive(data, "num_attention_heads")
    layers = _positive(data, "num_hidden_layers")
    kind = str(data.get("model_type", "")).removesuffix("_text")
    gated = kind in ("qwen3_5_moe", "qwen3_5", "qwen3_next")
    theta, partial = _rope(data, 0.25 if gated else 1.0)
    interval = data.get("full_attention_interval", 4)
    hybrid = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
    types = data.get("layer_types") or (hybrid if gated else ["full_attention"] * layers)
    _refuse_what_would_run_wrongly(data, types)
    return {
        "vocab_size": _positive(data, "vocab_size"),
        "hidden_size": _positive(data, "hidden_size"),
        "layer_types": tuple(types),
        "num_attention_heads": heads,
        "num_key_value_heads": data.get("num_key_value_heads") or heads,
        "head_dim": data.get("head_dim") or _positive(data, "hidden_size") // heads,
        "rope_theta": theta,
        "partial_rotary_factor": partial,
        "rms_norm_eps": data.get("rms_norm_eps", 1e-6),
        "tie_word_embeddings": bool(data.get("tie_word_embeddings") or False),
        "max_position_embeddings": data.get("max_position_embeddings", 4096),
        "attention_bias": bool(data.get("attention_bias", False)) or kind == "qwen2",
        "output_bias": bool(data.get("attention_bias", False)) and kind != "qwen2",
    }


def _experts(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_experts": data.get("num_experts") or data["num_local_experts"],
        "num_experts_per_tok": data["num_experts_per_tok"],
        "moe_intermediate_size": data["moe_intermediate_size"],
        "shared_expert_intermediate_size": data.get("shared_expert_intermediate_size", 0),
        "norm_topk_prob": data.get("norm_topk_prob", True),
    }


def _hybrid(data: dict[str, Any]) -> dict[str, Any]:
    names = (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    switches = {"output_gate": True, "qk_norm": True, "norm_unit_offset": True}
    return {n: data[n] for n in names} | switches


def _dense(data: dict[str, Any]) -> dict[str, Any]:
    return {"intermediate_size": data["intermediate_size"]}


_FAMILIES = {
    "qwen3_5_moe": lambda d: _hybrid(d) | _experts(d),
    "qwen3_5": lambda d: _hybrid(d) | _dense(d),
    "qwen3_next": lambda d: _hybrid(d) | _experts(d),
    "qwen3": lambda d: _dense(d) | {"qk_norm": True},
    "qwen3_moe": lambda d: _experts(d) | {"qk_norm": True, "norm_topk_prob": d["norm_topk_prob"]},
    "qwen2": _dense,
    "llama": _dense,
}
