"""Clover on a real SGLang without any dLLM algorithm: SGLang's own scheduling of the clean rows.

The first rung. Block rows' parameters are loaded and unused; requests need no custom parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.clover import DENSE, Reference, checkpoint, prompts, serve
from tests.serving.harness import Server


@pytest.fixture(scope="module")
def folder(checkpoints: Path) -> Path:
    return checkpoint(checkpoints / "clover-plain", DENSE, seed=5)


@pytest.fixture(scope="module")
def server(
    sglang: None, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("clover-plain") / "server.log"
    with serve(folder, log, algorithm=False) as server:
        yield server


def test_clean_rows_equal_in_process_decoding(server: Server, folder: Path) -> None:
    reference = Reference(folder)
    first = prompts(20)
    followed = [p + p[:4] for p in first]
    for asked, cached in ((first, False), (followed, True)):
        answers = server.generate_all(asked, 24)
        assert [a.ids for a in answers] == [reference.generate(p, 24, "ar") for p in asked]
        assert any(a.cached_tokens for a in answers) == cached
