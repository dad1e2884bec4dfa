"""GGUF files: their weights, configuration and vocabulary, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import DIM, HEADS, MERGES, SPECIALS, TEMPLATE, Quant, vocabulary, write_gguf

from clover_engine.checkpoint.convert import convert, main
from clover_engine.checkpoint.gguf import open_gguf
from clover_engine.checkpoint.weights import load_model
from clover_engine.errors import CheckpointError
from clover_engine.model import CloverConfig
from clover_engine.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = [Quant.F32, Quant.F16, Quant.BF16, Quant.Q4_0, Quant.Q4_1, Quant.Q5_1, Quant.Q8_0]


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    found = pytest.importorskip("transformers")
    found.utils.logging.disable_progress_bar()
    return found  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tiny")
    write_gguf(folder / "m.gguf")
    (folder / "tokenizer.json").write_text(json.dumps(open_gguf(folder / "m.gguf").tokenizer()))
    return Tokenizer.load(folder)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_weights_come_back_as_they_were_written(kind: Quant, tmp_path: Path) -> None:
    """Dequantised to the bit, q and k in Hugging Face's order again."""
    kept = write_gguf(tmp_path / "m.gguf", kind)
    read = dict(open_gguf(tmp_path / "m.gguf").tensors())
    assert read.keys() == kept.keys()
    for name, weight in kept.items():
        assert read[name].dtype == torch.float32
        assert torch.equal(read[name], torch.tensor(weight)), name


@torch.no_grad()
@pytest.mark.parametrize("kind", [Quant.F32, Quant.Q4_1], ids=lambda kind: kind.name)
def test_a_conversion_computes_what_transformers_computes(
    kind: Quant, transformers: ModuleType, tmp_path: Path
) -> None:
    """Against transformers' Llama with the weights that transformers' own loader reads."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    source, target = tmp_path / "m.gguf", tmp_path / "clover"
    write_gguf(source, kind)
    convert(source, target)
    config = transformers.LlamaConfig(**load_gguf_checkpoint(str(source))["config"])
    theirs = transformers.LlamaForCausalLM(config).eval()
    found = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=theirs)["tensors"]
    missing, unexpected = theirs.load_state_dict(found, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    theirs.tie_weights()
    ours = load_model(target)
    ids = torch.randint(0, ours.config.vocab_size, (2, 40), generator=torch.manual_seed(0))
    wanted = theirs(ids).logits
    assert float((ours.head(ours(ids)[0]) - wanted).abs().max()) <= 1e-4
    assert float(wanted.std()) > 0.1


def test_the_configuration_and_companions(tmp_path: Path) -> None:
    source, target = tmp_path / "m.gguf", tmp_path / "clover"
    write_gguf(source)
    convert(source, target, adapter_rank=2)
    config = CloverConfig.load(target)
    assert (config.num_attention_heads, config.head_dim) == (HEADS, DIM)
    assert (config.rope_theta, config.max_position_embeddings) == (5000.0, 512)
    assert config.rms_norm_eps == pytest.approx(1e-5, rel=1e-6)
    assert config.tie_word_embeddings and config.mask_embedding
    assert (config.adapter_rank, config.block_shift) == (2, 1)
    assert (target / "chat_template.jinja").read_text("utf-8") == TEMPLATE
    ends = json.loads((target / "tokenizer_config.json").read_text("utf-8"))
    assert ends == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_the_command_takes_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(tmp_path / "m.gguf")
    assert main([str(tmp_path / "m.gguf"), str(tmp_path / "clover"), "--adapter-rank", "4"]) == 0
    assert load_model(tmp_path / "clover").config.adapter_rank == 4
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no tensors")
    arguments = [str(tmp_path / "m.gguf"), str(tmp_path / "again"), "--adapter", str(bad)]
    assert main(arguments) == 2
    assert str(bad) in capsys.readouterr().err


# ---- the vocabulary ---------------------------------------------------------------------------


def test_text_is_cut_as_the_vocabulary_was_made(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.piece(i) for i in tokenizer.encode("def f1234:\n    return")]
    assert pieces == [
        b"def", b" ", b"f", b"1", b"2", b"3", b"4", b":", b"\n", b"   ", b" return",
    ]  # fmt: skip
    assert tokenizer.added == {name: i for i, name in enumerate(SPECIALS)}
    assert tokenizer.vocab_size == len(vocabulary())
    assert len(MERGES) == len(vocabulary()) - 256 - len(SPECIALS)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_every_text_survives(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.added.values())


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"architecture": "mamba"}, "'mamba'"),
        ({"llama_rope_scaling_type": "yarn"}, "RoPE scaling 'yarn'"),
        ({"llama_block_count": None}, "llama.block_count is missing"),
        ({"tokenizer_ggml_model": "llama"}, "tokenizer 'llama'"),
        ({"tokenizer_ggml_pre": "deepseek"}, "'deepseek'"),
        ({"extra_tensor": "rope_freqs.weight"}, "'rope_freqs.weight'"),
        ({"llama_feed_forward_length": 64}, "config.json says"),
        ({"llama_block_count": 3}, "lacks 9 tensors"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_files_are_refused_in_one_line(
    changes: dict[str, Any], part: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "m.gguf", **changes)
    with pytest.raises(CheckpointError) as caught:
        convert(tmp_path / "m.gguf", tmp_path / "clover")
    assert part in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "clover" / "config.json").exists()


@pytest.mark.parametrize("keep", [0, 3, 100, 4000, -1000])
def test_a_damaged_file_is_refused(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="no complete GGUF file.*fetch it again"):
        dict(open_gguf(path).tensors())


def test_without_the_package_the_command_that_helps_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "m.gguf", Quant.Q5_1)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="-m pip install gguf$"):
        dict(open_gguf(tmp_path / "m.gguf").tensors())
