"""The real SmolLM2-135M, where `make setup-smollm2` installed it; tiny stand-ins are elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.checkpoint.known import CANDIDATES, prepare
from clover_engine.checkpoint.weights import load_model
from clover_engine.cpu.packed import PackedStep, load_packed
from clover_engine.model import Cache
from clover_engine.text.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        CANDIDATES["smollm2"].source is None, reason="SmolLM2 is not here; run: make setup-smollm2"
    ),
]
TEXT = '''\
def resolve(path: Path, roots: list[Path]) -> Path | None:
    """The first existing file below one of the roots."""
    for root in roots:
        candidate = root / path
        if candidate.is_file():
            return candidate
    return None


class Cache:
    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self.entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.entries.get(key)
'''
LOSS = 1.8473
"""Nats a token of TEXT with the weights as transformers 5.24's GGUF loader reads them (float32)."""
FIRST = [1604, 10575, 24, 1537, 42, 8955, 28, 5190, 42, 1398, 75, 9644, 2255, 4722, 8955, 2504]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOVER_CACHE_DIR", str(tmp_path_factory.mktemp("smollm2")))
        found = CANDIDATES["smollm2"].folder
        prepare(found)
        yield found
        (found / "model.safetensors").unlink()  # 540 MB


def loss(logits: Tensor, ids: list[int]) -> float:
    return float(F.cross_entropy(logits[:-1].float(), torch.tensor(ids[1:])))


@torch.inference_mode()
def test_the_converted_weights_give_the_known_loss(folder: Path) -> None:
    ids = Tokenizer.load(folder).encode(TEXT)
    model = load_model(folder)
    assert loss(model.head(model(torch.tensor([ids]))[0][0]), ids) == pytest.approx(LOSS, abs=2e-4)


@torch.inference_mode()
def test_packed_steps_lose_little(folder: Path) -> None:
    ids = Tokenizer.load(folder).encode(TEXT)
    model = load_packed(folder)
    assert isinstance(model.fused, PackedStep)
    cache, logits = Cache(model.config), []
    for at in range(0, len(ids), 8):
        hidden, _ = model(torch.tensor([ids[at : at + 8]]), cache=cache)
        logits.append(model.head(hidden)[0])
    assert loss(torch.cat(logits), ids) == pytest.approx(LOSS, abs=0.05)


def test_the_vocabulary(folder: Path) -> None:
    tok = Tokenizer.load(folder)
    assert tok.encode(TEXT)[: len(FIRST)] == FIRST
    assert tok.added["<|endoftext|>"] == 0 and len(tok.added) == 17
    spec = importlib.util.find_spec("click")
    assert spec is not None and spec.origin is not None
    for path in sorted(Path(spec.origin).parent.glob("*.py")):
        text = path.read_text("utf-8")
        assert tok.decode(tok.encode(text)) == text, path
