"""The Clover model: clean rows, block rows, caches and checkpoints (docs/architecture.md).

Names are imported on first use: whoever only reads `model.config` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clover_engine.model.cache import Cache as Cache
    from clover_engine.model.clover import Clover as Clover
    from clover_engine.model.config import CloverConfig as CloverConfig
    from clover_engine.model.rows import Layout as Layout
    from clover_engine.model.weights import load_model as load_model
    from clover_engine.model.weights import save_model as save_model

_HOMES = {
    "Cache": "cache",
    "Clover": "clover",
    "CloverConfig": "config",
    "Layout": "rows",
    "load_model": "weights",
    "save_model": "weights",
}

__all__ = ["Cache", "Clover", "CloverConfig", "Layout", "load_model", "save_model"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
