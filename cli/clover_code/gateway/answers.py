"""Answers as the clients read them: OpenAI's objects and streams, and llama.cpp's ``/infill``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clover_code.gateway.fill import Filled, described
from clover_engine.api import DecodeStats, FinishReason, InfillResult
from clover_engine.errors import (
    EngineCrashed,
    EngineError,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import GenerateResult, Piece

Object = dict[str, Any]
_REASONS: Mapping[FinishReason, str] = {
    "eom": "stop", "stop": "stop", "length": "length", "deadline": "length", "cancelled": "length",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Head:
    """What all objects of one answer have in common."""

    prefix: str
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:24])
    created: int = field(default_factory=lambda: int(time.time()))

    def object(self, kind: str, **more: Any) -> Object:
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            **more,
        }


def filled_completion(head: Head, filled: Filled) -> Object:
    """A hole's texts as a completion; without any there is one choice, with an empty text."""
    texts = filled.texts or ("",)
    choices = [_choice(i, text, "stop") for i, text in enumerate(texts)]
    usage = _usage(0, filled.tokens)
    return head.object(
        "text_completion", choices=choices, usage=usage, clover=dict(described(filled))
    )


def completion(head: Head, result: InfillResult) -> Object:
    """What follows a prompt."""
    choices = [
        _choice(i, each.text, _REASONS[each.finish_reason]) for i, each in enumerate(result.choices)
    ]
    return head.object("text_completion", choices=choices, usage=_stats_usage(result.stats))


def chat(head: Head, result: GenerateResult) -> Object:
    """The assistant's turn."""
    message: Object = {"role": "assistant", "content": result.text}
    if result.thinking:
        message["reasoning_content"] = result.thinking
    reason = _REASONS[result.finish_reason]
    choices = [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}]
    return head.object("chat.completion", choices=choices, usage=_stats_usage(result.stats))


def chat_delta(head: Head, piece: Piece | None, reason: str | None = None) -> Object:
    """One object of a streamed conversation: the role, a piece, or the end."""
    delta: Object = {}
    if piece is not None:
        delta["reasoning_content" if piece.kind == "thinking" else "content"] = piece.text
    elif reason is None:
        delta = {"role": "assistant", "content": ""}
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    return head.object("chat.completion.chunk", choices=choices)


def chat_end(head: Head, result: GenerateResult) -> list[Object]:
    """The last objects of a streamed conversation."""
    last = chat_delta(head, None, _REASONS[result.finish_reason])
    return [last | {"usage": _stats_usage(result.stats)}]


def as_infill(filled: Filled, fields: Sequence[str] | None, n: int) -> Any:
    """llama.cpp's answer: an object, or a list of them where several were asked for.

    `fields`: the client's ``response_fields``; a name with a slash reaches inside and stands flat.
    """
    texts = filled.texts or ("",)
    several = [_chosen(_infill(filled, text, i), fields) for i, text in enumerate(texts)]
    return several if n > 1 else several[0]


def _infill(filled: Filled, text: str, index: int) -> Object:
    milliseconds = filled.seconds * 1000
    tokens = filled.tokens
    each = milliseconds / tokens if tokens else 0.0
    rate = 1000 / each if each else 0.0
    return {
        "index": index,
        "content": text,
        "model": filled.model,
        "stop": True,
        "stop_type": "word" if filled.cut else "eos",
        "truncated": False,
        "tokens_predicted": tokens,
        "tokens_evaluated": 0,
        "tokens_cached": 0,
        "generation_settings": {"n_ctx": 0},
        "timings": {
            "prompt_n": 0,
            "prompt_ms": 0.0,
            "prompt_per_token_ms": 0.0,
            "prompt_per_second": 0.0,
            "predicted_n": tokens,
            "predicted_ms": round(milliseconds, 3),
            "predicted_per_token_ms": round(each, 3),
            "predicted_per_second": round(rate, 3),
        },
        "clover": dict(described(filled)),
    }


def _chosen(answer: Object, fields: Sequence[str] | None) -> Object:
    if fields is None:
        return answer
    found: Object = {}
    for name in fields:
        value: Any = answer
        for part in name.split("/"):
            value = value.get(part, ...) if isinstance(value, dict) else ...
        if value is not ...:
            found[name] = value
    return found


def models(names: Sequence[str]) -> Object:
    """The list of models: there is one, whatever name a client sends."""
    created = int(time.time())
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created, "owned_by": "clover-code"}
            for name in names
        ],
    }


def event(data: Object | str) -> str:
    """One event of a stream."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


DONE = event("[DONE]")
BEAT = ": still at it\n\n"
"""A comment, which clients skip: it shows whether they are still there."""


def failure(status: int, message: str, kind: str = "") -> Object:
    """An error's body."""
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "code": status, "param": None}}


def status_of(error: EngineError) -> int:
    """The HTTP status that tells a client what an engine's error means for it."""
    if isinstance(error, Unsupported):
        return 501
    if isinstance(error, RequestCancelled):
        return 499
    if isinstance(error, RequestError):
        return 400
    return 502 if isinstance(error, EngineCrashed) else 503


def _choice(index: int, text: str, reason: str) -> Object:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": None}


def _stats_usage(stats: DecodeStats) -> Object:
    return _usage(stats.prefill_tokens + stats.cached_tokens, stats.tokens)


def _usage(prompt: int, generated: int) -> Object:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
    }
