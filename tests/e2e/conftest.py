"""Every end-to-end test runs in the same surroundings."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def environment(own_python: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run writes bytecode."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
