"""What the scheduler and the cache must do otherwise for the algorithm `Clover`.

Each function wraps one of SGLang's (`HookType.AROUND`: the original comes first) and leaves every
other model and algorithm to it. `plugin.HOOKS` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.dllm.config import DllmConfig

from clover_engine.serving.algorithm import Clover
from clover_engine.serving.hf_config import ARCHITECTURE, CloverServingConfig
from clover_engine.serving.options import server_options
from clover_engine.serving.request import Generation

NAME = Clover.__name__
MAX_RUNNING_REQUESTS = 32
"""Where --max-running-requests is not given; SGLang's own default for diffusion models is 1."""


def dllm_config(original: Callable[[Any], Any], server_args: Any) -> Any:
    """`DllmConfig.from_server_args`: SGLang has a fixed table of architectures."""
    given = resolving_view(server_args)
    if given.dllm_algorithm != NAME:
        return original(server_args)
    model = ModelConfig.from_server_args(
        server_args, model_path=given.model_path, model_revision=given.revision
    )
    hf_config = model.hf_config
    if not isinstance(hf_config, CloverServingConfig):
        found = (getattr(hf_config, "architectures", None) or ["unknown"])[0]
        raise ValueError(
            f"--dllm-algorithm {NAME} needs a {ARCHITECTURE} checkpoint, not {found}; "
            "leave the option out for other models"
        )
    settings = _algorithm_settings(given.dllm_algorithm_config)
    clover = hf_config.clover
    block_size = settings.pop("block_size", clover.block_size)
    config = DllmConfig(
        algorithm=NAME,
        algorithm_config=settings,
        block_size=block_size,
        mask_id=-1 if clover.mask_token_id is None else clover.mask_token_id,
        max_running_requests=given.max_running_requests or MAX_RUNNING_REQUESTS,
        first_done_first_out_mode=False,
        requires_separate_context_encoding=True,
    )
    config.clover_options = server_options(settings, block_size, clover.threshold)
    return config


def _algorithm_settings(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml  # type: ignore[import-untyped]

    with open(path, encoding="utf-8") as file:
        settings = yaml.safe_load(file) or {}
    if not isinstance(settings, dict):
        raise ValueError(f"{path} must hold `name: value` lines")
    server_options(settings, 1, 0.5)
    return settings


def page_size(original: Callable[[Any], dict[str, Any]], view: Any) -> dict[str, Any]:
    """`_dllm_page_size`: contexts are causal, so the cache need not share whole blocks only, and
    SGLang's cache of recurrent states wants pages of one token."""
    return {} if view.dllm_algorithm == NAME else original(view)


def max_prefix_len(original: Callable[[Any, int], int], request: Any, input_len: int) -> int:
    """`Req._compute_max_prefix_len`: without SGLang's rounding down to whole blocks, which would
    miss every stored state, since those lie at the ends of contexts. One token at least is read
    again: its logits decide the first new one."""
    if not _is_ours(request):
        return original(request, input_len)
    offset: int = request.dllm_block_offset
    return max(min(input_len - 1, offset), 0)


def run_batch(original: Callable[..., Any], worker: Any, forward_batch: Any, batch: Any) -> Any:
    """`TpModelWorker._forward_batch_generation_dllm`: hands the algorithm its requests."""
    if isinstance(worker.dllm_algorithm, Clover):
        worker.dllm_algorithm.requests = batch.reqs if batch is not None else ()
    return original(worker, forward_batch, batch)


def keep_committed(original: Callable[..., None], scheduler: Any, request: Any) -> None:
    """`SchedulerDllmMixin._stash_dllm_context`: SGLang gives back all of the lent block; keeps the
    rows that the round committed. They are not offered to the prefix cache: that would copy every
    layer's GDN state after each round, and the next prompt shares the context, not these rows."""
    state = request.dllm_algo_state
    if not _is_ours(request) or not isinstance(state, Generation):
        original(scheduler, request)
        return
    kept = request.dllm_block_offset + state.committed
    state.committed = 0
    allocated = request.kv.kv_allocated_len
    if kept < allocated:
        slots = scheduler.req_to_token_pool.req_to_token[request.kv.req_pool_idx, kept:allocated]
        scheduler.token_to_kv_pool_allocator.free_segment(slots, start_pos=kept)
    request.kv.kv_committed_len = request.kv.kv_allocated_len = kept
    request.extend_end = request.prefix_len = kept


def _is_ours(request: Any) -> bool:
    return request.dllm_config is not None and request.dllm_config.algorithm == NAME
