"""What `/generate` of SGLang sends: streamed texts, and the log-probabilities of a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clover_engine.api import DecodeStats, FinishReason, Infill
from clover_engine.clients.address import Address
from clover_engine.clients.faults import event_error, malformed, one_line
from clover_engine.clients.fim import FimTemplate
from clover_engine.errors import EngineUnavailable, RequestError

PATH = "/generate"
NOMINAL_CONFIDENCE = 0.95
"""A token's probability where the server gives none, as block diffusion in SGLang does not: it
commits a token once that is above its threshold, which is this by default. A bound by convention,
not a measurement; `clover_engine.gate` shows short texts at it and not long ones."""
_CLIENT_ERRORS = range(400, 500)


@dataclass(slots=True)
class _Output:
    text: str = ""
    logprobs: list[tuple[float, str | None]] = field(default_factory=list)
    """Of each token, with its text where the server gives it."""
    finish: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


class Outputs:
    """The texts of one streamed request, as far as they have come."""

    def __init__(self, address: Address, count: int, is_incremental: bool) -> None:
        self._address, self._is_incremental = address, is_incremental
        self.texts = [_Output() for _ in range(count)]

    @property
    def is_empty(self) -> bool:
        return not any(output.text for output in self.texts)

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises EngineUnavailable or RequestError for an error, or anything unexpected."""
        if (error := event_error(event)) is not None:
            raise self._failed(error, _code(event.get("error")))
        index = event.get("index", 0)
        text, about = event.get("text"), event.get("meta_info", {})
        is_known = isinstance(index, int) and 0 <= index < len(self.texts)
        if not is_known or not isinstance(about, Mapping):
            raise malformed(self._address, f"{PATH} streams what is no text")
        if text is not None and not isinstance(text, str):
            raise malformed(self._address, f"{PATH} streams what is no text")
        output = self.texts[index]
        output.about = about
        if text is not None:
            output.text = output.text + text if self._is_incremental else text
        found = token_logprobs(about.get("output_token_logprobs"))
        output.logprobs = output.logprobs + found if self._is_incremental else found
        self._finish(output, about.get("finish_reason"))

    def infill(
        self,
        index: int,
        begin: str,
        template: FimTemplate,
        stops: tuple[str, ...],
        reason: FinishReason | None,
    ) -> Infill:
        """One text, which begins with `begin`, cut at marks and stop strings. `reason`: why the
        client stopped listening, if it did."""
        output = self.texts[index]
        marked = template.cut(output.text)
        new, has_stopped = cut_at(marked, stops)
        if has_stopped or output.finish == "stop string":
            reason = "stop"
        elif output.finish == "eom" or len(marked) < len(output.text):
            reason = "eom"
        elif output.finish or reason is None:
            reason = "length"
        confidence = self._confidence(output, len(new), reason == "eom") if output.text else 0.0
        return Infill(begin + new, confidence, reason)

    def is_over(self, index: int, stops: tuple[str, ...]) -> bool:
        """Nothing more of this text will be used."""
        output = self.texts[index]
        return bool(output.finish) or cut_at(output.text, stops)[1]

    def stats(self, seconds: float) -> DecodeStats:
        """Prompt, cached and new tokens over all texts, where the server says."""
        total = DecodeStats()
        for output in self.texts:
            prompt, cached = (_count(output.about, n) for n in ("prompt_tokens", "cached_tokens"))
            tokens = _count(output.about, "completion_tokens")
            total += DecodeStats(
                prefill_tokens=max(0, prompt - cached), cached_tokens=cached, tokens=tokens
            )
        return total + DecodeStats(seconds=seconds)

    def _confidence(self, output: _Output, kept: int, with_end: bool) -> float:
        """Geometric mean probability of the tokens of the first `kept` characters."""
        if not output.logprobs:
            return NOMINAL_CONFIDENCE
        used: list[float] = []
        at = 0
        for logprob, text in output.logprobs:
            if at >= kept and not with_end and used:
                break
            used.append(logprob)
            at += len(text) if text is not None else 0
        return math.exp(min(0.0, sum(used) / len(used)))

    def _finish(self, output: _Output, reason: Any) -> None:
        if reason is None:
            return
        kind = reason.get("type") if isinstance(reason, Mapping) else reason
        if kind == "abort":
            said = reason.get("message") if isinstance(reason, Mapping) else None
            raise self._failed(one_line(str(said or "aborted")), _code(reason))
        if kind == "stop":
            matched = reason.get("matched") if isinstance(reason, Mapping) else None
            output.finish = "stop string" if isinstance(matched, str) else "eom"
        else:
            output.finish = "length"

    def _failed(self, error: str, code: int | None) -> RequestError | EngineUnavailable:
        where = self._address.url + PATH
        if code in _CLIENT_ERRORS:
            return RequestError(f"{where} refuses the request: {error}; change it, or see its log")
        return EngineUnavailable(f"{where} failed: {error}; ask again or see its log")


def cut_at(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """`text` before the first of the stop strings, and whether there was one."""
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def token_logprobs(data: Any) -> list[tuple[float, str | None]]:
    """Reads ``[[logprob, id, text], …]``; entries without a number are left out."""
    found: list[tuple[float, str | None]] = []
    for entry in data if isinstance(data, list) else ():
        if not isinstance(entry, list) or not entry:
            continue
        value = entry[0]
        if isinstance(value, int | float) and math.isfinite(value):
            text = entry[2] if len(entry) > 2 and isinstance(entry[2], str) else None
            found.append((float(value), text))
    return found


def prompt_logprobs(address: Address, answer: Any, count: int, begin: int) -> list[list[float]]:
    """The log-probabilities of `count` prompts' tokens from position `begin` on.

    Raises EngineUnavailable for an answer of another form.
    """
    items = answer if isinstance(answer, list) else [answer]
    if len(items) != count:
        raise malformed(address, f"{PATH} answers {len(items)} of {count} texts")
    found = []
    for item in items:
        about = item.get("meta_info") if isinstance(item, Mapping) else None
        if not isinstance(about, Mapping):
            raise malformed(address, f"{PATH} answers without meta_info")
        values = [value for value, _ in token_logprobs(about.get("input_token_logprobs"))]
        wanted = _count(about, "prompt_tokens") - begin
        if not 0 < wanted <= len(values):
            raise malformed(address, f"{PATH} answers without the prompt's log-probabilities")
        found.append(values[-wanted:])
    return found


def _code(error: Any) -> int | None:
    if not isinstance(error, Mapping):
        return None
    code = error.get("status_code", error.get("code"))
    return code if isinstance(code, int) else None


def _count(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    return value if isinstance(value, int) and value >= 0 else 0
