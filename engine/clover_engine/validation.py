"""What a request must look like; every engine applies the same rules before it computes."""

from __future__ import annotations

import math
import typing

from clover_engine.api import ClozeRequest, InfillRequest, Mode, ScoreRequest
from clover_engine.errors import RequestError
from clover_engine.generation import MAX_QUESTIONS, DecisionRequest, GenerateRequest, Role

MAX_TOKENS = 4096
MAX_CHOICES = 64
MAX_CANDIDATES = 4096
MAX_FORCED = 128
MAX_NEW_TOKENS = 131072
MAX_OPTIONS = 26


def check_request(request: InfillRequest | ScoreRequest | ClozeRequest) -> None:
    """Raises `RequestError` naming the field and its allowed values."""
    _check_text(request)
    _check_deadline(request.deadline_s)
    if isinstance(request, InfillRequest):
        _check_infill(request)
    elif isinstance(request, ScoreRequest):
        count = len(request.candidates)
        _require(1 <= count <= MAX_CANDIDATES, f"candidates: 1 to {MAX_CANDIDATES}, got {count}")
    else:
        _check_cloze(request)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RequestError(message)


def _check_text(request: InfillRequest | ScoreRequest | ClozeRequest) -> None:
    texts: list[object] = [request.prefix, request.suffix]
    if request.original is not None:
        texts.append(request.original)
    if isinstance(request, ScoreRequest):
        texts += request.candidates
    if isinstance(request, InfillRequest):
        texts += (request.must_start_with, *request.stop, *request.drafts)
        texts += (s.text for s in request.snippets)
    _require(all(isinstance(t, str) for t in texts), "prefix, suffix and other texts: strings")


def _check_deadline(deadline_s: float | None) -> None:
    if deadline_s is not None:
        _require(
            isinstance(deadline_s, int | float) and not math.isnan(deadline_s),
            f"deadline_s: seconds or nothing, got {deadline_s!r}",
        )


def _check_infill(request: InfillRequest) -> None:
    _check_decoding(request)
    _require(
        1 <= request.max_tokens <= MAX_TOKENS,
        f"max_tokens: 1 to {MAX_TOKENS}, got {request.max_tokens}",
    )
    _require(1 <= request.n <= MAX_CHOICES, f"n: 1 to {MAX_CHOICES}, got {request.n}")
    _require(
        request.n == 1 or request.temperature > 0,
        "n: more than one sample needs a temperature above 0",
    )
    length = len(request.must_start_with)
    _require(
        length <= MAX_FORCED, f"must_start_with: at most {MAX_FORCED} characters, got {length}"
    )


def _check_decoding(request: InfillRequest | GenerateRequest) -> None:
    """What requests that generate have in common."""
    modes = typing.get_args(Mode)
    _require(request.mode in modes, f"mode: one of {', '.join(modes)}, got {request.mode!r}")
    _require(
        math.isfinite(request.temperature) and request.temperature >= 0,
        f"temperature: 0 or more, got {request.temperature}",
    )
    _require(0 < request.top_p <= 1, f"top_p: above 0, at most 1, got {request.top_p}")
    if request.threshold is not None:
        _require(0 < request.threshold <= 1, f"threshold: above 0, at most 1: {request.threshold}")
    if request.block_size is not None:
        _require(1 <= request.block_size <= 32, f"block_size: 1 to 32, got {request.block_size}")
    _require(all(request.stop), "stop: no empty strings")


def _check_cloze(request: ClozeRequest) -> None:
    _require(0 <= request.max_remove <= 8, f"max_remove: 0 to 8, got {request.max_remove}")
    _require(0 <= request.max_insert <= 8, f"max_insert: 0 to 8, got {request.max_insert}")
    _require(request.top >= 1, f"top: 1 or more, got {request.top}")


def check_generate(request: GenerateRequest) -> None:
    """Raises `RequestError` naming the field and its allowed values."""
    _check_decoding(request)
    _check_deadline(request.deadline_s)
    _require(len(request.messages) > 0, "messages: at least one, got none")
    roles = typing.get_args(Role)
    for message in request.messages:
        _require(message.role in roles, f"role: one of {', '.join(roles)}, got {message.role!r}")
        _require(isinstance(message.content, str), "a message's content: a string")
    _require(
        1 <= request.max_new_tokens <= MAX_NEW_TOKENS,
        f"max_new_tokens: 1 to {MAX_NEW_TOKENS}, got {request.max_new_tokens}",
    )


def check_decision(request: DecisionRequest) -> None:
    """Raises `RequestError` naming the field and its allowed values."""
    _check_deadline(request.deadline_s)
    _require(isinstance(request.material, str), "material: a string")
    count = len(request.questions)
    _require(1 <= count <= MAX_QUESTIONS, f"questions: 1 to {MAX_QUESTIONS}, got {count}")
    for question in request.questions:
        options = question.options
        _require(
            2 <= len(options) <= MAX_OPTIONS,
            f"options: 2 to {MAX_OPTIONS} a question, got {len(options)}: {question.text!r}",
        )
        _require(len(set(options)) == len(options), f"options: all different: {question.text!r}")
