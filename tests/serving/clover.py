"""Tiny random Clover checkpoints, and what this project's own engine generates with them.

Two shapes: `dense` as clover-nano (a mask token, plain norms), `moe` as a converted Qwen3.5-MoE
(experts, a mask embedding of its own, more value heads than key heads).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tests.serving.models import TOKENS, Weights, add_tokenizer

from clover_engine.api import Mode
from clover_engine.decode import autoregressive, diffusion, speculative
from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally
from clover_engine.model import Cache, Clover, CloverConfig, load_model
from clover_engine.model.weights import save_model

EOM = 2
MASK = 1
BLOCK = 8
SHAPE: dict[str, Any] = {
    "vocab_size": TOKENS,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "output_gate": True,
    "qk_norm": True,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "max_position_embeddings": 1024,
    "block_size": BLOCK,
    "threshold": 0.05,
}
DENSE: dict[str, Any] = {
    "layer_types": ("linear_attention", "linear_attention", "full_attention", "linear_attention"),
    "intermediate_size": 48,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "mask_token_id": MASK,
}
MOE: dict[str, Any] = {
    "layer_types": ("linear_attention", "linear_attention", "linear_attention", "full_attention"),
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "partial_rotary_factor": 0.5,
    "norm_unit_offset": True,
    "tie_word_embeddings": False,
    "mask_embedding": True,
}


def checkpoint(folder: Path, shape: dict[str, Any], seed: int = 3) -> Path:
    """Writes a Clover whose every parameter is random, those of block rows too."""
    torch.manual_seed(seed)
    config = CloverConfig(**SHAPE, **shape)
    model, weights = Clover(config), Weights(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(weights(*parameter.shape, std=0.2))
    save_model(model, folder)
    add_tokenizer(folder)
    return folder


class Reference:
    """This project's decoding of a checkpoint, in this process."""

    def __init__(self, folder: Path) -> None:
        self.model = load_model(folder)

    @torch.inference_mode()
    def generate(
        self, prompt: Sequence[int], count: int, mode: Mode = "ar", *, stops: Sequence[int] = ()
    ) -> Generated:
        """Greedy continuation; the stop token is no part of it."""
        config, tally = self.model.config, Tally()
        cache = Cache(config)
        hidden, _ = self.model(torch.tensor([list(prompt)]), cache=cache)
        start = Start(cache, self.model.head(hidden[0, -1]))
        mask = config.mask_token_id
        sampling = Sampling(banned=None if mask is None else torch.tensor([mask]))
        args = (self.model, start, Limits(count, frozenset(stops)), sampling, tally)
        if mode == "ar":
            return autoregressive.decode(*args)
        if mode == "speculative":
            return speculative.decode(*args, block_size=config.block_size)
        return diffusion.decode(*args, block_size=config.block_size, threshold=config.threshold)


def prompts(count: int, seed: int = 4) -> list[list[int]]:
    """Random prompts of 1 to 90 tokens without special ones."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 91, (count,), generator=generator).tolist()
    return [torch.randint(16, TOKENS, (n,), generator=generator).tolist() for n in lengths]
