"""Every end-to-end test runs in the same surroundings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    """`python` is the one that runs the tests; no run leaves anything behind."""
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield
    assert list(temporary_root.iterdir()) == []
