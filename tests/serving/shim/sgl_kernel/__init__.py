"""Stands in for the CPU build of SGLang's kernels, which no wheel brings. For tests only.

What a hybrid model needs is here in plain torch: `mamba`, and the operators of `operators`. Every
other name resolves, since SGLang imports many that it never calls on a CPU; calling one raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sgl_kernel import operators as operators  # registers torch.ops.sgl_kernel

__version__ = "0.4.10"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args: Any, **named: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in; write one beside this file")

    missing.__name__ = name
    globals()[name] = missing
    return missing
