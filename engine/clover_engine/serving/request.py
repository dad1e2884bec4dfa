"""Where one request's generation stands between two rounds of the algorithm."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clover_engine.decode.common import Limits, Sampling, seeded
from clover_engine.decode.diffusion import Block
from clover_engine.decode.lookup import Lookup
from clover_engine.serving.options import DecodingOptions

LOOKUP_TOKENS = 4096
"""The part of a context, nearest to its end, that look-up drafts are copied from."""
WORTH = 1.0
"""Accepted tokens a draft must bring: a pass of its own, which plain decoding would use for one."""
PROBE = 12
"""So many rounds without a denoised draft, then one is tried again."""


@dataclass(slots=True)
class Drafting:
    """Whether denoised drafts are worth their pass: a running mean of the tokens they brought."""

    gain: float = 2.0
    without: int = 0

    @property
    def wanted(self) -> bool:
        return self.gain >= WORTH or self.without >= PROBE

    def count(self, drafted: bool, accepted: int) -> None:
        if drafted:
            self.gain, self.without = 0.6 * self.gain + 0.4 * accepted, 0
        else:
            self.without += 1


@dataclass(slots=True)
class Generation:
    """Kept as the request's `dllm_algo_state`. Made when its context has been read."""

    options: DecodingOptions
    sampling: Sampling
    limits: Limits
    lookup: Lookup
    generator: torch.Generator
    known: int | None
    """The next token, decided by clean rows but not yet run; None when denoising."""
    block: Block | None = None
    drafting: Drafting = field(default_factory=Drafting)
    committed: int = 0
    """Rows of the last round that the caches keep."""

    def size(self, generated: int) -> int:
        """Rows of the next block, as in-process decoding counts them."""
        stop_row = 1 if self.limits.stop_ids else 0
        left = max(1, self.limits.max_tokens - generated + stop_row)
        return min(self.options.block_size, left)


def begin(request: Any, defaults: DecodingOptions, mask_id: int, logits: Tensor) -> Generation:
    """`logits` [vocab] follow the request's last committed token."""
    given = request.sampling_params
    options = defaults.for_request(given.custom_params)
    banned = sorted({*options.banned, *([mask_id] if mask_id >= 0 else [])})
    sampling = Sampling(
        given.temperature,
        given.top_p,
        torch.tensor(banned) if banned else None,
        given.top_k if 0 < given.top_k < len(logits) else 0,
        given.min_p,
        given.repetition_penalty,
    )
    committed = [*request.origin_input_ids, *request.output_ids]
    limits = Limits(given.max_new_tokens, _stop_ids(request))
    lookup = Lookup([], committed[-LOOKUP_TOKENS:], options.drafts)
    generator = seeded(_seed(request))
    known = None
    if options.mode != "threshold":
        logits = sampling.penalised(logits[None], request.output_ids)[0]
        known = int(sampling.pick(sampling.probabilities(logits), generator))
    return Generation(options, sampling, limits, lookup, generator, known)


def _stop_ids(request: Any) -> frozenset[int]:
    """The tokens at which SGLang will end this request."""
    if request.sampling_params.ignore_eos:
        return frozenset()
    ids = {*(request.sampling_params.stop_token_ids or ()), *(request.eos_token_ids or ())}
    if request.tokenizer is not None:
        ids.add(request.tokenizer.eos_token_id)
        ids |= set(request.tokenizer.additional_stop_token_ids or ())
    return frozenset(i for i in ids if i is not None)


def _seed(request: Any) -> int:
    """The request's seed, else one of its id: the same on every tensor-parallel rank."""
    if request.sampling_params.sampling_seed is not None:
        return int(request.sampling_params.sampling_seed)
    digest = hashlib.blake2b(request.rid.encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
