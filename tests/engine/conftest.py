"""Fixtures of the engine's tests: the slow reference model, and models with lively weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torch import nn


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """`reference.py` of this folder."""
    path = Path(__file__).parent / "reference.py"
    spec = importlib.util.spec_from_file_location("engine_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def lively() -> Callable[..., None]:
    """Moves every parameter of a model away from its initial value, the same way for a seed."""
    import torch

    def shake(model: nn.Module, seed: int = 0, only: str = "", by: float = 0.3) -> None:
        """Those parameters whose name contains `only`."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                if only in name:
                    parameter.add_((noise * by).to(parameter.dtype))

    return shake


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and lose much where the cores are busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
