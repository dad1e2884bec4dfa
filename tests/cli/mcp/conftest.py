"""A repository whose test fails, and its desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.broken import repository as repository

from clover_code.desk import Desk, Models
from clover_engine.testing.fakes import FakeTalker


@pytest.fixture
def desk(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "cache"))
    models = Models(FakeTalker(infills=["items[-1]"], answers=["no idea"]))
    desk = Desk(repository, models)
    yield desk
    desk.close()
    models.close()
