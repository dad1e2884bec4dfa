"""SGLang's client with a fake server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clover_engine.clients.sglang import SGLangEngine
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(["return a + b"])) as server:
        yield server


@pytest.fixture
def engine(server: FakeServer) -> Iterator[SGLangEngine]:
    with SGLangEngine(server.url) as engine:
        yield engine
