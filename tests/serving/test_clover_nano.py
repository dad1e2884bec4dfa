"""The shipped model on a real SGLang, asked by the client: what the embedded engine says itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.clover import serve

import clover_engine.api
from clover_engine.api import InfillRequest, Mode
from clover_engine.clients.sglang import SGLangEngine
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine


@pytest.fixture(scope="module")
def served(sglang: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangEngine]:
    log = tmp_path_factory.mktemp("clover-nano") / "server.log"
    with serve(DEFAULT_CHECKPOINT, log) as server, SGLangEngine(server.url) as engine:
        yield engine


@pytest.fixture(scope="module")
def embedded() -> Iterator[LocalEngine]:
    with LocalEngine(threads=1) as engine:
        yield engine


def holes(mode: Mode) -> list[InfillRequest]:
    """Whole lines of this project's own source, with a little text on both sides."""
    lines = Path(clover_engine.api.__file__).read_text("utf-8").splitlines(keepends=True)
    return [
        InfillRequest(
            "".join(lines[i - 14 : i]),
            "\n" + "".join(lines[i + 1 : i + 6]),
            max_tokens=16,
            mode=mode,
        )
        for i in range(40, 200, 16)
    ]


@pytest.mark.parametrize("mode", ["ar", "speculative"])
def test_a_served_hole_is_filled_as_an_embedded_one(
    served: SGLangEngine, embedded: LocalEngine, mode: Mode
) -> None:
    """Denoising is left out: which of two equally sure places comes first is rounding."""
    asked = holes(mode)
    here = [embedded.infill(request).choices[0].text for request in asked]
    there = [served.infill(request).choices[0].text for request in asked]
    assert there == here
    assert len(set(here)) > 3, "the model says something"
