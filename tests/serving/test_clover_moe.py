"""A converted Qwen3.5-MoE on a real SGLang: experts, and a mask with an embedding of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.clover import MOE, Question, Reference, check, checkpoint, prompts, serve
from tests.serving.harness import Server

from clover_engine.api import Mode


@pytest.fixture(scope="module")
def folder(checkpoints: Path) -> Path:
    return checkpoint(checkpoints / "clover-moe", MOE)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture(scope="module")
def server(
    sglang: None, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with serve(folder, tmp_path_factory.mktemp("clover-moe") / "server.log") as server:
        yield server


@pytest.mark.parametrize("mode", ["ar", "threshold", "speculative"])
def test_every_mode_equals_in_process_decoding(
    server: Server, reference: Reference, mode: Mode
) -> None:
    server.flush()
    first = prompts(20)
    check(server, reference, [Question(p, mode) for p in first])
    followed = [Question(p + p[:3], mode) for p in first[:8]]
    answers = check(server, reference, followed)
    assert [a.cached_tokens for a in answers] == [len(p) for p in first[:8]]
