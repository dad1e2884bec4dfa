"""A model served by llama.cpp's `llama-server`, as an `Engine` and a `TextEngine`.

Holes go to ``/infill``, where the server itself puts the marks of the model's vocabulary around
the text. A model without such marks continues the prefix and does not see the suffix
(``/completion``). Answers are streamed, so that a deadline or a cancellation finds what there is;
closing the connection is how the server learns to stop. Which slot, and how much of its cache, is
the server's choice, unless `slot` says otherwise.

- Healing (`must_start_with`) and decisions use grammars. The probabilities are the model's own,
  before the grammar and before sampling.
- `score` and `cloze` are `Unsupported`. A candidate forced by a grammar has probabilities, but of
  other tokens than the vocabulary's own for that text (``w i d th`` for ``width``).
- Unknown fields of newer servers are ignored; older servers ignore fields that they do not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    Health,
    Infill,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.clients import gbnf
from clover_engine.clients.call import Deadline, valid
from clover_engine.clients.dialogue import converse
from clover_engine.clients.faults import malformed
from clover_engine.clients.fim import FimParts
from clover_engine.clients.http import DeadlineReached, HttpLimits
from clover_engine.clients.llamacpp_answer import Answer
from clover_engine.clients.llamacpp_server import LlamaServer, take
from clover_engine.clients.questions import certain, joint_prompt, read_answers
from clover_engine.errors import EngineError, EngineUnavailable, RequestCancelled, Unsupported
from clover_engine.generation import (
    LETTERS,
    Decision,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    Question,
)
from clover_engine.validation import check_decision, check_generate, check_request

HEALTH_S = 3.0
_HEALING_PROBS = 24
"""Likeliest tokens that are listed where a beginning is forced."""
_LETTER_PROBS = 64


class LlamaCppEngine:
    """One llama-server. Calls may come from any thread; nothing is sent before the first."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str = "",
        ca_file: str = "",
        fim: str = "",
        slot: int | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """`model`: for a server that has several. `fim`: a name of `fim.TEMPLATES`, or one spelled
        out, instead of the server's own ``/infill``. Raises RequestError for an address that cannot
        be used."""
        self._is_closed = False
        self._server = LlamaServer(
            url,
            api_key=api_key or "",
            model=model,
            ca_file=ca_file,
            template=fim,
            slot=slot,
            limits=limits,
        )

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        """`n` samples are generated one after the other, with the seeds from `seed` on."""
        check_request(request)
        left = Deadline(request.deadline_s)
        _require_going(cancel)
        late = Infill("", 0.0, "deadline")
        choices: list[Infill] = []
        stats = DecodeStats()
        model = self._server.model
        while len(choices) < request.n and not left.is_over:
            try:
                model = self._server.props(cancel, left).model
                sample = replace(request, seed=request.seed + len(choices))
                answer = self._filled(sample, cancel, left)
            except DeadlineReached:
                break
            except RequestCancelled:
                if not choices:
                    raise
                late = Infill("", 0.0, "cancelled")
                break
            stats += answer.stats
            choices.append(_choice(answer, request))
        choices += [late] * (request.n - len(choices))
        return InfillResult(tuple(choices), replace(stats, seconds=left.spent), model)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        check_request(request)
        self._require_open(cancel)
        if Deadline(request.deadline_s).is_over:
            return ScoreResult.late(len(request.candidates))
        raise Unsupported(
            "llama-server has no log-probabilities of a text that it is given; use another engine "
            "for repairs"
        )

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        check_request(request)
        self._require_open(cancel)
        raise Unsupported(
            "llama.cpp cannot fill several masks at once; use the embedded engine for repairs"
        )

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """A chat by the server's template; block sizes and thresholds mean nothing here."""
        check_generate(request)
        _require_going(cancel)
        body = {
            **self._server.common(),
            "messages": _messages(request),
            "max_tokens": request.max_new_tokens,
            **_sampling(request.temperature, request.top_p, request.seed),
            "chat_template_kwargs": {"enable_thinking": request.thinking},
        }
        return converse(
            self._server.http,
            body,
            request,
            cancel=cancel,
            deadline_s=request.deadline_s,
            on_piece=on_piece,
        )

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Jointly, each answer sees those before it. Raises RequestCancelled when late."""
        check_decision(request)
        left = Deadline(request.deadline_s)
        _require_going(cancel)
        groups = [request.questions] if request.joint else [(q,) for q in request.questions]
        decisions: list[Decision] = []
        stats = DecodeStats()
        try:
            for questions in groups:
                answer = self._answered(request.material, questions, cancel, left)
                decisions += _decisions(answer, questions)
                stats += answer.stats
        except DeadlineReached:
            raise RequestCancelled(
                "ended before all questions were answered; allow more time"
            ) from None
        return DecisionResult(tuple(decisions), replace(stats, seconds=left.spent))

    def health(self) -> Health:
        """Asks ``/health`` and ``/props``, which cost the server nothing and wake no model."""
        try:
            self._server.http.json("GET", "/health", deadline_s=HEALTH_S, retry=False)
            self._server.forget()
            props = self._server.props(None, Deadline(HEALTH_S))
        except DeadlineReached:
            url = self._server.url
            return Health(False, "llamacpp", f"{url} did not answer within {HEALTH_S:g} s; see it")
        except EngineError as error:
            return Health(False, "llamacpp", str(error))
        return Health(True, "llamacpp", model=props.model)

    def close(self) -> None:
        self._is_closed = True
        self._server.http.close()

    def __enter__(self) -> LlamaCppEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self, cancel: CancelToken | None) -> None:
        _require_going(cancel)
        if self._is_closed:
            raise EngineUnavailable("the engine is closed; open a new one")

    def _filled(self, request: InfillRequest, cancel: CancelToken | None, left: Deadline) -> Answer:
        """One sample, or what there was of it at the deadline or the cancellation."""
        forced = valid(request.must_start_with)
        body = {
            **self._server.common(),
            # Room for the beginning, which is as many tokens as the server makes of it.
            "n_predict": request.max_tokens + len(forced.encode()),
            **_sampling(request.temperature, request.top_p, request.seed),
            "n_probs": _HEALING_PROBS if forced else 1,
            "stop": [valid(stop) for stop in request.stop if stop not in forced],
            "stream": True,
        }
        if forced:
            body["grammar"] = gbnf.starting_with(forced)
        if (seconds := left()) is not None:
            body["t_max_predict_ms"] = max(1, round(1000 * seconds))
        answer = Answer()

        def stream(path: str, full: Mapping[str, Any]) -> None:
            events = self._server.http.events(path, full, cancel=cancel, deadline_s=left())
            with contextlib.closing(events):
                for event in events:
                    take(self._server.http.address, answer, event, path)
                    has_all = bool(forced) and answer.free_tokens(forced) >= request.max_tokens
                    if has_all and answer.reason is None:
                        answer.reason = "length"
                        return

        hole = FimParts(request.prefix, request.suffix, request.snippets)
        try:
            self._server.ask(
                hole, body, request.max_tokens, cancel, left, stream, lambda: answer.count == 0
            )
        except DeadlineReached:
            answer.reason = "deadline"
        except RequestCancelled:
            if not answer.text:
                raise
            answer.reason = "cancelled"
        if not (answer.text.startswith(forced) or forced.startswith(answer.text)):
            raise malformed(self._server.http.address, "it does not keep to a grammar")
        return answer

    def _answered(
        self,
        material: str,
        questions: tuple[Question, ...],
        cancel: CancelToken | None,
        left: Deadline,
    ) -> Answer:
        """One letter for every question, in the form that `read_answers` reads."""
        message = {"role": "user", "content": valid(joint_prompt(material, questions))}
        chat = {
            **self._server.common(),
            "messages": [message],
            "chat_template_kwargs": {"enable_thinking": False},
        }
        prompt = self._server.http.json(
            "POST", "/apply-template", chat, cancel=cancel, deadline_s=left(), retry=True
        )
        if not isinstance(prompt, Mapping) or not isinstance(prompt.get("prompt"), str):
            raise malformed(self._server.http.address, "/apply-template gives no prompt")
        options = [LETTERS[: len(question.options)] for question in questions]
        body = {
            **self._server.common(),
            "prompt": prompt["prompt"],
            "grammar": gbnf.answers(options),
            "n_predict": 8 * len(questions),
            **_sampling(0.0, 1.0, 0),
            "n_probs": _LETTER_PROBS,
        }
        data = self._server.http.json("POST", "/completion", body, cancel=cancel, deadline_s=left())
        answer = Answer()
        take(self._server.http.address, answer, data, "/completion")
        return answer


def _require_going(cancel: CancelToken | None) -> None:
    if cancel is not None and cancel.cancelled:
        raise RequestCancelled("the request was cancelled before it began")


def _sampling(temperature: float, top_p: float, seed: int) -> dict[str, Any]:
    """Nothing but what is asked for: servers start with penalties and other samplers of theirs."""
    return {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": 0,
        "min_p": 0.0,
        "samplers": ["top_p", "temperature"],
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed % 2**32,
    }


def _choice(answer: Answer, request: InfillRequest) -> Infill:
    """The text before the first stop string."""
    begin = len(request.must_start_with)
    text, reason = answer.text, answer.reason or "eom"
    cuts = [at for stop in request.stop if (at := text.find(stop, begin)) >= 0]
    if cuts:
        text, reason = text[: min(cuts)], "stop"
    return Infill(text, answer.confidence(request.must_start_with), reason)


def _decisions(answer: Answer, questions: tuple[Question, ...]) -> list[Decision]:
    """The options that were named, and how probable each was in its place."""
    named = read_answers(answer.text, questions)
    letters = [token for token in answer.tokens if token.text.strip() in [*LETTERS]]
    if len(letters) != len(questions):  # the vocabulary has tokens for more than the letter
        return [certain(named[i], question) for i, question in enumerate(questions)]
    return [
        Decision(named[i], tuple(letters[i].among(LETTERS[: len(question.options)])))
        for i, question in enumerate(questions)
    ]


def _messages(request: GenerateRequest) -> list[dict[str, str]]:
    return [{"role": m.role, "content": valid(m.content)} for m in request.messages]
