"""`clover-code fix` with the embedded engine: a model of random weights, and broken checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_engine.worker.local import DEFAULT_CHECKPOINT

COMMAND = [sys.executable, "-m", "clover_code.main", "fix", "--check", "python -m pytest -q"]
FILES = {
    "a.py": "def double(x):\n    return x - x\n",
    "test_a.py": "from a import double\n\ndef test_double():\n    assert double(3) == 6\n",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the shipped tokenizer and random weights."""
    import torch

    from clover_engine.checkpoint.weights import save_model
    from clover_engine.model import Clover, CloverConfig

    torch.manual_seed(0)
    tokenizer = DEFAULT_CHECKPOINT / "tokenizer.json"
    vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    config = CloverConfig(
        vocab_size=max(vocabulary.values()) + 1,
        hidden_size=32,
        layer_types=("full_attention",),
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=32,
        max_position_embeddings=1024,
        mask_token_id=1,
    )
    folder = tmp_path_factory.mktemp("tiny")
    save_model(Clover(config), folder)
    shutil.copy(tokenizer, folder)
    return folder


def run(root: Path, checkpoint: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"CLOVER_CHECKPOINT": str(checkpoint), "CLOVER_THREADS": "1"}
    return subprocess.run([*COMMAND, *args], cwd=root, env=env, capture_output=True, timeout=240)


def test_the_engine_is_used_and_reported(make_repo, tiny: Path) -> None:
    root = make_repo(FILES)
    done = run(root, tiny, "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0, result
    assert result["file"] == "a.py"
    assert result["engine"]["calls"] >= 1
    assert result["engine"]["forward_passes"] >= 1
    assert result["engine"]["seconds"] > 0
    assert result["engine"]["detail"] == tiny.name
    assert result["notes"] == []


def missing(folder: Path) -> Path:
    return folder / "nowhere"


def truncated(folder: Path) -> Path:
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    return folder


def corrupt(folder: Path) -> Path:
    next(folder.glob("*.safetensors")).write_bytes(b"\xff" * 4096)
    return folder


def unknown(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mamba9", "architectures": ["Mamba9ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def no_tokenizer(folder: Path) -> Path:
    (folder / "tokenizer.json").unlink()
    return folder


@pytest.mark.parametrize("damage", [missing, truncated, corrupt, unknown, no_tokenizer])
def test_a_bad_checkpoint_is_one_line_that_says_what_to_do(
    make_repo, tmp_path: Path, tiny: Path, damage: Callable[[Path], Path]
) -> None:
    shutil.copytree(tiny, tmp_path / "copy")
    root = make_repo(FILES)
    done = run(root, damage(tmp_path / "copy"))
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert done.stderr.count(b"\n") == 1
    assert b"; " in done.stderr  # what is wrong; what to do
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""
    assert make_repo.git(root, "worktree", "list").count("\n") == 1
