"""The served algorithm without a server: requests as SGLang makes them, rounds over any model.

`options`, `request` and `turns` are what the server runs; only SGLang's scheduler and its passes
are replaced, by `Batch` and by a runner (`Network`: this project's own model; `Tables`: a
`Markov`). What would kill the server's scheduler is an exception here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from tests.engine.decode.chances import Markov
from torch import Tensor

from clover_engine.model import Cache, Clover
from clover_engine.serving import options
from clover_engine.serving.options import DecodingOptions
from clover_engine.serving.passes import Part
from clover_engine.serving.request import begin
from clover_engine.serving.turns import Turn, advance

TOP_K_ALL = 1 << 30
SAMPLING: dict[str, Any] = {
    "max_new_tokens": 128, "stop_token_ids": None, "temperature": 1.0, "top_p": 1.0,
    "top_k": TOP_K_ALL, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "repetition_penalty": 1.0, "min_new_tokens": 0, "n": 1, "beam_width": None,
    "json_schema": None, "regex": None, "ebnf": None, "structural_tag": None, "ignore_eos": False,
    "logit_bias": None, "sampling_seed": None, "custom_params": None, "watermark": None,
}  # fmt: skip
"""What SGLang's `SamplingParams` has where a request says nothing."""


@dataclass(slots=True)
class FakeRequest:
    """The parts of SGLang's `Req` that the algorithm reads."""

    origin_input_ids: Sequence[Any]
    vocab_size: int
    sampling_params: Any
    rid: str = "request"
    return_logprob: bool = False
    eos_token_ids: set[int] | None = None
    tokenizer: Any = None
    output_ids: list[int] = field(default_factory=list)
    dllm_algo_state: Any = None

    @property
    def finished(self) -> bool:
        given = self.sampling_params
        stops = {*(given.stop_token_ids or ()), *(self.eos_token_ids or ())}
        ended = not given.ignore_eos and bool(stops & {*self.output_ids})
        return ended or len(self.output_ids) >= max(1, given.max_new_tokens)

    @property
    def answer(self) -> list[int]:
        """Cut as SGLang cuts: at the length, and behind the first stop token."""
        given = self.sampling_params
        out = self.output_ids[: given.max_new_tokens]
        stops = {*(given.stop_token_ids or ()), *(self.eos_token_ids or ())}
        if given.ignore_eos:
            return out
        return out[: next((i + 1 for i, token in enumerate(out) if token in stops), None)]


def request(ids: Sequence[Any], vocab: int, eos: int | None = None, **given: Any) -> FakeRequest:
    sampling = SimpleNamespace(**{**SAMPLING, **given})
    if 0 <= sampling.temperature < 1e-6:  # as SGLang's own
        sampling.temperature, sampling.top_k = 1.0, 1
    return FakeRequest(ids, vocab, sampling, eos_token_ids=None if eos is None else {eos})


class Runner(Protocol):
    mask_id: int

    def prefill(self, index: int, ids: Sequence[int]) -> Tensor: ...
    def run(self, parts: Sequence[Part], kind: str) -> list[Tensor]: ...
    def commit(self, counts: Sequence[int]) -> None: ...


class Network:
    """Passes of a model of ours, a cache for each request."""

    def __init__(self, model: Clover) -> None:
        self.model, self.mask_id = model, model.mask_id
        self.caches: dict[int, Cache] = {}
        self.clean: list[int] = []

    def prefill(self, index: int, ids: Sequence[int]) -> Tensor:
        self.caches[index] = Cache(self.model.config)
        hidden, _ = self.model(torch.tensor([list(ids)]), cache=self.caches[index])
        return self._logits(hidden[0, -1:])[0]

    def run(self, parts: Sequence[Part], kind: str) -> list[Tensor]:
        found = []
        for part in parts:
            rows, cache = torch.tensor([part.ids]), self.caches[part.index]
            if kind == "clean":
                assert min(part.ids) >= 0, f"a mask among clean rows: {part.ids}"
                found.append(self._logits(self.model(rows, cache=cache)[0][0]))
            else:
                found.append(self._logits(self.model(None, rows[None], cache)[1][0, 0]))
        if kind == "clean":
            self.clean = [part.index for part in parts]
        return found

    def commit(self, counts: Sequence[int]) -> None:
        for index, count in zip(self.clean, counts, strict=True):
            self.caches[index].keep(count)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = self.model.head(hidden)
        if self.model.config.mask_token_id is not None:
            logits[..., self.model.config.mask_token_id] = -torch.inf
        return logits


class Tables:
    """Passes of a `Markov`."""

    def __init__(self, model: Markov) -> None:
        self.model, self.mask_id = model, -1

    def prefill(self, index: int, ids: Sequence[int]) -> Tensor:
        return self.model.after[ids[-1]]

    def run(self, parts: Sequence[Part], kind: str) -> list[Tensor]:
        if kind == "clean":
            return [self.model.after[list(part.ids)] for part in parts]
        return [self.model.ahead[: len(part.ids)] for part in parts]

    def commit(self, counts: Sequence[int]) -> None:
        assert min(counts) >= 1


class Batch:
    """Requests served together, in SGLang's order: contexts first, then rounds for all."""

    def __init__(self, runner: Runner, defaults: DecodingOptions) -> None:
        self.runner, self.defaults = runner, defaults
        self.asked: dict[int, FakeRequest] = {}

    def add(self, request: FakeRequest) -> str | None:
        """Why it is refused; None for one that is served from now on."""
        if (why := options.problem(request)) is not None:
            return why
        index = len(self.asked)
        logits = self.runner.prefill(index, request.origin_input_ids)
        request.dllm_algo_state = begin(request, self.defaults, self.runner.mask_id, logits)
        self.asked[index] = request
        return None

    def round(self) -> None:
        running = {i: r for i, r in self.asked.items() if not r.finished}
        turns = [Turn(i, r, r.dllm_algo_state, []) for i, r in running.items()]
        places = {i: place for place, i in enumerate(running)}
        for turn in turns:
            turn.index = places[turn.index]
        numbers = list(running)

        def run(parts: Sequence[Part], kind: Any) -> list[Tensor]:
            return self.runner.run([Part(numbers[p.index], p.ids) for p in parts], kind)

        new = advance(turns, self.runner.mask_id, run, self.runner.commit)
        for turn, tokens in zip(turns, new, strict=True):
            turn.request.output_ids += tokens

    def finish(self, most_rounds: int = 2000) -> None:
        for _ in range(most_rounds):
            if all(request.finished for request in self.asked.values()):
                return
            self.round()
        raise AssertionError("the requests do not end")
