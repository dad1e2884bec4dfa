"""`clover-code model` and what follows from it: the chosen model, doctor, clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from clover_code.doctor import check_weights
from clover_code.main import main
from clover_engine.checkpoint.catalog import OFFERED, choose, chosen, missing, name_of
from clover_engine.checkpoint.known import CANDIDATES
from clover_engine.errors import CheckpointError
from clover_engine.loading import load
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine, checkpoint_path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLOVER_CHECKPOINT", raising=False)
    monkeypatch.delenv("CLOVER_WORKER", raising=False)
    return tmp_path


def put(name: str) -> Path:
    path = OFFERED[name].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_the_choice_is_remembered_and_settings_go_before_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkpoint_path() == DEFAULT_CHECKPOINT
    path = put("coder-0.5b")
    assert main(["model", "use", "coder-0.5b"]) == 0
    assert chosen() == "coder-0.5b" and checkpoint_path() == path
    assert checkpoint_path("coder-1.5b") == OFFERED["coder-1.5b"].path
    monkeypatch.setenv("CLOVER_CHECKPOINT", str(folder / "other"))
    assert checkpoint_path() == folder / "other"
    monkeypatch.delenv("CLOVER_CHECKPOINT")
    put("smollm2")
    assert main(["model", "use", "smollm2"]) == 0
    assert checkpoint_path() == CANDIDATES["smollm2"].folder
    assert main(["model", "use", "nano"]) == 0
    assert checkpoint_path() == DEFAULT_CHECKPOINT


@pytest.mark.parametrize("content", ["", "gpt-9\n", "\xff\xfe", "a" * 10_000])
def test_an_unreadable_choice_is_none(folder: Path, content: str) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "in-use").write_bytes(content.encode("latin-1"))
    assert chosen() == "" and checkpoint_path() == DEFAULT_CHECKPOINT


def test_a_model_that_is_gone_is_named_with_its_command(folder: Path) -> None:
    choose("coder-0.5b")
    command = "clover-code model get coder-0.5b"
    [check] = check_weights()
    assert not check.ok and check.fix == command
    with LocalEngine() as engine:
        assert command in engine.health().detail
    with pytest.raises(CheckpointError, match=command):
        load("coder-0.5b")
    reason = missing(folder / "x.gguf") or ""
    assert str(folder / "x.gguf") in reason and "set CLOVER_CHECKPOINT" in reason


def test_doctor_shows_one_that_is_there(folder: Path) -> None:
    path = put("coder-1.5b")
    choose("coder-1.5b")
    [check] = check_weights()
    assert check.ok and str(path) in check.detail
    assert name_of(path) == "coder-1.5b" and name_of(folder / "my.gguf") == "my"


def test_a_file_that_is_no_model_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="no complete GGUF file"):
        load(put("coder-0.5b"))
