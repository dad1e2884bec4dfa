"""Makers of tiny checkpoints with random weights that SGLang serves: float32, lively, decodable.

The weights are wide enough that greedy decoding wanders, and a few hundred words of vocabulary
win, so that outputs can be decoded by the project's own tokenizer that lies beside them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

NANO = Path(__file__).parents[2] / "engine" / "clover_engine" / "weights" / "nano"
TOKENS = 4096
"""Vocabulary of the tokenizer that every checkpoint gets."""
SPECIAL_TOKENS = 16

SDAR_VOCABULARY = 151_936
SDAR_MASK = 151_669
"""SGLang's table of diffusion models fixes SDAR's mask id, so the vocabulary has to reach it."""
SDAR_BLOCK = 4
SDAR: Mapping[str, Any] = {
    "architectures": ["SDARForCausalLM"],
    "model_type": "qwen3",  # the shape is Qwen3's; SGLang goes by the architecture
    "vocab_size": SDAR_VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
    "dtype": "float32",
}

QWEN35_MOE: Mapping[str, Any] = {
    "vocab_size": TOKENS,
    "hidden_size": 32,
    "num_hidden_layers": 4,  # three linear layers, one with full attention
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


class Weights:
    """Random tensors from one seed."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, std: float = 0.3) -> Tensor:
        return torch.randn(*shape, generator=self._generator) * std

    def gain(self, size: int) -> Tensor:
        """A norm's weight: near one, not one."""
        return 1 + self(size, std=0.2)


def add_tokenizer(folder: Path) -> None:
    """The project's tokenizer, as `transformers` expects to find it."""
    shutil.copy(NANO / "tokenizer.json", folder)
    names = {"pad_token": "<pad>", "eos_token": "<eom>", "mask_token": "<mask>"}
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | names))


def sdar(folder: Path, seed: int = 1) -> Path:
    """A tiny SDAR: Qwen3's layers, denoised in blocks of four."""
    folder.mkdir(parents=True, exist_ok=True)
    add_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(SDAR))
    weights, hidden, width = Weights(seed), SDAR["hidden_size"], SDAR["head_dim"]
    queries = SDAR["num_attention_heads"] * width
    keys, inner = SDAR["num_key_value_heads"] * width, SDAR["intermediate_size"]
    head = weights(SDAR_VOCABULARY, hidden, std=1.0)  # some tokens are sure, others not
    head[TOKENS:] *= 0.01  # beyond the tokenizer: never the most probable
    state = {
        "model.embed_tokens.weight": weights(SDAR_VOCABULARY, hidden, std=1.0),
        "model.norm.weight": weights.gain(hidden),
        "lm_head.weight": head,
    }
    for layer in range(SDAR["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        state |= {
            f"{at}self_attn.q_proj.weight": weights(queries, hidden),
            f"{at}self_attn.k_proj.weight": weights(keys, hidden),
            f"{at}self_attn.v_proj.weight": weights(keys, hidden),
            f"{at}self_attn.o_proj.weight": weights(hidden, queries),
            f"{at}self_attn.q_norm.weight": weights.gain(width),
            f"{at}self_attn.k_norm.weight": weights.gain(width),
            f"{at}mlp.gate_proj.weight": weights(inner, hidden),
            f"{at}mlp.up_proj.weight": weights(inner, hidden),
            f"{at}mlp.down_proj.weight": weights(hidden, inner),
            f"{at}input_layernorm.weight": weights.gain(hidden),
            f"{at}post_attention_layernorm.weight": weights.gain(hidden),
        }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def qwen35_moe(folder: Path, seed: int = 2) -> Path:
    """A tiny Qwen3.5-MoE (linear and full attention, experts), written by `transformers`."""
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    torch.manual_seed(seed)
    model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**QWEN35_MOE))
    weights = Weights(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(weights(*parameter.shape, std=0.2))
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["full_attention_interval"] = 4  # SGLang goes by this, not by `layer_types`
    (folder / "config.json").write_text(json.dumps(config))
    add_tokenizer(folder)
    return folder
