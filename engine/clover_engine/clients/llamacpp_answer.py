"""What llama-server says while it generates: text, token probabilities, counters, and the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clover_engine.api import DecodeStats, FinishReason

_FLOOR = 1e-9
_REASONS: Mapping[str, FinishReason] = {"eos": "eom", "word": "stop", "limit": "length"}


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token: the logarithm of its probability before sampling, and the likeliest
    tokens in its place with theirs."""

    text: str
    logprob: float
    others: tuple[tuple[str, float], ...] = ()

    def among(self, options: Sequence[str]) -> list[float]:
        """The probability of each option in the token's place, if it must be one of them."""
        listed = {self.text: self.logprob, **dict(self.others)}
        weights = dict.fromkeys(options, 0.0)
        for text, logprob in listed.items():
            if text.strip() in weights:
                weights[text.strip()] += math.exp(logprob)
        total = math.fsum(weights.values())
        return [weights[option] / total for option in options]


@dataclass(slots=True)
class Answer:
    """The answer so far; `take` adds an event of a stream, or a whole answer."""

    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    reason: FinishReason | None = None
    """None while it is not known."""
    count: int = 0
    """Tokens generated, as far as the server told."""
    _counted: DecodeStats | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises ValueError where the event is not what llama-server sends."""
        content = event.get("content", "")
        if not isinstance(content, str):
            raise ValueError("content is no text")
        self.text += content
        found = _tokens(event.get("completion_probabilities"))
        self.tokens += found
        ids = event.get("tokens")
        self.count += max(len(found), len(ids) if isinstance(ids, list) else 0)
        if event.get("stop") is True:
            self.reason = _REASONS.get(str(event.get("stop_type")), "eom")
            self._finish(event.get("timings"))

    def _finish(self, timings: object) -> None:
        numbers = timings if isinstance(timings, Mapping) else {}
        count = {name: _whole(numbers.get(name)) for name in _COUNTERS}
        tokens = count["predicted_n"] or self.count
        self._counted = DecodeStats(
            forward_passes=max(0, tokens - count["draft_n_accepted"]) + bool(count["prompt_n"]),
            prefill_tokens=count["prompt_n"],
            cached_tokens=count["cache_n"],
            tokens=tokens,
            drafted=count["draft_n"],
            accepted=count["draft_n_accepted"],
        )

    @property
    def stats(self) -> DecodeStats:
        """The server's own count, which comes at the end."""
        return self._counted or DecodeStats(forward_passes=self.count, tokens=self.count)

    def confidence(self, forced: str = "") -> float:
        """Geometric mean of the token probabilities (0..1); 0 where the server sent none.

        A token within the `forced` beginning competes only with those that were allowed there.
        """
        if not self.tokens:
            return 0.0
        total, at = 0.0, 0
        for token in self.tokens:
            rest = forced[at:]
            total += _conditional(token, rest) if rest else token.logprob
            at += len(token.text)
        return math.exp(max(total / len(self.tokens), math.log(_FLOOR)))

    def free_tokens(self, forced: str) -> int:
        """How many tokens reach beyond the `forced` beginning."""
        count, at = 0, 0
        for token in self.tokens:
            at += len(token.text)
            count += at > len(forced)
        return count


_COUNTERS = ("prompt_n", "cache_n", "predicted_n", "draft_n", "draft_n_accepted")


def _conditional(token: Token, rest: str) -> float:
    """The token's log-probability among the listed tokens that fit to `rest`."""
    allowed = [
        logprob
        for text, logprob in token.others
        if text != token.text and text and (text.startswith(rest) or rest.startswith(text))
    ]
    total = math.fsum(map(math.exp, (token.logprob, *allowed)))
    return token.logprob - math.log(total) if total > 0 else 0.0


def _tokens(listed: object) -> list[Token]:
    if not isinstance(listed, list):
        return []
    return [token for each in listed if (token := _token(each)) is not None]


def _token(entry: object) -> Token | None:
    if not isinstance(entry, Mapping):
        return None
    logprob = _logprob(entry)
    if logprob is None:
        return None
    listed = entry.get("top_logprobs")
    others = []
    for other in listed if isinstance(listed, list) else []:
        if isinstance(other, Mapping) and (value := _logprob(other)) is not None:
            others.append((str(other.get("token", "")), value))
    return Token(str(entry.get("token", "")), logprob, tuple(others))


def _logprob(entry: Mapping[str, Any]) -> float | None:
    """Finite: llama-server sends null, or the least number there is, for an impossible token."""
    value = entry.get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return min(0.0, max(float(value), math.log(_FLOOR) * 4))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
