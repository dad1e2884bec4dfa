"""The Clover model: clean rows, block rows and caches (docs/architecture.md).

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

_HOMES = {
    "Cache": "cache",
    "Clover": "clover",
    "CloverConfig": "config",
    "Layout": "rows",
}

__all__ = ["Cache", "Clover", "CloverConfig", "Layout"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
