"""A model behind OpenAI's interface (Ollama, LM Studio, vLLM, services), as an engine.

    OpenAIEngine("http://127.0.0.1:11434", model="qwen2.5-coder:7b")

Conversations go to ``/v1/chat/completions``. Holes go to ``/v1/completions`` as text with the marks
of the model's family, which its name tells (`fim.template_for`); a model without marks continues
the prefix and does not see the suffix. What the interface does not have:

- `score` and `cloze` are `Unsupported`: it gives no log-probabilities of a text it is given;
- `must_start_with` is written into the prompt;
- modes, thresholds, block sizes and drafts are the server's matter;
- `confidence` comes from the tokens' log-probabilities where the server sends them (vLLM does),
  else see `sglang_stream.NOMINAL_CONFIDENCE`;
- `seed` has an effect where the server has seeds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
from clover_engine.clients import questions
from clover_engine.clients.call import Call, valid
from clover_engine.clients.dialogue import PATH, converse
from clover_engine.clients.faults import malformed
from clover_engine.clients.fim import FimParts, FimTemplate, fit, template_for, template_named
from clover_engine.clients.http import DeadlineReached, HttpLimits, HttpTransport
from clover_engine.clients.openai_answer import Answer
from clover_engine.errors import (
    EngineCrashed,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
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
from clover_engine.validation import check_decision, check_generate, check_request

COMPLETIONS, MODELS = "/v1/completions", "/v1/models"
HEALTH_S = 3.0
MAX_PROMPT_CHARS = 24_000
DEFAULT_CONTEXT = 4096
"""Tokens, where the server does not say: what Ollama reads of a longer prompt is only its end."""
_CHARS_PER_TOKEN = 2.8
_SHRINKS = 4
_STOPS = 4
"""So many stop strings the interface allows, and it does not say which one it met: those of the
request are looked for here."""
_TOO_LONG = re.compile(r"context|too long|maximum.{0,20}length|exceed", re.I)
_LETTER_TOKENS, _ALTERNATIVES = 8, 20


@dataclass(frozen=True, slots=True)
class Served:
    """The model that answers."""

    name: str
    context: int
    template: FimTemplate


class OpenAIEngine:
    """`Engine` and `TextEngine` over HTTP. Calls may come from any thread."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str = "",
        ca_file: str = "",
        fim: str = "",
        limits: HttpLimits | None = None,
    ) -> None:
        """`url` with or without ``/v1``. `model` must be given where the server has several;
        `fim` (a name of `fim.TEMPLATES`) overrides what the model's name says.

        Connects to nothing yet. Raises RequestError for a URL or key that cannot be used.
        """
        base = url.rstrip("/").removesuffix("/v1")
        self._http = HttpTransport(base, api_key=api_key or "", ca_file=ca_file, limits=limits)
        self._model = model
        self._fim = template_named(fim) if fim else None
        self._served: Served | None = None

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        """`n` samples are generated one after the other, with the seeds from `seed` on."""
        check_request(request)
        call = Call(self._http, request.deadline_s, cancel)
        choices: list[Infill] = []
        stats = DecodeStats()
        name, late = self._model, Infill("", 0.0, "deadline")
        try:
            with self._asked(call) as served:
                name = served.name
                while len(choices) < request.n:
                    sample = replace(request, seed=request.seed + len(choices))
                    answer = self._filled(sample, served, call)
                    stats += answer.stats
                    choices.append(answer.infill(served.template, request))
        except DeadlineReached:
            pass
        except RequestCancelled:
            if not choices:
                raise
            late = Infill("", 0.0, "cancelled")
        choices += [late] * (request.n - len(choices))
        return InfillResult(tuple(choices), replace(stats, seconds=call.seconds), name)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        check_request(request)
        try:
            Call(self._http, request.deadline_s, cancel).check()
        except DeadlineReached:
            return ScoreResult.late(len(request.candidates))
        raise Unsupported(
            "this interface has no log-probabilities of a text that it is given; use another "
            "engine to rank repairs"
        )

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        check_request(request)
        Call(self._http, None, cancel).check()
        raise Unsupported("this interface cannot fill several masks at once; use another engine")

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """A chat by the server's template; whether the model thinks is the server's matter."""
        check_generate(request)
        call = Call(self._http, request.deadline_s, cancel)
        try:
            with self._asked(call) as served:
                return converse(
                    self._http,
                    _chat(request, served),
                    request,
                    cancel=cancel,
                    deadline_s=call.left_s,
                    on_piece=on_piece,
                )
        except DeadlineReached:
            return GenerateResult("", "", "deadline", DecodeStats(seconds=call.seconds))

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Jointly, each answer sees those before it. Raises RequestCancelled when late, and
        Unsupported where the model's words name no option."""
        check_decision(request)
        call = Call(self._http, request.deadline_s, cancel)
        groups = [request.questions] if request.joint else [(q,) for q in request.questions]
        try:
            with self._asked(call) as served:
                found = [
                    decision
                    for asked in groups
                    for decision in self._answered(request.material, asked, served, call)
                ]
        except DeadlineReached:
            raise RequestCancelled(
                "ended before all questions were answered; allow more time"
            ) from None
        return DecisionResult(tuple(found), DecodeStats(seconds=call.seconds))

    def health(self) -> Health:
        """Asks which models there are, which runs none."""
        self._served = None
        try:
            with self._asked(Call(self._http, HEALTH_S, None)) as served:
                return Health(True, "openai", model=served.name)
        except DeadlineReached:
            url = self._http.address.url
            return Health(False, "openai", f"{url} did not answer within {HEALTH_S:g} s; see it")
        except EngineError as error:
            return Health(False, "openai", str(error))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _asked(self, call: Call) -> Iterator[Served]:
        """The model; forgotten where the server fails: another may come back."""
        call.check()
        try:
            if self._served is None:
                self._served = self._find(call)
            yield self._served
        except (EngineUnavailable, EngineCrashed):
            self._served = None
            raise

    def _find(self, call: Call) -> Served:
        """Raises EngineUnavailable where the model must be chosen, with the names there are."""
        data = call.ask("GET", MODELS)
        listed = data.get("data") if isinstance(data, Mapping) else None
        if not isinstance(listed, list):
            raise malformed(self._http.address, f"{MODELS} lists no models")
        cards = {str(c["id"]): c for c in listed if isinstance(c, Mapping) and "id" in c}
        name = self._model or next(iter(cards), "")
        if not self._model and len(cards) != 1:
            names = ", ".join(list(cards)[:6]) or "none"
            raise EngineUnavailable(
                f"{self._http.address.url} has these models: {names}; set the model to one of them"
            )
        limit = cards.get(name, {}).get("max_model_len")
        context = limit if isinstance(limit, int) and limit > 0 else DEFAULT_CONTEXT
        return Served(name, context, self._fim or template_for(name))

    def _filled(self, request: InfillRequest, served: Served, call: Call) -> Answer:
        """One sample, or what there was of it at the deadline or the cancellation; asked with
        less text while the server says that it is too long."""
        begin = request.must_start_with
        hole = FimParts(request.prefix + begin, request.suffix, request.snippets, request.original)
        tokens = min(request.max_tokens, max(1, served.context // 2))
        chars = min(MAX_PROMPT_CHARS, int((served.context - tokens) * _CHARS_PER_TOKEN))
        body = _sampling(request.temperature, request.top_p, request.seed)
        body |= {"model": served.name, "max_tokens": tokens, "logprobs": 1}
        body["stop"] = [valid(end) for end in served.template.ends[:_STOPS]]
        ends = [*request.stop, *served.template.ends]
        for _ in range(_SHRINKS):
            prompt = valid(served.template.prompt(fit(hole, chars))) or "\n"  # empty: no answer
            try:
                return self._streamed({**body, "prompt": prompt}, ends, call)
            except RequestError as error:
                if not _TOO_LONG.search(str(error)):
                    raise
                chars //= 2
        raise RequestError(
            f"{self._http.address.url} has no room for the request; ask for fewer tokens, or "
            "serve the model with a longer context"
        )

    def _streamed(self, body: Mapping[str, Any], ends: list[str], call: Call) -> Answer:
        answer = Answer(self._http.address, COMPLETIONS)
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with contextlib.closing(call.events(COMPLETIONS, asked)) as events:
                for event in events:
                    answer.take(event)
                    if any(end in answer.text for end in ends):
                        break  # the closed connection ends the rest
        except DeadlineReached:
            answer.reason = "deadline"
        except RequestCancelled:
            if not answer.text:
                raise
            answer.reason = "cancelled"
        return answer

    def _answered(
        self, material: str, asked: tuple[Question, ...], served: Served, call: Call
    ) -> list[Decision]:
        """One answer with a letter for every question; not streamed, since those tell most."""
        message = Message("user", questions.joint_prompt(material, asked))
        request = GenerateRequest((message,), max_new_tokens=_LETTER_TOKENS * len(asked))
        body = _chat(request, served) | {"logprobs": True, "top_logprobs": _ALTERNATIVES}
        answer = call.ask("POST", PATH, body)
        return questions.read_chat(self._http.address, answer, asked)


def _chat(request: GenerateRequest, served: Served) -> dict[str, Any]:
    return {
        "model": served.name,
        "messages": [
            {"role": m.role, "content": valid(served.template.defused(m.content))}
            for m in request.messages
        ],
        "max_tokens": request.max_new_tokens,
        **_sampling(request.temperature, request.top_p, request.seed),
    }


def _sampling(temperature: float, top_p: float, seed: int) -> dict[str, Any]:
    given: dict[str, Any] = {"temperature": temperature}
    return given | {"top_p": top_p, "seed": seed % 2**31} if temperature > 0 else given
