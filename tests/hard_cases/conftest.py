"""Hard cases run in the same surroundings, and none leaves anything behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Canary, Repairs


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(number, name, anchor): one of the hard cases")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    """`python` is the one that runs the tests; nothing stays in the temporary folder."""
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield
    assert list(temporary_root.iterdir()) == []


@pytest.fixture
def repairs(make_repo: object) -> Repairs:
    """`make_repo` cuts git off from the machine's own configuration."""
    return Repairs()


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path)
