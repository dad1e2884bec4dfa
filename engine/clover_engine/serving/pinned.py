"""The SGLang release this plugin was written for, and what another one changed.

Hooks are monkey patches: where SGLang renames what they wrap, they would silently do nothing. So
each thing that the plugin relies on is looked up at start, and the missing ones are named.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

VERSION = "0.5.23"

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.dllm.config:DllmConfig.from_server_args": ("server_args",),
    "sglang.srt.dllm.algorithm.base:DllmAlgorithm.run": (
        "self", "model_runner", "forward_batch", "algo_states",
    ),
    "sglang.srt.dllm.algorithm.base:DllmAlgorithm.configure_server_args": ("server_args",),
    "sglang.srt.dllm.algorithm.base:DllmAlgorithm.validate_request": ("req",),
    "sglang.srt.dllm.mixin.scheduler:SchedulerDllmMixin._stash_dllm_context": ("self", "req"),
    "sglang.srt.dllm.mixin.scheduler:SchedulerDllmMixin.process_batch_result_dllm": (
        "self", "batch", "result",
    ),
    "sglang.srt.arg_groups.overrides:_dllm_page_size": ("view",),
    "sglang.srt.managers.schedule_batch:Req._compute_max_prefix_len": ("self", "input_len"),
    "sglang.srt.managers.tp_worker:TpModelWorker._forward_batch_generation_dllm": (
        "self", "forward_batch", "batch",
    ),
    "sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet.forward": (
        "self", "hidden_states", "forward_batch",
    ),
    "sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet.fix_query_key_value_ordering": (
        "self", "mixed_qkvz", "mixed_ba",
    ),
    "sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet._forward_input_proj": (
        "self", "hidden_states",
    ),
    "sglang.srt.models.qwen3_5:Qwen3_5AttentionDecoderLayer.self_attention": (
        "self", "positions", "hidden_states", "forward_batch",
    ),
}  # fmt: skip
"""What is hooked, overridden or called, and its parameters."""

NAMES = (
    "sglang.srt.dllm.algorithm:algo_name_to_cls",
    "sglang.srt.models.registry:ModelRegistry.models",
    "sglang.srt.models.qwen3_5:Qwen3_5ForCausalLM.decoder_layer_types",
    "sglang.srt.models.qwen3_5_text:Qwen3_5MoeForCausalLM.body_cls",
    "sglang.srt.configs.linear_attn_model_registry:register_linear_attn_model",
)

FIELDS: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.model_executor.forward_batch_info:ForwardBatch": (
        "batch_size", "input_ids", "req_pool_indices", "req_pool_indices_cpu", "seq_lens",
        "seq_lens_cpu", "seq_lens_sum", "out_cache_loc", "positions", "extend_num_tokens",
        "extend_seq_lens", "extend_seq_lens_cpu", "extend_prefix_lens", "extend_prefix_lens_cpu",
        "extend_start_loc", "orig_seq_lens", "rids", "lora_ids", "global_num_token_non_padded",
        "global_num_token_non_padded_cpu",
    ),
    "sglang.srt.managers.schedule_batch:ReqKvInfo": (
        "req_pool_idx", "kv_committed_len", "kv_allocated_len",
    ),
    "sglang.srt.mem_cache.memory_pool:MambaPool.State": ("conv", "temporal"),
}  # fmt: skip
"""Dataclasses that are read or written, and the fields."""


def moved(
    functions: Mapping[str, tuple[str, ...]] = FUNCTIONS,
    names: tuple[str, ...] = NAMES,
    classes: Mapping[str, tuple[str, ...]] = FIELDS,
) -> list[str]:
    """What the installed SGLang lacks or calls differently, one phrase each."""
    found = []
    for path in (*functions, *names, *classes):
        try:
            target = pkgutil.resolve_name(path)
        except (ImportError, AttributeError):
            found.append(f"{_plain(path)} is missing")
            continue
        if path in classes:
            there = {field.name for field in dataclasses.fields(target)}
            found += [f"{_plain(path)}.{n} is missing" for n in classes[path] if n not in there]
        if path in functions:
            actual = tuple(inspect.signature(target).parameters)
            wanted = functions[path]
            bound = wanted[1:] if inspect.ismethod(target) and wanted[0] == "self" else wanted
            if actual != bound:
                found.append(f"{_plain(path)} takes ({', '.join(actual)})")
    return found


def installed() -> str:
    """SGLang's version, or "none"."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return "none"


def problem(installed: str, changes: list[str]) -> str:
    """Why a Clover checkpoint cannot be served with SGLang `installed`; empty if it can."""
    if not changes:
        return ""
    return (
        f"clover-code's plugin is written for sglang {VERSION}, this is {installed}, where "
        f"{'; '.join(changes)}; install sglang=={VERSION}"
    )


def _plain(path: str) -> str:
    return path.replace(":", ".")
