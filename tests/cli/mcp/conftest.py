"""A repository whose test fails, and its desk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clover_code.desk import Desk, Models
from clover_engine.testing.fakes import FakeTalker

BROKEN = """\
def last(items):
    return items[len(items)]
"""
TEST = """\
from shop import last


def test_last():
    assert last([1, 2, 3]) == 3
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(BROKEN)
    (folder / "test_shop.py").write_text(TEST)
    (folder / ".env").write_text("TOKEN = x\n")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "start"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def desk(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "cache"))
    models = Models(FakeTalker(infills=["items[-1]"], answers=["no idea"]))
    desk = Desk(repository, models)
    yield desk
    desk.close()
    models.close()
