"""Clover's decoding as an SGLang dLLM algorithm: `--dllm-algorithm Clover`.

SGLang reads contexts with causal passes of its own (`requires_separate_context_encoding`, as
DiffusionGemma does) and then schedules *rounds*: it lends each running request the slots of one
block and calls `run`. A round is at most two passes over the requests that need them:

1. block rows: one denoising step (mode `threshold`), or a draft (mode `speculative`) from
   [the next token, masks] unless a look-up draft was found;
2. clean rows: the finished block, or [the next token, draft], token-causal. Greedy decoding keeps
   the longest prefix that equals the clean rows' argmax, so its output is plain decoding's, token
   for token; with a temperature, rejection sampling keeps the distribution.

Only rows kept by the second pass are committed: their keys stay in the lent slots (`hooks` gives
the rest back), and `model.commit` advances the GDN states by them. A request that has nothing new
emits nothing and comes again in the next round, so a new context, an abort or another request
waits for one denoising step at most, which is why SGLang's own "first done, first out" loop (whole
blocks or nothing) stays off (`hooks.dllm_config`), whatever `--dllm-fdfo` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view
from sglang.srt.dllm.algorithm.base import DllmAlgorithm
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, with_phase
from torch import Tensor

from clover_engine.decode.diffusion import Block
from clover_engine.decode.speculative import accept
from clover_engine.serving import options, passes
from clover_engine.serving.hf_config import ARCHITECTURE
from clover_engine.serving.passes import Part
from clover_engine.serving.request import Generation, begin


@dataclass(slots=True)
class _Turn:
    """One request in one round."""

    index: int
    request: Any
    state: Generation
    tokens: list[int]
    """Clean rows of this round, empty if there are none yet."""
    drafted: Tensor | None = None
    """The distributions [draft, vocab] that a denoised draft was drawn from."""

    @property
    def generated(self) -> int:
        return len(self.request.output_ids)


class Clover(DllmAlgorithm):  # type: ignore[misc]
    """See the module; the options are in `clover_engine.serving.options`."""

    supported_architectures = (ARCHITECTURE,)
    requires_separate_context_encoding = True
    required_attention_backend = "triton"
    supported_attention_backends = ("triton", "torch_native")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.options: options.Options = config.clover_options
        self.requests: Sequence[Any] = ()
        """The scheduled batch's requests; `hooks` sets them before every `run`."""

    @classmethod
    def configure_server_args(cls, server_args: Any) -> None:
        """Rows differ from round to round, so no CUDA graphs; GDN states only at contexts' ends."""
        given = resolving_view(server_args)
        if given.enable_dp_attention:
            raise ValueError(
                f"--dllm-algorithm {cls.__name__} does not work with --enable-dp-attention; "
                "use --dp-size without it"
            )
        graphs = given.cuda_graph_config
        for phase in (Phase.DECODE, Phase.PREFILL):
            graphs = with_phase(graphs, phase, backend=Backend.DISABLED)
        declare_resolution(
            server_args,
            cls.__name__,
            chunked_prefill_size=-1,
            cuda_graph_config=graphs,
            mamba_radix_cache_strategy="no_buffer",
        )

    @classmethod
    def validate_request(cls, req: Any) -> str | None:
        return options.problem(req)

    def run(self, model_runner: Any, forward_batch: Any, algo_states: Any = None) -> Any:
        """One scheduled batch: contexts to read, or a round."""
        model = model_runner.model
        if not forward_batch.forward_mode.is_dllm_extend():
            out = model_runner.forward(forward_batch, pp_proxy_tensors=None)
            for request, row in zip(
                self.requests, out.logits_output.next_token_logits, strict=True
            ):
                request.dllm_algo_state = begin(request, self.options, model.mask_id, row.cpu())
            return out.logits_output, [], None, None, out.can_run_graph
        turns = [
            _Turn(i, request, request.dllm_algo_state, [])
            for i, request in enumerate(self.requests)
        ]
        self._denoise(model_runner, forward_batch, turns)
        new = self._commit(model_runner, forward_batch, turns)
        # An empty list: nothing is new, so SGLang need not write to any stream.
        emitted = [torch.tensor(tokens, dtype=torch.long) for tokens in new] if any(new) else []
        return None, emitted, None, None, False

    def _denoise(self, model_runner: Any, batch: Any, turns: Sequence[_Turn]) -> None:
        """The pass of block rows; sets `tokens` of every turn that has clean rows after it."""
        mask = model_runner.model.mask_id
        parts = []
        for turn in turns:
            ids = _block_ids(turn, mask)
            if ids:
                parts.append(Part(turn.index, tuple(ids)))
        if not parts:
            return
        for part, logits in zip(
            parts, passes.run(model_runner, batch, parts, "block"), strict=True
        ):
            turn = turns[part.index]
            if turn.state.block is not None:
                _step(turn, turn.state.block, logits.cpu())
            else:
                _draft(turn, logits[1:].cpu())

    def _commit(self, model_runner: Any, batch: Any, turns: Sequence[_Turn]) -> list[list[int]]:
        """The pass of clean rows; what each request emits."""
        ready = [turn for turn in turns if turn.tokens]
        new: list[list[int]] = [[] for _ in turns]
        for turn in turns:
            turn.state.committed = 0
        if not ready:
            return new
        parts = [Part(turn.index, tuple(turn.tokens)) for turn in ready]
        logits = passes.run(model_runner, batch, parts, "clean")
        for turn, rows in zip(ready, logits, strict=True):
            kept = len(turn.tokens) if turn.state.known is None else _verify(turn, rows.cpu())
            turn.state.committed = kept
            new[turn.index] = turn.tokens[:kept]
        model_runner.model.commit([turn.state.committed for turn in ready])
        return new


def _block_ids(turn: _Turn, mask: int) -> list[int]:
    """The rows that this turn wants denoised; sets `tokens` where the clean rows are known."""
    state = turn.state
    if state.known is None:
        if state.block is None:
            state.block = Block(state.size(turn.generated), mask, state.limits)
        return [int(i) for i in state.block.ids]
    turn.tokens = [state.known]
    room = min(state.limits.max_tokens - turn.generated, state.options.block_size) - 1
    if state.options.mode == "ar" or room <= 0:
        return []
    draft = state.lookup.draft([*turn.request.output_ids, state.known], room)
    if draft:
        turn.tokens += draft
        return []
    return [state.known, *[mask] * room] if state.drafting.wanted else []


def _step(turn: _Turn, block: Block, logits: Tensor) -> None:
    """Denoises once; a finished block becomes this turn's clean rows."""
    state = turn.state
    probs = state.sampling.probabilities(logits)
    block.commit(probs, state.options.threshold, state.sampling, state.generator)
    if block.done:
        turn.tokens = [token for token, _ in block.prefix()]
        state.block = None


def _draft(turn: _Turn, logits: Tensor) -> None:
    """Adds a denoised draft, cut before its first improbable token."""
    state = turn.state
    probs = state.sampling.probabilities(logits)  # [draft, vocab]
    picked = state.sampling.pick(probs, state.generator)
    sure = probs.gather(-1, picked[:, None])[:, 0] >= state.options.draft_threshold
    length = int(sure.long().cumprod(0).sum())
    turn.tokens += picked[:length].tolist()
    turn.drafted = probs[:length]


def _verify(turn: _Turn, logits: Tensor) -> int:
    """How many of the clean rows stand; decides the token that follows them."""
    state, draft = turn.state, turn.tokens[1:]
    verified = state.sampling.probabilities(logits)
    accepted, state.known, _ = accept(
        draft, turn.drafted, verified, state.sampling, state.generator
    )
    state.drafting.count(turn.drafted is not None, accepted)
    return 1 + accepted
