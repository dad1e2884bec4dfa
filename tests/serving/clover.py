"""Tiny random Clover checkpoints, and what this project's own engine generates with them.

Two shapes: `dense` as clover-nano (a mask token, plain norms), `moe` as a converted Qwen3.5-MoE
(experts, a mask embedding of its own, more value heads than key heads).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tests.serving.conftest import NO_STATE_BUFFER
from tests.serving.harness import Answer, Server
from tests.serving.models import TOKENS, Weights, add_tokenizer
from tests.serving.prompts import random_ids

from clover_engine.api import Mode
from clover_engine.checkpoint.weights import load_model, save_model
from clover_engine.decode import autoregressive, diffusion, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.model.cache import KVLayer

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
        self,
        prompt: Sequence[int],
        count: int,
        mode: Mode,
        *,
        stops: Sequence[int] = (),
        threshold: float | None = None,
        block_size: int | None = None,
    ) -> tuple[int, ...]:
        """Greedy continuation, without the stop token."""
        config = self.model.config
        size = block_size or config.block_size
        sure = config.threshold if threshold is None else threshold
        start = self.start(prompt)
        mask = config.mask_token_id
        sampling = Sampling(banned=None if mask is None else torch.tensor([mask]))
        args = (self.model, start, Limits(count, frozenset(stops)), sampling, Tally())
        if mode == "ar":
            out = autoregressive.decode(*args)
        elif mode == "speculative":
            out = speculative.decode(*args, block_size=size)
        else:
            out = diffusion.decode(*args, block_size=size, threshold=sure)
        return tuple(out.tokens)

    def start(self, prompt: Sequence[int]) -> Start:
        """The prompt, read at once."""
        cache = Cache(self.model.config)
        hidden, _ = self.model(torch.tensor([list(prompt)]), cache=cache)
        return Start(cache, self.model.head(hidden[0, -1]))

    @torch.inference_mode()
    def corrupted(self, prompt: Sequence[int], count: int, threshold: float) -> tuple[int, ...]:
        """Denoising where every step writes its rows into the GDN states, as SGLang's own passes
        of diffusion models would: what a server must not answer."""
        model = self.model

        class Writing(Clover):
            def forward(self, clean: Any, blocks: Any, cache: Cache) -> Any:  # type: ignore[override]
                out = model(clean, blocks, cache)
                rows = blocks[:, 0].clamp(min=0)
                model(rows, cache=cache)
                for layer in cache.layers:
                    if isinstance(layer, KVLayer):
                        layer.length -= rows.shape[1]
                cache.length -= rows.shape[1]
                return out

        writing = Writing(model.config)
        writing.load_state_dict(model.state_dict())
        size = model.config.block_size
        out = diffusion.decode(
            writing, self.start(prompt), Limits(count), Sampling(), Tally(),
            block_size=size, threshold=threshold,
        )  # fmt: skip
        return tuple(out.tokens)


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and what it must be answered with."""

    prompt: Sequence[int]
    mode: Mode = "speculative"
    count: int = 24
    custom: dict[str, Any] = field(default_factory=dict)

    @property
    def sampling(self) -> dict[str, Any]:
        return {"custom_params": {"mode": self.mode, **self.custom}}

    def expected(self, reference: Reference) -> tuple[int, ...]:
        known = {k: v for k, v in self.custom.items() if k in ("threshold", "block_size")}
        return reference.generate(self.prompt, self.count, self.mode, **known)


def check(server: Server, reference: Reference, questions: Sequence[Question]) -> list[Answer]:
    """Asks four at a time; every answer must be this project's own."""
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.generate, q.prompt, q.count, **q.sampling) for q in questions]
        answers = [future.result() for future in asked]
    for question, answer in zip(questions, answers, strict=True):
        assert answer.ids == question.expected(reference), question
        assert answer.finish == "length"
    return answers


def serve(folder: Path, log: Path, algorithm: bool = True, arguments: Sequence[str] = ()) -> Server:
    """A server for a Clover checkpoint, with the algorithm `Clover` or without any."""
    chosen = ("--dllm-algorithm", "Clover") if algorithm else NO_STATE_BUFFER
    return Server(folder, log, modules=("qwen3_5", "qwen3_5_text"), arguments=(*chosen, *arguments))


def prompts(count: int, seed: int = 4) -> list[list[int]]:
    """Random prompts of 1 to 90 tokens."""
    lengths = random.Random(seed)
    return [random_ids(lengths.randint(1, 90), 100 * seed + i) for i in range(count)]
