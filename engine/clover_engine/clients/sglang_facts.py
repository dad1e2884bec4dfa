"""What an SGLang server says about itself: its model, how long a context, what it can do.

Asked once per connection; none of these questions runs the model (`/health` would).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clover_engine.clients.faults import Refused, malformed
from clover_engine.clients.fim import TEMPLATES, FimTemplate, template_for, template_named
from clover_engine.clients.http import HttpTransport
from clover_engine.errors import EngineUnavailable, RequestError
from clover_engine.text.thinking import OPEN, Opening

DEFAULT_CONTEXT = 4096
"""Tokens, for a server that does not say."""

Ask = Callable[..., Any]
"""`HttpTransport.json` with a call's cancel token and deadline."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One server's model."""

    name: str
    """As requests name it, and `InfillResult.model`."""
    path: str
    template: FimTemplate
    context: int
    """Tokens that a prompt and its answer may have together."""
    is_diffusion: bool
    """Denoises blocks: no log-probabilities, and its own sampling."""
    takes_options: bool
    """Clover's own algorithm: a request may choose mode, threshold and block size."""
    is_incremental: bool
    """Streams only what is new; else each event has the whole text."""
    splits_thinking: bool
    """Sends thinking in a field of its own."""


def read_facts(transport: HttpTransport, ask: Ask, model: str, fim: str) -> Facts:
    """Asks the server. `model` and `fim` override what it says, where they are not empty.

    Raises EngineUnavailable where something else listens there.
    """
    try:
        info = _object(transport, ask("GET", "/model_info"), "/model_info")
    except Refused as error:
        if error.status != 404:
            raise
        info = {}  # a router, or another server with the same interface
    card = _model_card(transport, ask)
    settings: Mapping[str, Any] = {}
    with contextlib.suppress(Refused):
        settings = _object(transport, ask("GET", "/server_info"), "/server_info")
    if not info and not card:
        raise malformed(transport.address, "it names no model")
    name = model or _text(info, "served_model_name") or _text(card, "id")
    path = _text(info, "model_path") or _text(card, "root") or name
    listed = info.get("architectures")
    architectures = tuple(map(str, listed)) if isinstance(listed, list) else ()
    algorithm = settings.get("dllm_algorithm")
    return Facts(
        name=short(name) or "model",
        path=path,
        template=_template(ask, fim, (name, path), architectures, _text(info, "model_type")),
        context=_context(settings, card),
        is_diffusion=bool(algorithm),
        takes_options=algorithm == "Clover",
        is_incremental=bool(settings.get("incremental_streaming_output")),
        splits_thinking=bool(info.get("reasoning_parser") or settings.get("reasoning_parser")),
    )


def short(path: str) -> str:
    """A model's name without folders; some servers name it by its path."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def opening(ask: Ask, thinking: bool) -> Opening:
    """How the assistant's turn begins where the server leaves thinking in the text: newer
    templates end the prompt with the opening mark, which the answer then lacks."""
    if not thinking:
        return "answer"
    probe = {
        "messages": [{"role": "user", "content": "?"}],
        "chat_template_kwargs": {"enable_thinking": True},
    }
    try:
        tokens = ask("POST", "/tokenize", probe, retry=True)["tokens"]
        text = ask("POST", "/detokenize", {"tokens": tokens[-8:]}, retry=True)["text"]
    except (EngineUnavailable, RequestError, TypeError, KeyError, IndexError):
        return "start"
    return "thinking" if isinstance(text, str) and text.rstrip().endswith(OPEN) else "start"


def count_tokens(ask: Ask, body: Mapping[str, Any]) -> int | None:
    """How many tokens ``/tokenize`` makes of a prompt or of messages; None where it cannot say."""
    try:
        count = ask("POST", "/tokenize", dict(body), retry=True)["count"]
    except (Refused, RequestError, TypeError, KeyError):
        return None
    return count if isinstance(count, int) and count >= 0 else None


def _template(
    ask: Ask, fim: str, names: tuple[str, ...], architectures: tuple[str, ...], kind: str
) -> FimTemplate:
    if fim:
        return template_named(fim)
    is_clover = kind == "clover" or any(a.startswith("Clover") for a in architectures)
    if is_clover:  # its tokenizer is our own, or that of the model it was converted from
        own = TEMPLATES["clover"]
        marks = (own.before, own.after, own.middle)
        if all(_is_token(ask, mark) for mark in marks):
            return own
        return TEMPLATES["qwen"] if _is_token(ask, TEMPLATES["qwen"].middle) else TEMPLATES["plain"]
    found = (template_for(name, architectures, kind) for name in names)
    return next((t for t in found if t.name != "plain"), TEMPLATES["plain"])


def _is_token(ask: Ask, mark: str) -> bool:
    """The server's tokenizer knows the mark as one token."""
    return count_tokens(ask, {"prompt": mark, "add_special_tokens": False}) == 1


def _model_card(transport: HttpTransport, ask: Ask) -> Mapping[str, Any]:
    try:
        answer = _object(transport, ask("GET", "/v1/models"), "/v1/models")
    except Refused as error:
        if error.status != 404:
            raise
        return {}
    cards = answer.get("data")
    first = cards[0] if isinstance(cards, list) and cards else {}
    return _object(transport, first, "/v1/models")


def _object(transport: HttpTransport, data: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise malformed(transport.address, f"{path} is no JSON object")
    return data


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _context(settings: Mapping[str, Any], card: Mapping[str, Any]) -> int:
    """The smallest of what limits a request: the model's context and the cache's size."""
    given = (
        settings.get("context_length"),
        card.get("max_model_len"),
        settings.get("max_req_input_len"),
        settings.get("max_total_num_tokens"),
    )
    return min((n for n in given if isinstance(n, int) and n > 0), default=DEFAULT_CONTEXT)
