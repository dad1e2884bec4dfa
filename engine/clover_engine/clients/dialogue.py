"""A conversation over ``/v1/chat/completions``, as SGLang, llama-server and others stream it.

The server applies its model's chat template. Thinking arrives in a field of its own
(``reasoning_content``) where the server splits it off, else between its marks in the text.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from clover_engine.api import CancelToken, DecodeStats, FinishReason
from clover_engine.clients.address import Address
from clover_engine.clients.faults import event_error, malformed
from clover_engine.clients.http import DeadlineReached, HttpTransport
from clover_engine.errors import EngineUnavailable, RequestCancelled
from clover_engine.generation import GenerateRequest, GenerateResult, OnPiece
from clover_engine.text.streaming import Stream
from clover_engine.text.thinking import Opening

PATH = "/v1/chat/completions"


def converse(
    transport: HttpTransport,
    body: Mapping[str, Any],
    request: GenerateRequest,
    *,
    opening: Opening = "start",
    cancel: CancelToken | None = None,
    deadline_s: float | None = None,
    on_piece: OnPiece | None = None,
) -> GenerateResult:
    """Posts `body` (model, messages, sampling) and collects the streamed answer.

    `opening`: how the assistant's turn begins, for `ThinkingSplit`. Cancelled or late, what has
    arrived is the result; RequestCancelled only where that is nothing.
    """
    began = time.monotonic()
    reply = Reply(transport.address, request.stop, opening, on_piece)
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    reason: FinishReason | None = None
    events = transport.events(PATH, asked, cancel=cancel, deadline_s=deadline_s)
    try:
        with contextlib.closing(events):
            for event in events:
                reply.take(event)
                if reply.has_stopped:
                    break
    except DeadlineReached:
        reason = "deadline"
    except RequestCancelled:
        if reply.is_empty:
            raise
        reason = "cancelled"
    reply.end()
    return reply.result(reason, time.monotonic() - began)


class Reply:
    """The answer so far."""

    def __init__(
        self, address: Address, stops: tuple[str, ...], opening: Opening, on_piece: OnPiece | None
    ) -> None:
        self._address = address
        self._stream = Stream(opening, stops, on_piece)
        self._finish = ""
        self._usage: Mapping[str, Any] = {}

    @property
    def is_empty(self) -> bool:
        return self._stream.is_empty

    @property
    def has_stopped(self) -> bool:
        return self._stream.has_stopped

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises EngineUnavailable for an error, or for anything but a chat's chunk."""
        if (error := event_error(event)) is not None:
            raise EngineUnavailable(f"{self._address.url} failed: {error}; see its log")
        usage = event.get("usage")
        if isinstance(usage, Mapping):
            self._usage = usage
        choices = event.get("choices", [])
        if not isinstance(choices, list):
            raise self._malformed()
        for choice in choices[:1]:
            if not isinstance(choice, Mapping):
                raise self._malformed()
            self._choice(choice)

    def end(self) -> None:
        """Gives out what was held back."""
        self._stream.feed("", last=True)

    def result(self, reason: FinishReason | None, seconds: float) -> GenerateResult:
        """`reason`: why the client stopped listening, if it did."""
        if self.has_stopped:
            reason = "stop"
        elif reason is None:
            reason = "length" if self._finish == "length" else "eom"
        prompt, cached = self._count("prompt_tokens"), self._cached()
        stats = DecodeStats(
            prefill_tokens=max(0, prompt - cached),
            cached_tokens=cached,
            tokens=self._count("completion_tokens"),
            seconds=seconds,
        )
        return GenerateResult(self._stream.answer, self._stream.thinking, reason, stats)

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, Mapping):
            raise self._malformed()
        thought = delta.get("reasoning_content") or ""
        text = delta.get("content") or ""
        if not isinstance(thought, str) or not isinstance(text, str):
            raise self._malformed()
        self._stream.thought(thought)
        self._stream.feed(text)
        if isinstance(finish := choice.get("finish_reason"), str):
            self._finish = finish
            if finish == "abort":
                raise EngineUnavailable(
                    f"{self._address.url} aborted the request; ask again or see its log"
                )

    def _count(self, name: str) -> int:
        value = self._usage.get(name)
        return value if isinstance(value, int) and value >= 0 else 0

    def _cached(self) -> int:
        details = self._usage.get("prompt_tokens_details")
        value = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        return value if isinstance(value, int) and value >= 0 else 0

    def _malformed(self) -> EngineUnavailable:
        return malformed(self._address, f"{PATH} streams what is no chat")
