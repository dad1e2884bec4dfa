"""A repository whose test fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
