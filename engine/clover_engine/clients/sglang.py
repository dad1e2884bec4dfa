"""A model served by SGLang, as an engine: Clover, or any model that fills holes or converses.

    SGLangEngine("http://127.0.0.1:30000").infill(InfillRequest("def add(a, b):\\n    return "))

Prompts go out as text: no token id ever does, since one that the model does not have ends some
servers. What differs from the embedded engine:

- `mode`, `threshold` and `block_size` reach Clover's own algorithm only, since other servers decide
  that themselves; `drafts` would be token ids, and are not sent;
- `must_start_with` is written into the prompt: models trained to fill holes were trained on holes
  that begin inside a token;
- `confidence` comes from the server's log-probabilities; block diffusion in SGLang has none, see
  `sglang_stream.NOMINAL_CONFIDENCE`; `score` and `cloze` raise `Unsupported` there;
- `seed` has an effect only where the server runs with deterministic inference.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from clover_engine.api import (
    CancelToken,
    ClozeFill,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    FinishReason,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.clients import edits
from clover_engine.clients.call import Call, valid
from clover_engine.clients.fim import FimParts, fit
from clover_engine.clients.http import DeadlineReached, HttpLimits, HttpTransport
from clover_engine.clients.sglang_facts import Facts, count_tokens, read_facts
from clover_engine.clients.sglang_stream import PATH, Outputs, prompt_logprobs
from clover_engine.clients.sglang_talk import Talk, decoding_options
from clover_engine.errors import (
    EngineCrashed,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
)
from clover_engine.validation import check_decision, check_generate, check_request

MAX_PROMPT_CHARS = 24_000
"""More context than this makes a keystroke slow before it makes it better."""
HEALTH_S = 2.0
_CHARS_PER_TOKEN = (3.2, 2.4, 1.6, 1.0, 0.6)
"""Tried in turn until a prompt fits; text in most languages fits at the first."""
_MARKS = 16
"""Tokens kept free for a template's marks."""
_SCORED_AT_ONCE = 16
_MAX_GAPS = 96


class SGLangEngine:
    """`Engine` and `TextEngine` over HTTP. Calls may come from any thread."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str = "",
        ca_file: str = "",
        fim: str = "",
        max_prompt_chars: int = MAX_PROMPT_CHARS,
        limits: HttpLimits | None = None,
    ) -> None:
        """`model` and `fim` (a name of `fim.TEMPLATES`) override what the server's answers say.

        Connects to nothing yet. Raises RequestError for a URL or key that cannot be used.
        """
        self._http = HttpTransport(url, api_key=api_key or "", ca_file=ca_file, limits=limits)
        self._model, self._fim = model, fim
        self._max_chars = max_prompt_chars
        self._facts: Facts | None = None
        self._rung = 0  # of _CHARS_PER_TOKEN: where the last prompt fitted

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        check_request(request)
        call = Call(self._http, request.deadline_s, cancel)
        late = InfillResult.late(request.n)
        begin = request.must_start_with
        hole = FimParts(request.prefix + begin, request.suffix, request.snippets, request.original)
        try:
            with self._asked(call) as facts:
                new = min(request.max_tokens, max(1, facts.context // 2))
                prompts = [self._prompt(hole, new, facts, call)] * request.n
                sampling = self._sampling(request, new, facts)
                outputs, reason = self._stream(prompts, sampling, facts, call, request.stop)
        except DeadlineReached:
            return late
        texts = tuple(
            outputs.infill(i, begin, facts.template, request.stop, reason) for i in range(request.n)
        )
        return InfillResult(texts, outputs.stats(call.seconds), facts.name)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        check_request(request)
        call = Call(self._http, request.deadline_s, cancel)
        logprobs: list[float | None] = [None] * len(request.candidates)
        tokens = [0] * len(request.candidates)
        prefilled = 0
        with contextlib.suppress(DeadlineReached), self._asked(call) as facts:
            self._require_logprobs(facts)
            longest = max(map(len, request.candidates))
            hole = FimParts(request.prefix, request.suffix, (), request.original)
            prompt = self._prompt(hole, min(longest, facts.context // 2) + 1, facts, call)
            for at in range(0, len(request.candidates), _SCORED_AT_ONCE):
                group = request.candidates[at : at + _SCORED_AT_ONCE]
                for i, found in enumerate(self._scored(prompt, group, request, facts, call), at):
                    logprobs[i], tokens[i] = sum(found), len(found)
                prefilled += sum(tokens[at : at + len(group)])
        stats = DecodeStats(prefill_tokens=prefilled, seconds=call.seconds)
        return ScoreResult(tuple(logprobs), tuple(tokens), stats)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        """Deletions, and what the model fills into each gap; ranked by `score`."""
        check_request(request)
        call = Call(self._http, request.deadline_s, cancel)
        texts = edits.deletions(request.original, request.max_remove)
        stats = DecodeStats()
        with contextlib.suppress(DeadlineReached), self._asked(call) as facts:
            self._require_logprobs(facts)
            if facts.template.sees_suffix and request.max_insert:
                filled, stats = self._filled(request, facts, call)
                texts = list(dict.fromkeys([*filled, *texts]))
        texts = [text for text in texts if text != request.original]
        if not texts:
            return ClozeResult((), stats)
        ask = ScoreRequest(
            request.prefix, request.suffix, tuple(texts), request.original, call.left_s
        )
        scored = self.score(ask, cancel)
        pairs = zip(texts, scored.logprobs, strict=True)
        fills = [ClozeFill(text, value) for text, value in pairs if value is not None]
        fills.sort(key=lambda fill: fill.logprob, reverse=True)
        return ClozeResult(tuple(fills[: request.top]), stats + scored.stats)

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        check_generate(request)
        call = Call(self._http, request.deadline_s, cancel)
        try:
            with self._asked(call) as facts:
                return Talk(self._http, facts, call).generate(request, on_piece)
        except DeadlineReached:
            return GenerateResult("", "", "deadline", DecodeStats(seconds=call.seconds))

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Raises RequestCancelled when late: half a decision is none."""
        check_decision(request)
        call = Call(self._http, request.deadline_s, cancel)
        try:
            with self._asked(call) as facts:
                return Talk(self._http, facts, call).decide(request)
        except DeadlineReached:
            raise RequestCancelled(
                "ended before all questions were answered; allow more time"
            ) from None

    def health(self) -> Health:
        """Asks the server for its model's name, which costs it nothing; at most `HEALTH_S`."""
        try:
            facts = read_facts(self._http, Call(self._http, HEALTH_S, None).ask, "", "plain")
        except DeadlineReached:
            detail = f"no answer within {HEALTH_S:g} s; see what the server is doing"
            return Health(False, "sglang", f"{self._http.address.url}: {detail}")
        except EngineError as error:
            return Health(False, "sglang", str(error))
        return Health(True, "sglang", model=self._model or facts.name, checkpoint=facts.path)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> SGLangEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _asked(self, call: Call) -> Iterator[Facts]:
        """What is known of the server; forgotten where it fails: another may come back."""
        call.check()
        try:
            if self._facts is None:
                self._facts = read_facts(self._http, call.ask, self._model, self._fim)
            yield self._facts
        except (EngineUnavailable, EngineCrashed):
            self._facts = None
            raise

    def _require_logprobs(self, facts: Facts) -> None:
        if facts.is_diffusion:
            raise Unsupported(
                f"{facts.name} is served with block diffusion, for which SGLang gives no "
                "log-probabilities; score with the embedded engine, or serve it without "
                "--dllm-algorithm"
            )

    def _prompt(self, hole: FimParts, new: int, facts: Facts, call: Call) -> str:
        """The prompt, cut so that it and `new` tokens fit into the server's context.

        Counts with the server's tokenizer only what could be too long: a token is at least a byte.
        """
        room = facts.context - new - _MARKS
        for rung in range(self._rung, len(_CHARS_PER_TOKEN)):
            chars = min(self._max_chars, int(room * _CHARS_PER_TOKEN[rung]))
            prompt = valid(facts.template.prompt(fit(hole, chars))) or "\n"  # empty: no answer
            size = len(prompt.encode())
            if size >= room:
                counted = count_tokens(call.ask, {"prompt": prompt})
                size = int(size / 2) if counted is None else counted
            if size < room:
                self._rung = rung
                return prompt
        raise RequestError(
            f"the text does not fit into {facts.context} tokens beside {new} new ones; "
            "ask for fewer, or serve the model with a longer context"
        )

    def _sampling(self, request: InfillRequest, new: int, facts: Facts) -> list[dict[str, Any]]:
        shared: dict[str, Any] = {
            "max_new_tokens": new,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": [*map(valid, request.stop), *facts.template.ends][:32],
        }
        if facts.takes_options:
            shared["custom_params"] = decoding_options(request)
        if request.temperature == 0:
            return [shared] * request.n
        return [shared | {"sampling_seed": request.seed + i} for i in range(request.n)]

    def _stream(
        self,
        prompts: Sequence[str],
        sampling: list[dict[str, Any]],
        facts: Facts,
        call: Call,
        stops: tuple[str, ...] = (),
    ) -> tuple[Outputs, FinishReason | None]:
        """All texts, and why the client stopped listening before they ended, if it did."""
        count = len(prompts)
        rids = [uuid.uuid4().hex for _ in prompts]
        body = {
            "text": list(prompts) if count > 1 else prompts[0],
            "sampling_params": sampling if count > 1 else sampling[0],
            "rid": rids if count > 1 else rids[0],
            "stream": True,
            "return_logprob": not facts.is_diffusion,
            "return_text_in_logprobs": not facts.is_diffusion,
        }
        outputs = Outputs(self._http.address, count, facts.is_incremental)
        reason: FinishReason | None = None
        is_over = False
        try:
            with contextlib.closing(call.events(PATH, body)) as events:
                for event in events:
                    outputs.take(event)
                    is_over = all(outputs.is_over(i, stops) for i in range(count))
                    if is_over:
                        break
        except DeadlineReached:
            reason = "deadline"
        except RequestCancelled:
            if outputs.is_empty:
                raise
            reason = "cancelled"
        finally:
            if not is_over or not all(output.finish for output in outputs.texts):
                for rid in rids:
                    self._http.tell("/abort_request", {"rid": rid})
        return outputs, reason

    def _scored(
        self,
        prompt: str,
        candidates: Sequence[str],
        request: ScoreRequest,
        facts: Facts,
        call: Call,
    ) -> list[list[float]]:
        """The log-probabilities of each candidate's tokens and of the end of the hole.

        Where the template marks the hole, its end is a mark, too. Else the end is what follows,
        and the token before the candidate counts as well, since both may be one.
        """
        template = facts.template
        begin = count_tokens(call.ask, {"prompt": prompt})
        if begin is None:
            raise Unsupported(
                f"{self._http.address.url} cannot count tokens (/tokenize), so it cannot score; "
                "score with the embedded engine"
            )
        first = begin if template.middle else max(1, begin - 1)
        end = template.ends[0] if template.middle else template.defused(request.suffix[:64])
        body = {
            "text": [valid(prompt + template.defused(c) + end) for c in candidates],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": max(0, first - 1),  # of its first token, SGLang gives none
        }
        answer = call.ask("POST", PATH, body)
        return prompt_logprobs(self._http.address, answer, len(candidates), first)

    def _filled(
        self, request: ClozeRequest, facts: Facts, call: Call
    ) -> tuple[list[str], DecodeStats]:
        """`original` with each gap filled by the model, where it found an end in time."""
        found = edits.gaps(request.original, request.max_remove, _MAX_GAPS)
        new = request.max_insert + 1  # the end of the hole is a token, too
        prompts = [
            self._prompt(
                FimParts(request.prefix + gap.left, gap.right + request.suffix), new, facts, call
            )
            for gap in found
        ]
        sampling = {"max_new_tokens": new, "temperature": 0, "stop": [*facts.template.ends]}
        outputs, reason = self._stream(prompts, [sampling] * len(prompts), facts, call)
        texts = []
        for i, gap in enumerate(found):
            filled = outputs.infill(i, "", facts.template, (), reason)
            if filled.finish_reason == "eom" and "\n" not in filled.text:
                texts.append(gap.left + filled.text + gap.right)
        return texts, outputs.stats(call.seconds)
