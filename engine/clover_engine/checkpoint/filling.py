"""Puts a checkpoint's weights into a model that was built without memory (on the meta device)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clover_engine.checkpoint.names import is_new
from clover_engine.model.adapter import BlockAdapter
from clover_engine.model.clover import Clover, Layer
from clover_engine.model.config import CloverConfig
from clover_engine.model.experts import ExpertCache, HostExperts, PackedExperts, Stack
from clover_engine.model.moe import Experts
from clover_engine.model.qlinear import QuantEmbedding, QuantLinear
from clover_engine.model.quant import Quantized

Weight = Tensor | Quantized
_VALUES = {"normal_", "uniform_", "kaiming_uniform_", "log", "__truediv__"}
"""Functions of initial values; a tensor without memory stays as it is."""


def empty_model(config: CloverConfig) -> Clover:
    """A model without memory: every parameter has its shape and lies on the meta device."""
    with torch.device("meta"), _Unfilled():
        return Clover(config)


class _Unfilled(TorchFunctionMode):
    """Leaves initial values out: computing them for the meta device would import torch's whole
    compiler, over a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _VALUES:
            return args[0] if args else kwargs["tensor"]
        return torch.empty(*args) if name == "randn" else func(*args, **kwargs)


class Filling:
    """`add` every weight, then `finish`. Quantised weights replace the modules they belong to."""

    def __init__(
        self,
        model: Clover,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        expert_budget_bytes: int | None = None,
    ) -> None:
        self.model, self.dtype, self.device = model, dtype, torch.device(device)
        self._stacks: dict[str, dict[str, Stack]] = {}
        self._cache: ExpertCache | None = None
        if expert_budget_bytes is not None:
            self._cache = ExpertCache(expert_budget_bytes, device)
        self._tied = model.config.tie_word_embeddings

    def add(self, name: str, weight: Weight) -> None:
        """One weight under its name in the model."""
        path, _, leaf = name.rpartition(".")
        module = self.model.get_submodule(path)
        if isinstance(module, Experts) and (self._cache or isinstance(weight, Quantized)):
            self._add_experts(path, leaf, weight)
        elif isinstance(weight, Tensor):
            # A copy: a file that is overwritten in place must not change a loaded model.
            own = weight.to(self.device, self.dtype, copy=True)
            setattr(module, leaf, nn.Parameter(own))
        elif isinstance(module, nn.Embedding):
            self._replace(path, QuantEmbedding(weight, self.dtype).to(self.device))
            if self._tied:
                self._replace("lm_head", QuantLinear(weight, self.device, tied=True))
        else:
            self._replace(path, QuantLinear(weight, self.device))

    def finish(self) -> None:
        """Gives new parameters that no weight came for their neutral values, and ties the head."""
        embedding = self.model.model.embed_tokens
        if self._tied and isinstance(embedding, nn.Embedding):
            self.model.lm_head.weight = embedding.weight
        empty = {name for name, held in self.model.named_parameters() if held.is_meta}
        if empty:
            neutral = neutral_parameters(self.model.config)
            for name in empty:
                self.add(name, neutral[name])

    def _add_experts(self, path: str, leaf: str, weight: Weight) -> None:
        """Both of a layer's stacks are waited for."""
        stack = weight
        if isinstance(weight, Tensor) and weight.dtype != self.dtype:
            stack = weight.to(self.dtype)
        stacks = self._stacks.setdefault(path, {})
        stacks[leaf] = stack
        if len(stacks) < 2:
            return
        del self._stacks[path]
        gate_up, down = stacks["gate_up_proj"], stacks["down_proj"]
        if self._cache is not None:
            self._replace(path, HostExperts(gate_up, down, self._cache))
        else:
            assert isinstance(gate_up, Quantized) and isinstance(down, Quantized)
            self._replace(path, PackedExperts(gate_up, down, self.device))

    def _replace(self, path: str, module: nn.Module) -> None:
        """`module` instead of the one at `path`, whose bias and hooks it takes over."""
        old = self.model.get_submodule(path)
        bias = getattr(old, "bias", None)
        if isinstance(bias, nn.Parameter):
            module.register_parameter("bias", bias)
        module._forward_hooks.update(old._forward_hooks)
        parent, _, leaf = path.rpartition(".")
        setattr(self.model.get_submodule(parent), leaf, module)


def neutral_parameters(config: CloverConfig) -> dict[str, Tensor]:
    """The parameters that a base checkpoint cannot have, at their initial values."""
    found: dict[str, Tensor] = {}
    small = config.with_(
        intermediate_size=1,
        num_experts=min(1, config.num_experts),
        num_experts_per_tok=min(1, config.num_experts_per_tok),
        moe_intermediate_size=1,
        shared_expert_intermediate_size=0,
    )
    for kind in set(config.layer_types):
        new = {n: t for n, t in Layer(small, kind).state_dict().items() if is_new(f".{n}")}
        for i in (i for i, own in enumerate(config.layer_types) if own == kind):
            found |= {f"model.layers.{i}.{name}": tensor for name, tensor in new.items()}
    if config.mask_embedding:
        found["model.mask_embedding"] = torch.zeros(config.hidden_size)
    if config.adapter_rank:
        found |= BlockAdapter(config).state_dict(prefix="adapter.")
    return found
