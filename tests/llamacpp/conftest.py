"""One real llama-server for all tests here; without one they are skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clover_engine.clients.llamacpp import LlamaCppEngine


def _load(name: str) -> ModuleType:
    """A helper beside this file (pytest's importlib mode has no package to import it from)."""
    known = sys.modules.get(f"llamacpp_{name}")
    if known is not None:
        return known
    path = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"llamacpp_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"llamacpp_{name}"] = module
    spec.loader.exec_module(module)
    return module


harness = _load("harness")


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not harness.is_there():
        pytest.skip(harness.MISSING)
    server = harness.LlamaServerProcess(tmp_path_factory.mktemp("llama") / "server.log")
    yield server
    server.close()


@pytest.fixture
def engine(real: Any) -> Iterator[LlamaCppEngine]:
    with LlamaCppEngine(real.url) as made:
        yield made
