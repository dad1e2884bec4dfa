"""The in-process engine: a checkpoint in this process that converses, decides and fills holes.

`clover_engine.load` makes it. Unlike the worker (`local.py`) it lives and dies with the caller, and
imports torch at once. One call at a time: calls from several threads take turns.
"""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    FinishReason,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.checkpoint.weights import load_model
from clover_engine.cpu.accelerate import accelerate
from clover_engine.decode import decisions, modes
from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally, seeded
from clover_engine.decode.lookup import Lookup
from clover_engine.errors import CheckpointError, EngineUnavailable, RequestCancelled, RequestError
from clover_engine.generation import (
    LETTERS,
    Decision,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    Message,
    OnPiece,
    Question,
    numbered,
)
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.inprocess.opened import Opened, is_gguf, open_model
from clover_engine.inprocess.prefill import PrefixCache
from clover_engine.model import Clover
from clover_engine.text.chat import ChatTemplate, Conversation, stop_tokens
from clover_engine.text.streaming import Stream
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.validation import check_decision, check_generate

Result = TypeVar("Result")


class InProcessEngine:
    """`Engine` and `TextEngine` over one loaded checkpoint."""

    def __init__(
        self, model: Clover, tokenizer: Tokenizer, folder: Path, opened: Opened | None = None
    ) -> None:
        """`folder` has the chat template, unless `opened` has it: that of a GGUF file, `folder`."""
        self.model, self.tok, self.folder = model, tokenizer, folder
        if opened is None:
            self.template = ChatTemplate.load(folder, tokenizer)
            self.stops = stop_tokens(folder, tokenizer)
        else:
            self.template, self.stops = opened.template, opened.stops
        self.prefix = PrefixCache(model)
        mask = model.config.mask_token_id
        self._banned = None if mask is None else torch.tensor([mask])
        self._turn = threading.Lock()
        self._closed = False

    @classmethod
    def load(
        cls,
        folder: Path,
        threads: int = 0,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        expert_budget_bytes: int | None = None,
    ) -> InProcessEngine:
        """See `clover_engine.load`. Raises CheckpointError."""
        if threads:
            torch.set_num_threads(threads)
        if is_gguf(folder):
            opened = open_model(folder, threads or 1)
            return cls(opened.model, opened.tokenizer, folder, opened)
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        model = load_model(
            folder, _dtype(dtype), device=_device(device), expert_budget_bytes=expert_budget_bytes
        )
        accelerate(model, threads or 1)
        return cls(model, tokenizer, folder)

    def info(self) -> dict[str, Any]:
        """The model's name and size."""
        return self._holes.info()

    @torch.inference_mode()
    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """See `GenerateRequest`; pieces come as tokens are committed.

        Raises RequestError for a conversation that leaves no room for an answer.
        """
        check_generate(request)
        conversation = self._conversation(request.messages, request.thinking)
        context = self.model.config.max_position_embeddings
        room = context - len(conversation.tokens) - 1
        if room < 1:
            raise RequestError(
                f"the conversation has {len(conversation.tokens)} tokens, the model reads "
                f"{context} with its answer; shorten it"
            )
        began, tally = time.monotonic(), Tally()
        limits = self._limits(min(request.max_new_tokens, room), request.deadline_s, cancel)
        limits.stop_ids = self.stops
        text = _Text(self.tok, conversation, request.stop, on_piece)
        limits.on_token, limits.stopped = text.add, text.stopped

        def work() -> GenerateResult:
            start, cached = self._start(conversation.tokens, limits, tally)
            out = self._decode(request, start, limits, tally, conversation.tokens)
            text.end()
            stats = tally.stats(len(conversation.tokens) - cached, cached, time.monotonic() - began)
            reason: FinishReason = "stop" if text.stream.has_stopped else out.reason
            return GenerateResult(text.stream.answer, text.stream.thinking, reason, stats)

        return self._in_turn(work, cancel, GenerateResult("", "", "deadline"))

    @torch.inference_mode()
    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """See `DecisionRequest`. Raises RequestCancelled when cancelled or late."""
        check_decision(request)
        began, tally = time.monotonic(), Tally()
        limits = self._limits(0, request.deadline_s, cancel)
        groups = [request.questions] if request.joint else [(q,) for q in request.questions]
        prefill = reused = 0
        found: list[Decision] = []

        def work() -> DecisionResult:
            nonlocal prefill, reused
            for questions in groups:
                tokens = self._decision_prompt(request.material, questions)
                start, cached = self._start(tokens, limits, tally)
                prefill, reused = prefill + len(tokens) - cached, reused + cached
                options = [self._letters[: len(q.options)] for q in questions]
                for row in self._answers(start, options, limits, tally):
                    found.append(Decision(int(row.argmax()), tuple(row.tolist())))
            stats = tally.stats(prefill, reused, time.monotonic() - began)
            return DecisionResult(tuple(found), stats)

        result = self._in_turn(work, cancel, None)
        if result is None:
            raise RequestCancelled("ended before all questions were answered; allow more time")
        return result

    def _answers(
        self, start: Start, options: list[list[int]], limits: Limits, tally: Tally
    ) -> list[Tensor]:
        if self.model.has_mask:
            return decisions.decide(self.model, start, options, limits, tally)
        marks = [f"{number}." for number in range(1, len(options) + 1)]
        before = [self.tok.encode(mark if i == 0 else "\n" + mark) for i, mark in enumerate(marks)]
        return decisions.decide_forward(self.model, start, options, before, limits, tally)

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        late = InfillResult.late(request.n)
        result = self._in_turn(lambda: self._holes.infill(request, cancel), cancel, late)
        return replace(result, model=self._holes.info()["model"])

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        late = ScoreResult.late(len(request.candidates))
        return self._in_turn(lambda: self._holes.score(request, cancel), cancel, late)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._in_turn(lambda: self._holes.cloze(request, cancel), cancel, ClozeResult(()))

    def _in_turn(
        self, call: Callable[[], Result], cancel: CancelToken | None, late: Result
    ) -> Result:
        """One call at a time; `late` where its deadline came before anything was generated."""
        with self._turn:
            if self._closed:
                raise EngineUnavailable("this engine is closed; load the checkpoint again")
            try:
                if cancel is not None and cancel.cancelled:
                    raise RequestCancelled("the request was cancelled before it began")
                return call()
            except RequestCancelled:
                if cancel is not None and cancel.cancelled:
                    raise
                return late

    def health(self) -> Health:
        return Health(
            not self._closed,
            "in-process",
            "closed; load the checkpoint again" if self._closed else "",
            self.folder.name,
            str(self.folder),
            self.model.parameter_count(),
            pid=os.getpid(),
        )

    def close(self) -> None:
        """Forgets the cached contexts; the weights go with the last reference to the engine."""
        self._closed = True
        self.prefix = PrefixCache(self.model)

    @cached_property
    def _holes(self) -> EmbeddedEngine:
        return EmbeddedEngine(self.model, self.tok, str(self.folder))

    def _conversation(self, messages: tuple[Message, ...], thinking: bool) -> Conversation:
        if self.template is None:
            raise RequestError(
                f"{self.folder.name} has no chat template, so it cannot converse; load a "
                "checkpoint with chat_template.jinja, or use infill"
            )
        return self.template.encode(messages, thinking)

    def _limits(
        self, max_tokens: int, deadline_s: float | None, cancel: CancelToken | None
    ) -> Limits:
        deadline = None if deadline_s is None else time.monotonic() + deadline_s
        return Limits(max_tokens, frozenset(), deadline, cancel)

    def _start(self, tokens: list[int], limits: Limits, tally: Tally) -> tuple[Start, int]:
        if limits.interrupted() is not None:
            raise RequestCancelled("ended before the context was read")
        return self.prefix.start(tokens, limits, tally)

    def _decode(
        self,
        request: GenerateRequest,
        start: Start,
        limits: Limits,
        tally: Tally,
        context: list[int],
    ) -> Generated:
        sampling = Sampling(request.temperature, request.top_p, self._banned)
        generator = seeded(request.seed)
        return modes.decode(
            self.model, start, limits, tally, generator, mode=request.mode, clean=sampling,
            block=sampling, lookup=lambda: Lookup([], context, []),
            block_size=request.block_size, threshold=request.threshold,
        )  # fmt: skip

    @cached_property
    def _letters(self) -> list[int]:
        """One token for each letter that names an option."""
        for form in (" {}", "{}"):
            ids = [self.tok.encode(form.format(letter)) for letter in LETTERS]
            if all(len(i) == 1 for i in ids):
                return [i[0] for i in ids]
        raise RequestError("this model's tokenizer splits single letters; it cannot decide")

    def _decision_prompt(self, material: str, questions: tuple[Question, ...]) -> list[int]:
        text = decision_text(material, questions)
        if self.template is None:
            tokens = self.tok.encode(text + "\nAnswers:")
        else:
            tokens = self.template.encode((Message("user", text),), thinking=False).tokens
        context = self.model.config.max_position_embeddings
        if len(tokens) + len(questions) > context:
            raise RequestError(
                f"material and questions have {len(tokens)} tokens, the model reads {context}; "
                "shorten the material"
            )
        return tokens


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise CheckpointError(f"dtype: float32, bfloat16 or float16, not {name!r}")
    return found


def _device(name: str) -> str:
    """Raises CheckpointError for a device that this torch cannot use."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:  # as the back end likes
        reason = str(error).split("\n")[0][:120]
        raise CheckpointError(f"device {name!r} cannot be used: {reason}; use 'cpu'") from error
    return name


def decision_text(material: str, questions: tuple[Question, ...]) -> str:
    """What a model reads to decide: the material, then numbered questions with lettered options."""
    parts = numbered(material, questions)
    parts.append("Answer every question with the letter of the right option, in order.")
    return "\n".join(parts)


class _Text:
    """Tokens becoming a stream of text: whole characters only."""

    def __init__(
        self,
        tok: Tokenizer,
        conversation: Conversation,
        stops: tuple[str, ...],
        on_piece: OnPiece | None,
    ) -> None:
        self._tok = tok
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self.stream = Stream(conversation.opening, stops, on_piece)

    def add(self, token: int) -> None:
        self.stream.feed(self._bytes.decode(self._tok.piece(token)))

    def stopped(self, tokens: list[int]) -> bool:
        return self.stream.has_stopped

    def end(self) -> None:
        self.stream.feed(self._bytes.decode(b"", final=True), last=True)
