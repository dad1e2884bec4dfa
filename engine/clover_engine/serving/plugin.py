"""The entry point of the group `sglang.srt.plugins`: makes SGLang know Clover.

Registered through SGLang's own tables:

- the configuration of model type `clover` (transformers' `AutoConfig.register`);
- the model class, in `ModelRegistry.models`, where `SGLANG_EXTERNAL_MODEL_PACKAGE` would put it
  (that variable would have to be set by the user, and stops SGLang from loading other models);
- the architecture as a hybrid with recurrent states (`register_linear_attn_model`), which lets the
  prefix cache keep its states;
- the algorithm, in `algo_name_to_cls`, beside SGLang's own.

Hooked through `HookRegistry`, only where there is no table: see `HOOKS` and `hooks`. Everything
stays SGLang's for every other model.
"""

from __future__ import annotations

import logging

from clover_engine.serving import pinned

HOOKS = {
    "sglang.srt.dllm.config.DllmConfig.from_server_args": "dllm_config",
    "sglang.srt.arg_groups.overrides._dllm_page_size": "page_size",
    "sglang.srt.managers.schedule_batch.Req._compute_max_prefix_len": "max_prefix_len",
    "sglang.srt.managers.tp_worker.TpModelWorker._forward_batch_generation_dllm": "run_batch",
    "sglang.srt.dllm.mixin.scheduler.SchedulerDllmMixin._stash_dllm_context": "keep_committed",
}
"""SGLang's function → the function of `hooks` around it."""

logger = logging.getLogger(__name__)


def register() -> None:
    """Called by SGLang in each of its processes, before it reads its arguments.

    Where SGLang changed what the plugin needs, only Clover checkpoints are refused, with the
    reason: an exception here would merely be logged, and other models work without the plugin.
    """
    found = pinned.installed()
    changes = pinned.moved()
    if found != pinned.VERSION and not changes:
        logger.warning(
            "clover-code's plugin is written for sglang %s and was not tested with %s",
            pinned.VERSION,
            found,
        )
    problem = pinned.problem(found, changes)
    if problem:
        logger.error("%s", problem)
    _register_config(problem)
    if not problem:
        _register_model()
        _register_algorithm()


def _register_config(problem: str) -> None:
    from transformers import AutoConfig

    from clover_engine.serving.hf_config import CloverServingConfig

    CloverServingConfig.plugin_problem = problem
    AutoConfig.register(CloverServingConfig.model_type, CloverServingConfig, exist_ok=True)


def _register_model() -> None:
    from sglang.srt.configs.linear_attn_model_registry import (
        LinearAttnModelSpec,
        register_linear_attn_model,
    )
    from sglang.srt.models.registry import ModelRegistry

    from clover_engine.serving.hf_config import ARCHITECTURE, CloverServingConfig
    from clover_engine.serving.model import CloverForBlockDiffusion

    ModelRegistry.models[ARCHITECTURE] = CloverForBlockDiffusion
    register_linear_attn_model(
        LinearAttnModelSpec(
            config_class=CloverServingConfig,
            backend_class_name="sglang.srt.layers.attention.linear.gdn_backend.GDNAttnBackend",
            arch_names=[ARCHITECTURE],
        )
    )


def _register_algorithm() -> None:
    from sglang.srt.dllm.algorithm import algo_name_to_cls
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from clover_engine.serving import hooks
    from clover_engine.serving.algorithm import Clover

    algo_name_to_cls[Clover.__name__] = Clover
    for target, name in HOOKS.items():
        HookRegistry.register(target, getattr(hooks, name), HookType.AROUND)
