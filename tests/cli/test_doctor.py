"""`clover-code doctor`: what it finds, what it recommends."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
FakeModel = Callable[..., None]


def check(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(c for c in found["checks"] if c["name"] == name)


def test_everything_fine(command: Command, fake_model: FakeModel) -> None:
    ran = command("doctor", "--json")
    assert ran.code == 0 and ran.json["ok"]
    assert ran.json["engine"]["ready"] and ran.json["engine"]["model"] == "fake"
    ran = command("doctor")
    assert ran.code == 0 and "MISSING" not in ran.out
    assert all(name in ran.out for name in ("python", "git", "pygls", "tree-sitter", "engine"))


def test_a_broken_model_is_reported(command: Command, fake_model: FakeModel) -> None:
    fake_model(broken="config.json: unknown architecture")
    ran = command("doctor", "--json")
    assert ran.code == 1 and not ran.json["ok"]
    assert "unknown architecture" in check(ran.json, "engine")["detail"]


def test_missing_weights(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOVER_WORKER", raising=False)
    monkeypatch.setenv("CLOVER_CHECKPOINT", str(tmp_path))
    ran = command("doctor", "--json", "--no-start")
    assert ran.code == 1 and ran.json["engine"] is None
    weights = check(ran.json, "weights")
    assert str(tmp_path) in weights["detail"] and "CLOVER_CHECKPOINT" in weights["fix"]


def test_missing_torch_names_the_command(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "torch" else real(n, *a)
    )
    monkeypatch.delenv("CLOVER_WORKER", raising=False)
    ran = command("doctor")
    assert ran.code == 1
    lines = ran.out.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("MISSING  torch"))
    assert "-m pip install" in lines[row + 1] and "[engine]" in lines[row + 1]


def test_missing_git(
    command: Command, fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = command("doctor", "--json", "--no-start")
    assert ran.code == 1
    assert check(ran.json, "git")["fix"].startswith("install git")
