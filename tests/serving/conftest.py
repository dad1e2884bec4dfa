"""Fixtures of the tests that talk to a real SGLang server; see `harness.py`.

A server needs 1.5 GB and 20 s to start. Its fixture has the scope of a module, and a module uses
one server, so that only one is alive at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.harness import Server, missing

NO_STATE_BUFFER = ("--mamba-radix-cache-strategy", "no_buffer", "--disable-overlap-schedule")
"""How SGLang keeps states for its prefix cache; it has the other strategies on GPUs only."""


@pytest.fixture(scope="session")
def sglang() -> None:
    """Skips what needs SGLang where it is not installed."""
    if missing():
        pytest.skip(missing())


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for checkpoints that several modules serve."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def sdar_server(
    sglang: None, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A tiny SDAR with SGLang's own LowConfidence algorithm, four requests at a time."""
    from tests.serving import models

    checkpoint = models.sdar(checkpoints / "sdar")
    with Server(
        checkpoint,
        tmp_path_factory.mktemp("sdar") / "server.log",
        modules=("sdar",),
        arguments=("--dllm-algorithm", "LowConfidence"),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def qwen35_server(
    sglang: None, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A tiny Qwen3.5-MoE, autoregressive, with the prefix cache."""
    from tests.serving import models

    checkpoint = models.qwen35_moe(checkpoints / "qwen35")
    with Server(
        checkpoint,
        tmp_path_factory.mktemp("qwen35") / "server.log",
        modules=("qwen3_5", "qwen3_5_text"),
        arguments=NO_STATE_BUFFER,
    ) as server:
        yield server
