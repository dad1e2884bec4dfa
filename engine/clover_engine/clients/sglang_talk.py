"""Conversations with a model that SGLang serves, and decisions by it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from clover_engine.api import DecodeStats, InfillRequest
from clover_engine.clients import questions
from clover_engine.clients.call import Call, valid
from clover_engine.clients.dialogue import PATH, converse
from clover_engine.clients.faults import Refused, malformed
from clover_engine.clients.http import HttpTransport
from clover_engine.clients.sglang_facts import Facts, count_tokens, opening
from clover_engine.errors import RequestCancelled, RequestError
from clover_engine.generation import (
    Decision,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    Message,
    OnPiece,
    Question,
)
from clover_engine.text.thinking import Opening

_ANSWER_TOKENS = 8
"""For one line of a joint decision."""
_ALTERNATIVES = 20


class Talk:
    """The chat of one call."""

    def __init__(self, http: HttpTransport, facts: Facts, call: Call) -> None:
        self._http, self._facts, self._call = http, facts, call

    def generate(self, request: GenerateRequest, on_piece: OnPiece | None) -> GenerateResult:
        """Raises RequestError for a conversation that leaves no room for an answer."""
        call, body = self._call, self._body(request)
        result: GenerateResult | None = None
        try:
            result = converse(
                self._http,
                body,
                request,
                opening=self._opening(request.thinking),
                cancel=call.cancel,
                deadline_s=call.left_s,
                on_piece=on_piece,
            )
            return result
        finally:
            if result is None or result.finish_reason in ("stop", "deadline", "cancelled"):
                self._http.tell("/abort_request", {"rid": body["rid"]})

    def decide(self, request: DecisionRequest) -> DecisionResult:
        """Jointly: one answer names all options. One by one: the server scores each option, or,
        where it cannot, is asked for one answer each. Raises Unsupported."""
        asked = request.questions
        if request.joint:
            decisions, stats = self._answered(request.material, asked)
            return DecisionResult(tuple(decisions), stats)
        try:
            return DecisionResult(tuple(self._scored(request)), self._stats())
        except (Refused, RequestError):
            pass  # block diffusion has no scores, and older servers no such question
        found: list[Decision] = []
        total = DecodeStats()
        for question in asked:
            decisions, stats = self._answered(request.material, (question,))
            found += decisions
            total += stats
        return DecisionResult(tuple(found), total)

    def _body(self, request: GenerateRequest) -> dict[str, Any]:
        """Raises RequestError for a conversation that leaves no room for an answer."""
        facts = self._facts
        shared = {
            "messages": [
                {"role": m.role, "content": valid(facts.template.defused(m.content))}
                for m in request.messages
            ],
            "chat_template_kwargs": {"enable_thinking": request.thinking},
        }
        body: dict[str, Any] = {
            **shared,
            "model": facts.name,
            "max_tokens": min(request.max_new_tokens, self._room(shared)),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "rid": uuid.uuid4().hex,
        }
        if request.temperature > 0:
            body["seed"] = request.seed
        if facts.takes_options:
            body["custom_params"] = decoding_options(request)
        return body

    def _opening(self, thinking: bool) -> Opening:
        return "answer" if self._facts.splits_thinking else opening(self._call.ask, thinking)

    def _room(self, prompt: Mapping[str, Any]) -> int:
        """Tokens that the context has for the answer."""
        count = count_tokens(self._call.ask, prompt)
        if count is None:  # two characters a token is the least that languages with spaces need
            count = sum(len(m["content"]) for m in prompt["messages"]) // 2
        room = self._facts.context - count - 1
        if room < 1:
            raise RequestError(
                f"the conversation has {count} tokens, the server reads {self._facts.context} "
                "with its answer; shorten it"
            )
        return room

    def _answered(
        self, material: str, asked: tuple[Question, ...]
    ) -> tuple[list[Decision], DecodeStats]:
        message = Message("user", questions.joint_prompt(material, asked))
        tokens = _ANSWER_TOKENS * len(asked)
        request = GenerateRequest(
            (message,), max_new_tokens=tokens, thinking=False, deadline_s=self._call.left_s
        )
        if not self._facts.is_diffusion:
            return self._answered_with_logprobs(request, asked)
        result = self.generate(request, None)
        if result.finish_reason in ("cancelled", "deadline"):
            raise RequestCancelled("ended before all questions were answered; allow more time")
        return questions.read_decisions(result.text, asked, ()), result.stats

    def _answered_with_logprobs(
        self, request: GenerateRequest, asked: tuple[Question, ...]
    ) -> tuple[list[Decision], DecodeStats]:
        """The same in one answer that is not streamed, since those have the most to tell."""
        body = self._body(request) | {"logprobs": True, "top_logprobs": _ALTERNATIVES}
        answer = self._call.ask("POST", PATH, body)
        return questions.read_chat(self._http.address, answer, asked), self._stats()

    def _scored(self, request: DecisionRequest) -> list[Decision]:
        path = "/v1/decisions"
        body = {
            "model": self._facts.name,
            "input": valid(request.material) if request.material.strip() else "(nothing)",
            "questions": [
                {
                    "id": f"q{number}",
                    "type": "choice",
                    "question": valid(question.text) if question.text.strip() else "Which?",
                    "options": [
                        {"name": f"{i}: {valid(o)}"} for i, o in enumerate(question.options)
                    ],
                }
                for number, question in enumerate(request.questions)
            ],
        }
        answers = _get(self._call.ask("POST", path, body), "answers")
        found = []
        for number, question in enumerate(request.questions):
            given = _get(_get(answers, f"q{number}"), "probabilities")
            values = [_get(given, name) for name in _names(question)]
            if not all(isinstance(v, int | float) and v >= 0 for v in values) or not sum(values):
                raise malformed(self._http.address, f"{path} answers without probabilities")
            shares = tuple(float(v) / sum(values) for v in values)
            found.append(Decision(shares.index(max(shares)), shares))
        return found

    def _stats(self) -> DecodeStats:
        return DecodeStats(seconds=self._call.seconds)


def decoding_options(request: InfillRequest | GenerateRequest) -> dict[str, Any]:
    """What `clover_engine.serving` reads from a request's `custom_params`."""
    given = {
        "mode": request.mode,
        "threshold": request.threshold,
        "block_size": request.block_size,
    }
    return {name: value for name, value in given.items() if value is not None}


def _names(question: Question) -> list[str]:
    """The options as the server names them: never blank, all different."""
    return [f"{i}: {valid(option)}" for i, option in enumerate(question.options)]


def _get(data: Any, key: str) -> Any:
    """`data[key]`, None where there is none."""
    return data.get(key) if isinstance(data, Mapping) else None
