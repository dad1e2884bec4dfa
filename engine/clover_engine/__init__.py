"""Clover: the block-diffusion model, its decoding, training and serving.

``clover_engine.load(path)`` gives a model to ask from Python (`clover_engine.loading`). Importing
this package is cheap: torch is needed by `clover_engine.model`, `.decode` and what builds on them,
and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clover_engine.loading import LoadedModel, load

__all__ = ["LoadedModel", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clover_engine import loading

    return getattr(loading, name)
