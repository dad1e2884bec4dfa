"""Experts that do not lie as plain tensors on the device: quantised, or waiting in host memory.

`HostExperts` keep the stacks where they are (pages of the checkpoint's file, or pinned memory for
a GPU) and ask one `ExpertCache`, shared by all layers, for a device copy of an expert. The cache
never holds more than its budget; what was used longest ago leaves first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.errors import CheckpointError
from clover_engine.model.moe import Experts
from clover_engine.model.qlinear import Product, product
from clover_engine.model.quant import Quantized

Stack = Tensor | Quantized
"""[E, out, in]."""


@dataclass(slots=True)
class CacheUse:
    """What an `ExpertCache` did so far."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0
    copied_bytes: int = 0
    resident_bytes: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert on the device, ready to compute."""

    gate_up: Product
    down: Product
    nbytes: int

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class ExpertCache:
    """Device copies of experts within `budget_bytes`, least recently used out first."""

    def __init__(self, budget_bytes: int, device: torch.device | str = "cpu") -> None:
        self.budget_bytes, self.device = budget_bytes, torch.device(device)
        self.use = CacheUse()
        self._held: OrderedDict[tuple[int, int], Expert] = OrderedDict()

    def holds(self, layer: HostExperts, expert: int) -> bool:
        return (id(layer), expert) in self._held

    def get(self, layer: HostExperts, expert: int) -> Expert:
        """The expert's device copy, made now if it is not held."""
        key = (id(layer), expert)
        found = self._held.get(key)
        if found is not None:
            self.use.hits += 1
            self._held.move_to_end(key)
            return found
        self.use.misses += 1
        self._make_room(layer.expert_bytes)
        made = layer.copy(expert, self.device)
        self._held[key] = made
        self.use.copied_bytes += made.nbytes
        self.use.resident_bytes += made.nbytes
        self.use.peak_bytes = max(self.use.peak_bytes, self.use.resident_bytes)
        return made

    def _make_room(self, need: int) -> None:
        while self._held and self.use.resident_bytes + need > self.budget_bytes:
            _, gone = self._held.popitem(last=False)
            self.use.resident_bytes -= gone.nbytes
            self.use.evicted += 1


class HostExperts(Experts):
    """A layer's experts in host memory, computed on the cache's device."""

    def __init__(self, gate_up: Stack, down: Stack, cache: ExpertCache) -> None:
        nn.Module.__init__(self)
        if cache.device.type == "cuda":
            gate_up, down = _pinned(gate_up), _pinned(down)
        self._stacks, self.cache = (gate_up, down), cache
        self.packed_weights = gate_up.shape.numel() + down.shape.numel()
        self.expert_bytes = gate_up[0].nbytes + down[0].nbytes
        if self.expert_bytes > cache.budget_bytes:
            raise CheckpointError(
                f"an expert takes {self.expert_bytes} bytes, the budget for experts is "
                f"{cache.budget_bytes}; allow at least one expert"
            )

    def order(self, chosen: list[int]) -> list[int]:
        """Those on the device first: loading another could push them out."""
        return sorted(chosen, key=lambda expert: not self.cache.holds(self, expert))

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return self.cache.get(self, expert)(x)

    def copy(self, expert: int, device: torch.device) -> Expert:
        """A device copy of one expert."""
        gate_up, down = self._stacks
        return _expert(gate_up[expert], down[expert], device)


class PackedExperts(Experts):
    """A layer's quantised experts, all on one device."""

    def __init__(self, gate_up: Quantized, down: Quantized, device: torch.device | str) -> None:
        nn.Module.__init__(self)
        count = gate_up.shape[0]
        self.packed_weights = gate_up.shape.numel() + down.shape.numel()
        self._experts = [_expert(gate_up[i], down[i], torch.device(device)) for i in range(count)]

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return self._experts[expert](x)


def _expert(gate_up: Stack, down: Stack, device: torch.device) -> Expert:
    size = gate_up.nbytes + down.nbytes
    return Expert(_product(gate_up, device), _product(down, device), size)


def _product(weight: Stack, device: torch.device) -> Product:
    if isinstance(weight, Quantized):
        return product(weight, device)
    return partial(F.linear, weight=weight.to(device, non_blocking=True, copy=True))


def _pinned(stack: Stack) -> Stack:
    """Page-locked memory, from which a GPU reads at full speed."""
    if isinstance(stack, Tensor):
        return stack.pin_memory()
    zeros = None if stack.zeros is None else stack.zeros.pin_memory()
    parts = (stack.qweight.pin_memory(), stack.scales.pin_memory(), zeros)
    return Quantized(stack.bits, stack.columns, *parts)
