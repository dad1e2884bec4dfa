"""Runs the command in this process, with the fake model behind the real worker protocol."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from clover_code.main import main


@dataclass(frozen=True)
class Ran:
    """What the command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``command("infill", "a.py:1:1")`` runs it and returns what it did."""

    def run(*arguments: str) -> Ran:
        try:
            code = main(arguments)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def fake_model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``fake_model(infills=["x"])`` chooses the fake's fields; see `clover_engine.testing`."""

    def choose(**options: Any) -> None:
        worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(options)]
        monkeypatch.setenv("CLOVER_WORKER", shlex.join(worker))

    choose()
    return choose
