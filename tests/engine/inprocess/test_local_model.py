"""The embedded engine through its worker process, with a tiny random model on disk."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clover_code.main import main
from clover_engine.api import CancelToken, ClozeRequest, InfillRequest, ScoreRequest
from clover_engine.errors import CheckpointError, RequestCancelled
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine
from clover_engine.worker.serve import load_model

PREFIX = "def add(a, b):\n    return "


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with clover-nano's tokenizer and random weights."""
    import torch

    from clover_engine.checkpoint.weights import save_model
    from clover_engine.model import Clover, CloverConfig

    torch.manual_seed(0)
    vocabulary = json.loads((DEFAULT_CHECKPOINT / "tokenizer.json").read_text())["model"]["vocab"]
    config = CloverConfig(
        vocab_size=max(vocabulary.values()) + 1,
        hidden_size=32,
        layer_types=("linear_attention", "full_attention"),
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=32,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=1024,
        mask_token_id=1,
    )
    folder = tmp_path_factory.mktemp("tiny")
    save_model(Clover(config), folder)
    shutil.copy(DEFAULT_CHECKPOINT / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[LocalEngine]:
    with LocalEngine(tiny, threads=1) as engine:
        yield engine


@pytest.mark.parametrize("mode", ["threshold", "speculative", "ar"])
def test_infill(mode: str, engine: LocalEngine) -> None:
    request = InfillRequest(PREFIX, "\n", max_tokens=8, mode=mode)  # type: ignore[arg-type]
    first, again = engine.infill(request), engine.infill(request)
    (one,), (other,) = first.choices, again.choices
    assert (one.text, one.finish_reason) == (other.text, other.finish_reason)
    assert one.confidence == pytest.approx(other.confidence)  # cached rows round otherwise
    assert first.stats.tokens <= 9 and first.stats.forward_passes > 0
    assert 0 <= one.confidence <= 1


def test_score_and_cloze(engine: LocalEngine) -> None:
    scored = engine.score(ScoreRequest(PREFIX, "\n", ("a + b", "a - b", "")))
    assert all(value is not None and value < 0 for value in scored.logprobs)
    fills = engine.cloze(ClozeRequest(PREFIX, "a + b", "\n", top=5)).fills
    assert 0 < len(fills) <= 5
    assert [f.logprob for f in fills] == sorted((f.logprob for f in fills), reverse=True)


def test_health_names_the_model(tiny: Path, engine: LocalEngine) -> None:
    health = engine.health(start=True)
    assert health.ready and health.checkpoint == str(tiny) and health.parameters > 0


@pytest.mark.parametrize("mode", ["threshold", "speculative", "ar"])
def test_cancel_within_a_step(mode: str, engine: LocalEngine) -> None:
    engine.health(start=True)
    cancel = CancelToken()
    threading.Timer(0.2, cancel.cancel).start()
    request = InfillRequest(PREFIX, max_tokens=900, block_size=4, mode=mode)  # type: ignore[arg-type]
    begun = time.monotonic()
    try:
        result = engine.infill(request, cancel)
        assert result.choices[0].finish_reason in ("cancelled", "eom", "length")
    except RequestCancelled:
        pass
    assert time.monotonic() - begun < 3
    assert engine.health().restarts == 0


def test_deadline_of_every_call(engine: LocalEngine) -> None:
    engine.health(start=True)
    begun = time.monotonic()
    engine.infill(InfillRequest(PREFIX, max_tokens=900, block_size=4, deadline_s=0.1))
    engine.score(ScoreRequest(PREFIX, "", tuple(f"x{i}" for i in range(4000)), deadline_s=0.1))
    engine.cloze(ClozeRequest(PREFIX, "a + b " * 40, "", deadline_s=0.1))
    assert time.monotonic() - begun < 5


def remove_everything(folder: Path) -> None:
    shutil.rmtree(folder)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def scramble(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 5000)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def rename_architecture(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["model_type"] = "gpt_neo"
    path.write_text(json.dumps(config))


def cut_config(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text()[:40])


def remove_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    "breaking",
    [
        remove_everything,
        truncate,
        scramble,
        remove_weights,
        rename_architecture,
        cut_config,
        remove_tokenizer,
    ],
)
def test_unusable_checkpoints(breaking: Callable[[Path], None], tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny, folder)
    breaking(folder)
    with pytest.raises(CheckpointError) as caught:
        load_model(folder, 1)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_the_command_says_which_checkpoint_is_unusable(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny, folder)
    rename_architecture(folder)
    source = tmp_path / "a.py"
    source.write_text(PREFIX)
    monkeypatch.setenv("CLOVER_CHECKPOINT", str(folder))
    assert main(["infill", f"{source}:2:12"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("clover-code: ") and said.count("\n") == 1
    assert str(folder) in said and "gpt_neo" in said
