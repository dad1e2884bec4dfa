"""What clients ask, read from JSON: holes, texts to go on with, conversations.

Fields that mean nothing here (`top_k`, `samplers`, `cache_prompt`, `id_slot`, …) are ignored, as
servers of other makers do. A field that is read must have its type: else `RequestError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from clover_code.gateway.marks import unmarked
from clover_engine.api import Snippet
from clover_engine.errors import RequestError
from clover_engine.generation import GenerateRequest, Message, Role

T = TypeVar("T")
D = TypeVar("D")
Body = Mapping[str, Any]

MOST_TOKENS = 4096
MOST_CHOICES = 4
COMPLETION_TOKENS = 128
CHAT_TOKENS = 2048
ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


@dataclass(frozen=True, slots=True)
class Hole:
    """Text to put between a prefix and a suffix. `path` is the document's, where it was told."""

    prefix: str
    suffix: str
    max_tokens: int
    stop: tuple[str, ...] = ()
    extra: tuple[Snippet, ...] = ()
    """Other texts that the client sent along."""
    path: str = ""
    n: int = 1


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text to go on with, whatever follows it."""

    prompt: str
    max_tokens: int
    stop: tuple[str, ...]
    temperature: float
    top_p: float
    seed: int
    n: int


def completion(body: Body) -> Hole | Continuation:
    """``/v1/completions``: a hole where there is a `suffix` or the prompt has a family's marks."""
    prompt = field(body, "prompt", str)
    limit = tokens(body, "max_tokens", COMPLETION_TOKENS)
    stop, n = stops(body), count(body, "n")
    path = field(body, "path", str, "")
    if body.get("suffix") is not None:
        return Hole(prompt, field(body, "suffix", str), limit, stop, path=path, n=n)
    if (hole := unmarked(prompt)) is not None:
        return Hole(hole.prefix, hole.suffix, limit, stop, hole.snippets, path or hole.path, n)
    temperature, top_p, seed = sampling(body, 0.8 if n > 1 else 0.0)
    return Continuation(prompt, limit, stop, temperature, top_p, seed, n)


def infill(body: Body) -> Hole:
    """llama.cpp's ``/infill``. `prompt` is the cursor's line up to the cursor."""
    extra = field(body, "input_extra", list, None) or []
    return Hole(
        field(body, "input_prefix", str, "") + field(body, "prompt", str, ""),
        field(body, "input_suffix", str, ""),
        tokens(body, "n_predict", COMPLETION_TOKENS),
        stops(body),
        tuple(_chunk(each) for each in extra),
        field(body, "path", str, ""),
        count(body, "n_cmpl" if "n_cmpl" in body else "n"),
    )


def chat(body: Body) -> GenerateRequest:
    """``/v1/chat/completions``. Tools are not passed on, so asking for any is an error."""
    if body.get("tools") and body.get("tool_choice") != "none":
        raise RequestError(
            "tools: the gateway passes none on; switch tools off for this model in the client"
        )
    messages = field(body, "messages", list)
    if not messages:
        raise RequestError("messages: at least one")
    named = next((n for n in ("max_completion_tokens", "n_predict") if n in body), "max_tokens")
    temperature, top_p, seed = sampling(body, 0.0)
    kwargs = field(body, "chat_template_kwargs", dict, {})
    return GenerateRequest(
        tuple(_message(each) for each in messages),
        tokens(body, named, CHAT_TOKENS),
        thinking=bool(kwargs.get("enable_thinking", False)),
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop=stops(body),
    )


def sampling(body: Body, default: float) -> tuple[float, float, int]:
    """Temperature, top-p and seed."""
    temperature = float(number(body, "temperature", default))
    seed = field(body, "seed", int, 0)
    return temperature, float(number(body, "top_p", 1.0)) or 1.0, max(0, seed)


def tokens(body: Body, name: str, default: int) -> int:
    """A number of tokens; -1 means as many as there may be."""
    value = field(body, name, int, default)
    return MOST_TOKENS if value < 0 else min(value, MOST_TOKENS)


def count(body: Body, name: str) -> int:
    """How many answers are wanted."""
    value = field(body, name, int, 1)
    if not 1 <= value <= MOST_CHOICES:
        raise RequestError(f"{name}: 1 to {MOST_CHOICES}, got {value}")
    return value


def stops(body: Body) -> tuple[str, ...]:
    """`stop`: one string or several."""
    value = body.get("stop")
    several = [value] if isinstance(value, str) else value or []
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise RequestError("stop: a string or a list of strings")
    return tuple(each for each in several if each)


def number(body: Body, name: str, default: float) -> float:
    """A number; null counts as not given."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name}: a number, got {value!r}"[:200])
    return value


@overload
def field(body: Body, name: str, kind: type[T]) -> T: ...
@overload
def field(body: Body, name: str, kind: type[T], default: D) -> T | D: ...
def field(body: Body, name: str, kind: type[T], default: Any = ...) -> Any:
    """A field of one type; null counts as not given. Raises RequestError naming it."""
    value = body.get(name)
    if value is None and default is not ...:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(f"{name}: {_KINDS[kind]}, got {value!r}"[:200])
    return value


_KINDS: Mapping[type, str] = {
    str: "a string", int: "a whole number", list: "a list", dict: "an object",
}  # fmt: skip


def _chunk(given: Any) -> Snippet:
    if not isinstance(given, dict):
        raise RequestError("input_extra: a list of objects with text and filename")
    return Snippet(field(given, "text", str, ""), field(given, "filename", str, ""))


def _message(given: Any) -> Message:
    if not isinstance(given, dict) or given.get("role") not in ROLES:
        raise RequestError(f"messages: each has a role of {', '.join(ROLES)}")
    content = given.get("content")
    if isinstance(content, list):
        content = "".join(_part(each) for each in content)
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise RequestError("messages: content is a string, or a list of text parts")
    return Message(ROLES[given["role"]], content)


def _part(given: Any) -> str:
    if not isinstance(given, dict) or given.get("type") != "text":
        raise RequestError("messages: only parts of type text can be read")
    return field(given, "text", str)
