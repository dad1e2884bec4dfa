"""Clover's decoding as an SGLang dLLM algorithm: `--dllm-algorithm Clover`.

SGLang reads contexts with causal passes of its own (`requires_separate_context_encoding`, as
DiffusionGemma does) and then schedules *rounds*: it lends each running request the slots of one
block and calls `run`. A round (`turns`) is at most two passes over the requests that need them:

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
from functools import partial
from typing import Any

import torch
from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view
from sglang.srt.dllm.algorithm.base import DllmAlgorithm
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, with_phase

from clover_engine.serving import options, passes
from clover_engine.serving.hf_config import ARCHITECTURE
from clover_engine.serving.request import begin
from clover_engine.serving.turns import Turn, advance


class Clover(DllmAlgorithm):  # type: ignore[misc]
    """See the module; the options are in `clover_engine.serving.options`."""

    supported_architectures = (ARCHITECTURE,)
    requires_separate_context_encoding = True
    required_attention_backend = "triton"
    supported_attention_backends = ("triton", "torch_native")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.options: options.DecodingOptions = config.clover_options
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
            Turn(i, request, request.dllm_algo_state, []) for i, request in enumerate(self.requests)
        ]
        run = partial(passes.run, model_runner, forward_batch)
        new = advance(turns, model.mask_id, run, model.commit)
        # An empty list: nothing is new, so SGLang need not write to any stream.
        emitted = [torch.tensor(tokens, dtype=torch.long) for tokens in new] if any(new) else []
        return None, emitted, None, None, False
