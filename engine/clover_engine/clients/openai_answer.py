"""What ``/v1/completions`` streams: text, log-probabilities where the server has them, the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clover_engine.api import DecodeStats, FinishReason, Infill, InfillRequest
from clover_engine.clients.address import Address
from clover_engine.clients.faults import event_error, malformed
from clover_engine.clients.fim import FimTemplate
from clover_engine.clients.sglang_stream import NOMINAL_CONFIDENCE
from clover_engine.errors import EngineUnavailable


@dataclass(slots=True)
class Answer:
    """The answer so far; `take` adds an event."""

    address: Address
    path: str
    text: str = ""
    reason: FinishReason | None = None
    """None while it is not known."""
    events: int = 0
    """That brought text: about one a token."""
    _logprobs: list[float] = field(default_factory=list)
    _usage: Mapping[str, Any] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises EngineUnavailable for an error, or for anything but a completion's chunk."""
        if (error := event_error(event)) is not None:
            raise EngineUnavailable(f"{self.address.url} failed: {error}; see its log")
        if isinstance(usage := event.get("usage"), Mapping):
            self._usage = usage
        choices = event.get("choices", [])
        if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
            raise malformed(self.address, f"{self.path} streams what is no completion")
        for choice in choices[:1]:
            self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> None:
        text = choice.get("text") or ""
        if not isinstance(text, str):
            raise malformed(self.address, f"{self.path} streams what is no completion")
        self.text += text
        self.events += bool(text)
        known = choice.get("logprobs")
        values = known.get("token_logprobs") if isinstance(known, Mapping) else None
        for value in values if isinstance(values, list) else ():
            if isinstance(value, int | float) and not math.isnan(value):
                self._logprobs.append(min(0.0, value))
        if isinstance(finish := choice.get("finish_reason"), str):
            self.reason = "length" if finish == "length" else "eom"

    @property
    def stats(self) -> DecodeStats:
        """The server's own count, which comes at the end, else the number of events."""
        tokens = _whole(self._usage.get("completion_tokens")) or self.events
        prompt = _whole(self._usage.get("prompt_tokens"))
        return DecodeStats(forward_passes=tokens, prefill_tokens=prompt, tokens=tokens)

    def infill(self, template: FimTemplate, request: InfillRequest) -> Infill:
        """The hole's text: before the first mark and the first stop string, after what it had to
        begin with. The confidence is the geometric mean of the tokens' probabilities."""
        begin, reason = request.must_start_with, self.reason or "eom"
        text = template.cut(self.text)
        if len(text) < len(self.text):
            reason = "eom"
        cuts = [at for stop in request.stop if (at := text.find(stop)) >= 0]
        if cuts:
            text, reason = text[: min(cuts)], "stop"
        mean = math.fsum(self._logprobs) / len(self._logprobs) if self._logprobs else None
        confidence = NOMINAL_CONFIDENCE if mean is None else math.exp(max(mean, -20.0))
        return Infill(begin + text, confidence if self.text else 0.0, reason)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
