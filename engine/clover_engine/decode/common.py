"""What all decoders share: limits, sampling rules, the running tally and the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clover_engine.api import CancelToken, DecodeStats, FinishReason
from clover_engine.model import Cache, Clover


@dataclass(slots=True)
class Limits:
    """When to stop. `interrupted` is asked between steps."""

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    """End-of-hole tokens; not part of the result."""
    deadline: float | None = None
    """`time.monotonic()` value."""
    cancel: CancelToken | None = None
    stopped: Callable[[list[int]], bool] | None = None
    """True once the committed tokens contain a stop string."""
    on_token: Callable[[int], None] | None = None
    """Told of each committed token that is part of the result (streaming)."""

    def interrupted(self) -> FinishReason | None:
        if self.cancel is not None and self.cancel.cancelled:
            return "cancelled"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "deadline"
        return None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy. `banned` ids [k] are never emitted."""

    temperature: float = 0.0
    top_p: float = 1.0
    banned: Tensor | None = None

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that tokens are drawn from, [..., vocab]; at temperature 0 the plain
        softmax, whose argmax is taken."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.banned is not None:
            logits = logits.index_fill(-1, self.banned, -math.inf)
        if self.temperature <= 0:
            return logits.softmax(-1)
        probs = (logits / self.temperature).softmax(-1)
        if self.top_p >= 1.0:
            return probs
        ordered, order = probs.sort(dim=-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        kept = ordered.masked_fill(before >= self.top_p, 0.0)
        kept = torch.zeros_like(probs).scatter(-1, order, kept)
        return kept / kept.sum(-1, keepdim=True)

    def pick(self, probs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Token ids [...] from `probs` [..., vocab]."""
        if self.temperature <= 0:
            return probs.argmax(-1)
        flat = probs.reshape(-1, probs.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).view(probs.shape[:-1])


@dataclass(slots=True)
class Tally:
    """Mutable counterpart of `DecodeStats`."""

    forward_passes: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    denoising_steps: int = 0

    def stats(self, prefill: int, cached: int, seconds: float) -> DecodeStats:
        return DecodeStats(
            self.forward_passes, prefill, cached, self.tokens,
            self.drafted, self.accepted, self.denoising_steps, seconds,
        )  # fmt: skip


@dataclass(slots=True)
class Generated:
    """Token ids without the stop token, the probability each had when it was committed (the stop
    token's last, if it came), and why generation ended."""

    tokens: list[int] = field(default_factory=list)
    probs: list[float] = field(default_factory=list)
    reason: FinishReason = "length"

    @property
    def confidence(self) -> float:
        """Geometric mean of the token probabilities, 0..1."""
        if not self.probs:
            return 0.0
        return math.exp(sum(math.log(max(p, 1e-9)) for p in self.probs) / len(self.probs))

    def add(self, token: int, prob: float, limits: Limits) -> bool:
        """Commits one token; True when generation is over."""
        self.probs.append(prob)
        if token in limits.stop_ids:
            self.reason = "eom"
            return True
        self.tokens.append(token)
        if limits.on_token is not None:
            limits.on_token(token)
        if limits.stopped is not None and limits.stopped(self.tokens):
            self.reason = "stop"
            return True
        return len(self.tokens) >= limits.max_tokens


@dataclass(slots=True)
class Start:
    """A prefilled context: the cache and the AR logits [vocab] that follow its last token."""

    cache: Cache
    logits: Tensor


def clean_pass(model: Clover, tokens: list[int], cache: Cache, tally: Tally) -> Tensor:
    """Commits tokens; logits [T, vocab] of what follows each."""
    hidden, _ = model(torch.tensor([tokens]), cache=cache)
    tally.forward_passes += 1
    return model.logits(hidden[0])
