"""Fixtures of the tests that drive a real Neovim; see `neovim.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.editors.neovim import Editor, own_folders


@pytest.fixture
def open_editor(tmp_path: Path) -> Iterator[Callable[..., Editor]]:
    """Opens editors whose files, state and cache are the test's own."""
    opened: list[Editor] = []

    def open_one(*files: Path, setup: str = "", env: dict[str, str] | None = None) -> Editor:
        editor = Editor(setup, files, {**own_folders(tmp_path), **(env or {})})
        opened.append(editor)
        return editor

    yield open_one
    for editor in opened:
        editor.close()
