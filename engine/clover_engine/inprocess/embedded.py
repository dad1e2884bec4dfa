"""The embedded engine: a checkpoint loaded in this process (the worker's; needs torch)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from clover_engine.api import (
    CancelToken,
    ClozeFill,
    ClozeRequest,
    ClozeResult,
    DecodeStats,
    Infill,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.checkpoint.catalog import name_of
from clover_engine.checkpoint.known import DEFAULT_CHECKPOINT, candidate_at, prepare
from clover_engine.checkpoint.weights import load_model
from clover_engine.cpu.accelerate import accelerate
from clover_engine.cpu.packed import load_packed
from clover_engine.decode import cloze, cloze_forward, modes, scoring
from clover_engine.decode.common import Generated, Limits, Sampling, Start, Tally, seeded
from clover_engine.decode.healing import Healed, Pieces, heal
from clover_engine.decode.lookup import Lookup
from clover_engine.inprocess.opened import is_gguf, open_model
from clover_engine.inprocess.prefill import PrefixCache
from clover_engine.model import Clover
from clover_engine.text.plain_prompt import PlainPrompt, prompt_for
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.validation import check_request

RESERVE = 32
"""Rows that scoring and cloze keep free after the context."""


@dataclass(slots=True)
class _Running:
    """One request's clock and counters."""

    limits: Limits
    tally: Tally
    began: float
    prefill: int = 0
    cached: int = 0

    def stats(self) -> DecodeStats:
        return self.tally.stats(self.prefill, self.cached, time.monotonic() - self.began)


class EmbeddedEngine:
    """infill, score and cloze on one model; not thread-safe (the worker runs one at a time)."""

    def __init__(self, model: Clover, tokenizer: Tokenizer, checkpoint: str = "") -> None:
        self.model, self.tok, self.checkpoint = model, tokenizer, checkpoint
        self.prompt = prompt_for(tokenizer, model.config.max_position_embeddings)
        self.plain = isinstance(self.prompt, PlainPrompt)
        self.prefix = PrefixCache(model)
        # A pad ends a block, but no text.
        self._last = self.prompt.ends - ({self.prompt.pad} - {self.prompt.eom})
        banned = sorted(i for i in tokenizer.added.values() if i not in self._last)
        self.ban_clean = torch.tensor(banned)
        self.ban_block = torch.tensor([i for i in banned if i != self.prompt.pad])

    @cached_property
    def pieces(self) -> Pieces:
        """Made when first wanted: sorting a large vocabulary takes half a second."""
        return Pieces(self.tok, {*self.tok.added.values(), *self._last})

    @classmethod
    def load(cls, checkpoint: Path, threads: int = 0, wait: bool = True) -> EmbeddedEngine:
        """Loads a checkpoint directory in float32; a candidate's, which is converted first if need
        be (`candidates.prepare`), in bfloat16 and 4 bits (`model/packed.py`). Unless it may `wait`
        for the fast path (`model/accelerate.py`), that comes on later. Raises CheckpointError."""
        if threads:
            torch.set_num_threads(threads)
        if is_gguf(checkpoint):
            opened = open_model(checkpoint, threads or 1)
            return cls(opened.model, opened.tokenizer, str(checkpoint))
        prepare(checkpoint)
        tokenizer = Tokenizer.load(checkpoint / "tokenizer.json")
        if candidate_at(checkpoint) is not None:
            return cls(load_packed(checkpoint), tokenizer, str(checkpoint))
        model = load_model(checkpoint)
        preparing = accelerate(model, threads or 1)
        if wait and preparing is not None:
            preparing.join()
        return cls(model, tokenizer, str(checkpoint))

    def info(self) -> dict[str, Any]:
        """The model's name (its folder's, for any but the shipped one) and size."""
        folder = Path(self.checkpoint)
        name = "clover-nano" if folder == DEFAULT_CHECKPOINT else folder.name
        if candidate := candidate_at(folder):
            name = candidate.name
        elif is_gguf(folder):
            name = name_of(folder)
        return {"model": name, "parameters": self.model.parameter_count()}

    @torch.inference_mode()
    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        """Fills a hole with free text; see `InfillRequest`."""
        call = self._call(request, cancel, request.max_tokens)
        prefix, blanks = self.prompt.split(request.prefix)
        stops = request.stop
        forced = (blanks + request.must_start_with).encode("utf-8", "replace")
        if stops:
            call.limits.stopped = lambda ids: any(s in self.tok.decode(ids) for s in stops)
        reserve = request.max_tokens + len(forced) + 1
        suffix = self.prompt.seen(request.suffix, "\n" in stops)
        tokens = self.prompt.context(prefix, suffix, request.original, request.snippets, reserve)
        clean = Sampling(request.temperature, request.top_p, self.ban_clean)
        choices = []
        for i in range(request.n):
            generator = seeded(request.seed + i)
            healed, start = heal(
                self.model, self._start(tokens, call), forced, self.pieces, call.limits, clean,
                call.tally, generator=generator,
            )  # fmt: skip
            out = self._decode(request, start, call, clean, generator, tokens, healed)
            choices.append(self._text(healed, out, request, len(blanks)))
        return InfillResult(tuple(choices), call.stats())

    def _decode(
        self,
        request: InfillRequest,
        start: Start,
        call: _Running,
        clean: Sampling,
        generator: torch.Generator,
        context: list[int],
        healed: Healed,
    ) -> Generated:
        return modes.decode(
            self.model, start, call.limits, call.tally, generator, mode=request.mode, clean=clean,
            block=Sampling(request.temperature, request.top_p, self.ban_block),
            lookup=lambda: self._lookup(
                request, [*context, *healed.tokens], self.tok.decode(healed.tokens)
            ),
            block_size=request.block_size, threshold=request.threshold, trained=not self.plain,
        )  # fmt: skip

    def _lookup(self, request: InfillRequest, context: list[int], begun: str) -> Lookup:
        """Where drafts come from, once the text has `begun` like this."""
        blanks = self.prompt.split(request.prefix)[1]
        whole = [blanks + draft for draft in request.drafts]
        rests = [d[len(begun) :] for d in whole if d.startswith(begun)]
        drafts = [[*self.tok.encode(rest), self.prompt.eom] for rest in rests]
        original = self.tok.encode(request.original or "")
        return Lookup([*original, self.prompt.eom] if original else [], context, drafts)

    def _text(self, healed: Healed, out: Generated, request: InfillRequest, blanks: int) -> Infill:
        out.probs = [*healed.probs, *out.probs]
        text = self.tok.decode([*healed.tokens, *out.tokens])[blanks:]
        begin = len(request.must_start_with)
        cuts = [text.index(s, begin) for s in request.stop if s in text[begin:]]
        return Infill(text[: min(cuts)] if cuts else text, out.confidence, out.reason)

    @torch.inference_mode()
    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        """Joint log-probability of every candidate and the end of the hole."""
        call = self._call(request, cancel)
        prefix, blanks = self.prompt.split(request.prefix)
        ending = self.prompt.ending(request.suffix)
        ids = [[*self.tok.encode(blanks + c), *ending] for c in request.candidates]
        reserve = min(max(RESERVE, max(map(len, ids))), self.prompt.length // 2)
        tokens = self.prompt.context(prefix, request.suffix, request.original, (), reserve)
        logprobs = scoring.score(
            self.model, self._start(tokens, call), ids, call.limits, call.tally
        )
        return ScoreResult(tuple(logprobs), tuple(len(i) for i in ids), call.stats())

    @torch.inference_mode()
    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        """The best small edits of `original`, ranked by the joint probability of the new line;
        none of a model that cannot read what stands after the hole."""
        call = self._call(request, cancel)
        if self.plain:
            return ClozeResult((), call.stats())
        prefix, blanks = self.prompt.split(request.prefix)
        tokens = self.prompt.context(prefix, request.suffix, request.original, (), RESERVE)
        start = self._start(tokens, call)
        lines = self._edits(request, start, self.tok.encode(blanks + request.original), call)
        whole = dict.fromkeys(self.tok.decode(line) for line in lines)
        texts = [t[len(blanks) :] for t in whole if t.startswith(blanks) and "\ufffd" not in t]
        lines_now = request.original.count("\n")
        texts = [t for t in texts if t != request.original and t.count("\n") <= lines_now]
        if not texts:
            return ClozeResult((), call.stats())
        ids = [[*self.tok.encode(blanks + t), self.prompt.eom] for t in texts]
        scores = scoring.score(self.model, start, ids, call.limits, call.tally)
        found = [ClozeFill(t, s) for t, s in zip(texts, scores, strict=True) if s is not None]
        found.sort(key=lambda f: f.logprob, reverse=True)
        return ClozeResult(tuple(found[: request.top]), call.stats())

    def _edits(
        self, request: ClozeRequest, start: Start, line: list[int], call: _Running
    ) -> Iterable[Sequence[int]]:
        """Lines that differ a little from `line`, most promising first."""
        sampling = Sampling(banned=torch.cat([self.ban_block, self._ends()]))
        if not self.model.has_mask:
            # Each is scored as a whole, which costs such a model most.
            bounds = cloze_forward.Bounds(request.max_remove, request.max_insert, 2 * request.top)
            return cloze_forward.fill(
                self.model, start, line, bounds, call.limits, sampling, call.tally
            )
        ends = (self.prompt.eom, self.prompt.pad)
        wanted = cloze.Edits(ends, request.max_remove, request.max_insert, 3 * request.top)
        fills = cloze.fill(self.model, start, line, wanted, call.limits, sampling, call.tally)
        return [f.tokens for f in fills]

    def _ends(self) -> torch.Tensor:
        return torch.tensor(sorted(self.prompt.ends))

    def _call(
        self,
        request: InfillRequest | ScoreRequest | ClozeRequest,
        cancel: CancelToken | None,
        tokens: int = 0,
    ) -> _Running:
        check_request(request)
        now = time.monotonic()
        deadline = None if request.deadline_s is None else now + request.deadline_s
        return _Running(Limits(tokens, self.prompt.ends, deadline, cancel), Tally(), now)

    def _start(self, tokens: list[int], call: _Running) -> Start:
        start, cached = self.prefix.start(tokens, call.limits, call.tally)
        call.prefill += len(tokens) - cached
        call.cached += cached
        return start
