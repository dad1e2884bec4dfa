"""What all decoders share: limits, sampling rules, the running tally and the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
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


GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy, as SGLang has it: logits divided by less overflow."""
HOTTEST = 1e30
"""Higher temperatures are uniform anyway; minus infinity over infinity would be no number."""
LEAST_PENALTY = 1e-6
"""Smaller penalties count as this: logits divided by less overflow."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn from logits, in SGLang's order: penalty, temperature, k, p, min-p.

    Any combination of values gives a distribution; none gives NaN.
    """

    temperature: float = 0.0
    """Below `GREEDY_BELOW`: greedy."""
    top_p: float = 1.0
    """The fewest most probable tokens that have this much probability together, at least one."""
    banned: Tensor | None = None
    """Ids [k] that are never drawn; not all of them."""
    top_k: int = 0
    """So many most probable tokens; 0: all. 1 is greedy."""
    min_p: float = 0.0
    """Tokens of at least this share of the best one's probability."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens that were generated already and multiplies negative ones
    (Keskar et al. 2019, 1909.05858); see `penalised`."""

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    def penalised(
        self, logits: Tensor, generated: Sequence[int], rows: Sequence[int] | None = None
    ) -> Tensor:
        """Logits [R, vocab] with the repetition penalty of what was generated before each row:
        `generated`, and for row i also `rows[:i]`."""
        if self.repetition_penalty == 1.0:
            return logits
        penalty = max(self.repetition_penalty, LEAST_PENALTY)
        logits = logits.to(
            torch.float64 if logits.dtype == torch.float64 else torch.float32, copy=True
        )
        for i, row in enumerate(logits):
            before = {*generated, *(rows[:i] if rows is not None else ())}
            if before:
                index = torch.tensor(sorted(before))
                found = row[index]
                row[index] = torch.where(found < 0, found * penalty, found / penalty)
        return logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that tokens are drawn from, [..., vocab]; where greedy, the plain
        softmax, whose argmax is taken."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.banned is not None:
            logits = logits.index_fill(-1, self.banned, -math.inf)
        if self.greedy:
            return logits.softmax(-1)
        probs = (logits / min(self.temperature, HOTTEST)).softmax(-1)
        if self.top_p >= 1.0 and self.top_k <= 0 and self.min_p <= 0:
            return probs
        ordered, order = probs.sort(dim=-1, descending=True)
        dropped = ordered.cumsum(-1) - ordered >= self.top_p if self.top_p < 1.0 else ordered < 0
        if self.top_k > 0:
            dropped[..., self.top_k :] = True
        dropped |= ordered < self.min_p * ordered[..., :1]
        dropped[..., 0] = False
        kept = torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(dropped, 0.0))
        return kept / kept.sum(-1, keepdim=True)

    def pick(self, probs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Token ids [...] from `probs` [..., vocab]."""
        if self.greedy:
            return probs.argmax(-1)
        flat = probs.reshape(-1, probs.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).view(probs.shape[:-1])


def seeded(seed: int) -> torch.Generator:
    """A generator for any whole number, also one that torch would not take."""
    return torch.Generator().manual_seed(seed % 2**64)


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
            forward_passes=self.forward_passes, prefill_tokens=prefill, cached_tokens=cached,
            tokens=self.tokens, drafted=self.drafted, accepted=self.accepted,
            denoising_steps=self.denoising_steps, seconds=seconds,
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
