"""Folders with ignore files, and the user's own git configuration out of the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a configuration folder of the test's own; returns the latter."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write({"a.py": "text"})`` makes a folder with these files and returns it."""

    def make(files: dict[str, str | bytes], name: str = "tree") -> Path:
        root = tmp_path / name
        root.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return make
