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


def _check_number(name: str, value: object, low: float, high: float, what: str) -> None:
    """`value` is a finite number from `low` to `high`, else RequestError: `name`: `what`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(value) if is_number and abs(value) < 1e308 else math.nan  # type: ignore[arg-type]
    _require(math.isfinite(number) and low <= number <= high, f"{name}: {what}, got {value!r}")


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    _require(good, f"{name}: {low} to {high}, got {value!r}")


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
        good = isinstance(deadline_s, int | float) and not math.isnan(deadline_s)
        _require(good, f"deadline_s: seconds or nothing, got {deadline_s!r}")


def _check_infill(request: InfillRequest) -> None:
    _check_decoding(request)
    _check_whole("max_tokens", request.max_tokens, 1, MAX_TOKENS)
    _check_whole("n", request.n, 1, MAX_CHOICES)
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
    known = isinstance(request.mode, str) and request.mode in modes
    _require(known, f"mode: one of {', '.join(modes)}, got {request.mode!r}")
    _check_number("temperature", request.temperature, 0, math.inf, "0 or more")
    _check_number("top_p", request.top_p, 0, 1, "above 0, at most 1")
    _require(request.top_p > 0, f"top_p: above 0, at most 1, got {request.top_p}")
    if request.threshold is not None:
        _check_number("threshold", request.threshold, 0, 1, "above 0, at most 1")
        _require(request.threshold > 0, f"threshold: above 0, at most 1: {request.threshold}")
        _require(
            request.mode == "threshold",
            f"threshold: mode 'threshold' alone has one, not {request.mode!r}; leave it out",
        )
    if request.block_size is not None:
        _check_whole("block_size", request.block_size, 1, 32)
    good = isinstance(request.seed, int) and not isinstance(request.seed, bool)
    _require(good, f"seed: a whole number, got {request.seed!r}")
    _require(all(isinstance(s, str) and s for s in request.stop), "stop: no empty strings")


def _check_cloze(request: ClozeRequest) -> None:
    _check_whole("max_remove", request.max_remove, 0, 8)
    _check_whole("max_insert", request.max_insert, 0, 8)
    _check_whole("top", request.top, 1, MAX_CANDIDATES)


def check_generate(request: GenerateRequest) -> None:
    """Raises `RequestError` naming the field and its allowed values."""
    _check_decoding(request)
    _check_deadline(request.deadline_s)
    _require(len(request.messages) > 0, "messages: at least one, got none")
    roles = typing.get_args(Role)
    for message in request.messages:
        _require(message.role in roles, f"role: one of {', '.join(roles)}, got {message.role!r}")
        _require(isinstance(message.content, str), "a message's content: a string")
    _check_whole("max_new_tokens", request.max_new_tokens, 1, MAX_NEW_TOKENS)


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
