"""The Clover model: clean rows, block rows, caches and checkpoints (docs/architecture.md)."""

from clover_engine.model.cache import Cache
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig
from clover_engine.model.rows import Layout
from clover_engine.model.weights import load_model, save_model

__all__ = ["Cache", "Clover", "CloverConfig", "Layout", "load_model", "save_model"]
