"""Lets an unmodified SGLang start beside a CPU build of torch. For tests only.

Python runs this file at start where its folder is on PYTHONPATH. Three modules need help:

- torchvision's wheel is linked against CUDA; beside a CPU torch its operators do not load, and
  importing it fails where it describes them. Their schemas are registered just before.
- triton is 1 GB that a CPU cannot run: `inert_triton` stands in where it is not installed.
- SGLang's gated norm asks for a GPU on a CPU without AMX, though its CPU operator is there.

`sgl_kernel` beside this file stands in for the kernels that no wheel brings for CPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import inert_triton

DETECTION_OPERATORS = ("nms", "qnms")


class TorchvisionSchemas(MetaPathFinder):
    """Registers the schemas that `torchvision._meta_registrations` refers to; finds nothing."""

    def __init__(self) -> None:
        self.library: Any = None
        """Kept, because a torch library takes its operators along when it goes."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision._meta_registrations" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for name in DETECTION_OPERATORS:
                self.library.define(f"{name}(Tensor dets, Tensor scores, float iou) -> Tensor")
        return None


class GatedNorm(MetaPathFinder):
    """Has SGLang's gated norm call its CPU operator (`sgl_kernel.operators`) without AMX too."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "sglang.kernels.ops.attention.fla.layernorm_gated":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.loader is not None
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            module._use_cpu = True  # type: ignore[attr-defined]

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, TorchvisionSchemas())
sys.meta_path.insert(0, GatedNorm())
if PathFinder.find_spec("triton") is None:
    sys.meta_path.insert(0, inert_triton.Finder())
