"""What fits on a card: weights, caches, sequences at once, experts that must live in host memory.

`plan` answers for one model, precision, card and number of cards; `sizes` has the arithmetic.
Memory is in bytes; "16GB" means 16·10⁹, the lower reading of a label that often means GiB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clover_engine.capacity.sizes import (
    PartName,
    Precision,
    activation_bytes,
    distinct_experts,
    kv_bytes_per_token,
    state_bytes,
    stored_bytes,
    weight_bytes,
)
from clover_engine.errors import CheckpointError, RequestError
from clover_engine.model.config import CloverConfig

GB = 1_000_000_000
CARDS = (16 * GB, 24 * GB, 48 * GB, 80 * GB, 141 * GB)
CONTEXTS = (4096, 16384, 32768, 131072)
CONTEXT = 32768
"""Context that a plan makes room for unless told otherwise."""

RUNTIME_BYTES = 700_000_000
"""CUDA context, libraries and captured graphs on each card (assumption)."""
FRAGMENTATION = 0.03
"""Share of a card that the allocator cannot use (assumption)."""
STATE_SLOTS = 3
"""States held for each running sequence: live, frozen at the block's start, and one in the prefix
cache. It is also SGLang 0.5.23's own number."""
LINK_BYTES_PER_S = 25 * GB
"""Host to card over PCIe 4.0 x16 in practice (assumption; 31.5 GB/s on paper)."""
MOST_SEQUENCES = 256

_QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 248320,
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "max_position_embeddings": 131072,
}
GEOMETRIES: Mapping[str, tuple[dict[str, Any], bool]] = {
    # name: (Hugging Face config, whether it has block rows)
    "clover-35b-a3b": (_QWEN_MOE, True),
    "qwen3.6-35b-a3b": (_QWEN_MOE | {"max_position_embeddings": 262144}, False),
    "qwen2.5-coder-7b": (
        {
            "model_type": "qwen2",
            "vocab_size": 152064,
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "max_position_embeddings": 32768,
        },
        False,
    ),
    "qwen2.5-coder-1.5b": (
        {
            "model_type": "qwen2",
            "vocab_size": 151936,
            "hidden_size": 1536,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "intermediate_size": 8960,
            "tie_word_embeddings": True,
            "max_position_embeddings": 32768,
        },
        False,
    ),
}
"""Models that can be planned without their files. Text parts only."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is planned for. `stored` are the bytes in the checkpoint's files, where there are."""

    name: str
    config: CloverConfig
    block_rows: bool
    stored: Mapping[PartName, int]
    quantised: bool = False

    def weights(self, precision: Precision | None) -> dict[PartName, int]:
        """Bytes by part; None is as the files have it, else bfloat16."""
        if precision is None and self.stored:
            return dict(self.stored)
        found = weight_bytes(self.config, precision or Precision(16))
        if not self.block_rows:
            found.pop("block rows", None)
        return found


def find_model(name: str | Path) -> Model:
    """A named geometry, or a checkpoint's folder. Raises `CheckpointError`."""
    if str(name) in GEOMETRIES:
        data, block_rows = GEOMETRIES[str(name)]
        config = CloverConfig.from_hf(data).with_(mask_embedding=block_rows)
        return Model(str(name), config, block_rows, {})
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise CheckpointError(
            f"{name} is neither a checkpoint's folder nor one of {', '.join(GEOMETRIES)}; "
            "name one of them"
        )
    config = CloverConfig.load(folder)
    stored = stored_bytes(folder)
    block_rows = "block rows" in stored if stored else config.base_model_type == "clover"
    return Model(str(folder), config, block_rows, stored, _is_quantised(folder))


def _is_quantised(folder: Path) -> bool:
    """By our own quantiser or by another, which say so in config.json."""
    data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return bool(data.get("quantization") or data.get("quantization_config"))


def parse_memory(text: str) -> int:
    """Bytes of an amount like 16GB, 16 GiB or 40000MiB; a bare number is in GB. Raises
    `RequestError`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise RequestError(f"{text!r} is no amount of memory; write it like 16GB or 15GiB")
    letter = match[2].lower() or "g"
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * float(base ** (" kmgt".index(letter))))


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer, for each of `gpus` cards; `fits` is whether one sequence runs at all."""

    model: Model
    precision: Precision | None
    memory_bytes: int
    gpus: int
    block_size: int
    context: int
    weights: dict[PartName, int]
    """The whole model's, all cards and the host together."""
    resident_bytes: int
    """Weights on each card."""
    working_bytes: int
    """Runtime, fragmentation and one pass's activations on each card."""
    kv_per_token: int
    state_per_sequence: int
    logits_per_sequence: int
    expert_share: float
    """Share of the experts that is on the card; 1 where all are."""
    missing_bytes: int
    """What a card lacks to run one sequence of `context` tokens; 0 where it fits."""

    @property
    def fits(self) -> bool:
        return self.missing_bytes == 0

    @property
    def offloaded(self) -> bool:
        return self.expert_share < 1

    @property
    def host_bytes(self) -> int:
        """Host memory for experts: all of them, so that any can be fetched."""
        return self.weights["experts"] if self.offloaded else 0

    @property
    def cache_bytes(self) -> int:
        """What is left on each card for caches."""
        return max(0, self.memory_bytes - self.working_bytes - self.resident_bytes)

    def sequence_bytes(self, context: int) -> int:
        """Cache, states and logits of one running sequence on each card."""
        states = STATE_SLOTS * self.state_per_sequence
        return context * self.kv_per_token + states + self.logits_per_sequence

    def sequences(self, context: int) -> int:
        """How many sequences of `context` tokens run at once, at most `MOST_SEQUENCES`."""
        if not self.fits:
            return 0
        return min(MOST_SEQUENCES, self.cache_bytes // self.sequence_bytes(context))

    def fetched_bytes(self, rows: int) -> int:
        """Bytes that a pass over `rows` rows fetches from host memory, routing taken as uniform
        (real routing is skewed, and a cache of recent experts does better)."""
        if not self.offloaded:
            return 0
        layers, config = len(self.model.config.layer_types), self.model.config
        size = self.weights["experts"] / (config.num_experts * layers)
        return int(layers * distinct_experts(config, rows) * (1 - self.expert_share) * size)


def plan(
    model: Model,
    precision: Precision | None,
    memory_bytes: int,
    *,
    gpus: int = 1,
    context: int | None = None,
    block_size: int | None = None,
    working_bytes: int | None = None,
) -> Plan:
    """Plans for cards of `memory_bytes` each; `working_bytes` replaces our estimate of what is
    neither weights nor caches. Experts leave the card only where one sequence does not fit
    otherwise. Raises `RequestError` where the model cannot be divided among `gpus`."""
    config = model.config
    if precision is None and not model.stored:
        precision = Precision(16)
    _check_division(config, gpus)
    block = (block_size or config.block_size) if model.block_rows else 1
    context = min(context or CONTEXT, config.max_position_embeddings)
    weights = model.weights(precision)
    if working_bytes is None:
        rows = prefill_rows(memory_bytes)
        working = RUNTIME_BYTES + int(FRAGMENTATION * memory_bytes)
        working_bytes = working + activation_bytes(config, rows, 0) // gpus
    copied = sum(weights.get(name, 0) for name in ("router", "norms"))
    resident = copied + -(-(sum(weights.values()) - copied) // gpus)
    kv_heads = config.num_key_value_heads
    base = Plan(
        model=model,
        precision=precision,
        memory_bytes=memory_bytes,
        gpus=gpus,
        block_size=block,
        context=context,
        weights=weights,
        resident_bytes=resident,
        working_bytes=working_bytes,
        kv_per_token=kv_bytes_per_token(config) // kv_heads * -(-kv_heads // gpus),
        state_per_sequence=-(-state_bytes(config) // gpus),
        logits_per_sequence=activation_bytes(config, 0, block),
        expert_share=1.0,
        missing_bytes=0,
    )
    return _with_experts_on_host(base)


def _with_experts_on_host(base: Plan) -> Plan:
    """`base`, or as many experts on the card as leave room for one sequence."""
    room = base.memory_bytes - base.working_bytes - base.sequence_bytes(base.context)
    lacking = base.resident_bytes - room
    if lacking <= 0:
        return base
    config, experts = base.model.config, base.weights.get("experts", 0) // base.gpus
    if not experts or base.gpus > 1:
        return replace(base, missing_bytes=lacking)
    # Each layer needs a place for the experts of one row, or nothing can be computed.
    least = experts * config.num_experts_per_tok // config.num_experts
    kept = max(0, experts - lacking)
    if kept < least:
        return replace(base, missing_bytes=least - (experts - lacking))
    resident = base.resident_bytes - experts + kept
    return replace(base, resident_bytes=resident, expert_share=kept / experts)


def _check_division(config: CloverConfig, gpus: int) -> None:
    heads = {"attention heads": config.num_attention_heads}
    if config.hybrid:
        heads["DeltaNet key heads"] = config.linear_num_key_heads
    if config.num_experts:
        heads["expert width"] = config.moe_intermediate_size
    for name, count in heads.items():
        if gpus < 1 or count % gpus:
            raise RequestError(
                f"{gpus} cards cannot share {count} {name}; use a number that divides {count}"
            )


def prefill_rows(memory_bytes: int) -> int:
    """Rows of one prefill pass on a card of this size, as SGLang 0.5.23 chooses them."""
    gib = memory_bytes / 2**30
    return 2048 if gib < 20 else 4096 if gib < 60 else 8192 if gib < 160 else 16384


def sglang_working_bytes(memory_bytes: int, gpus: int = 1, graph_sequences: int = 64) -> int:
    """What SGLang 0.5.23 keeps free of weights and caches by default on each card."""
    mib = 512 + 1.5 * prefill_rows(memory_bytes) + gpus / 8 * 1024 + 2 * graph_sequences
    return int(mib * 2**20)


def cards_needed(model: Model, precision: Precision | None, memory_bytes: int) -> int | None:
    """The smallest number of cards (a power of two up to 8) that hold all weights; None: none."""
    for gpus in (1, 2, 4, 8):
        try:
            found = plan(model, precision, memory_bytes, gpus=gpus)
        except RequestError:
            continue
        if found.fits and not found.offloaded:
            return gpus
    return None


def fetch_seconds(plan: Plan, rows: int, link_bytes_per_s: float = LINK_BYTES_PER_S) -> float:
    """Time of a pass's fetches from host memory."""
    return plan.fetched_bytes(rows) / link_bytes_per_s
