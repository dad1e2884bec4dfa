"""Base checkpoints become Clover checkpoints; their clean rows stay bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from clover_engine.checkpoint.convert import convert, main
from clover_engine.checkpoint.weights import load_model
from clover_engine.errors import CheckpointError
from clover_engine.model import Cache, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
Lively = Callable[..., None]
NEW = (".history.", ".conv1d.right", "mask_embedding")

QWEN3_5: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "tie_word_embeddings": False,
}
QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "tie_word_embeddings": True,
}
FAMILIES = {
    "qwen3_5": QWEN3_5,
    "qwen3_5_moe": QWEN3_5 | EXPERTS | {"model_type": "qwen3_5_moe_text"},
    "qwen3": QWEN3,
}
TOKENIZER = '{"model": {"vocab": {"ä": 0}}}\n'


def base(directory: Path, config: dict[str, Any], dtype: torch.dtype = torch.float32) -> Path:
    """A checkpoint in Hugging Face's layout, two files, random weights, A_log in float32."""
    from clover_engine.model import Clover

    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        shapes = {n: t.shape for n, t in Clover(CloverConfig.from_hf(config)).state_dict().items()}
    tensors = {
        name: torch.randn(shape, generator=generator).to(
            torch.float32 if name.endswith("A_log") else dtype
        )
        for name, shape in shapes.items()
        if not any(part in name for part in NEW)
        and not (config["tie_word_embeddings"] and name == "lm_head.weight")
    }
    directory.mkdir()
    where = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for part in set(where.values()):
        save_file({n: t for n, t in tensors.items() if where[n] == part}, directory / part)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(TOKENIZER, encoding="utf-8")
    return directory


def everything(directory: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in directory.glob("*.safetensors"):
        tensors |= load_file(path)
    return tensors


def logits(directory: Path, dtype: torch.dtype) -> Tensor:
    """Clean rows uncached, then cached."""
    model = load_model(directory, dtype)
    ids = torch.randint(0, 32, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        cache = Cache(model.config)
        parts = [model(ids)[0]]
        for at in range(0, 30, 6):
            parts.append(model(ids[:, at : at + 6], cache=cache)[0])
        return model.head(torch.cat(parts, dim=1))


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_clean_rows_stay_bit_for_bit(family: str, stored: torch.dtype, tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", FAMILIES[family], stored), tmp_path / "clover"
    convert(source, target)
    before, after = everything(source), everything(target)
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert torch.equal(after[name], tensor), name
    assert all(any(part in name for part in NEW) for name in after.keys() - before.keys())
    for dtype in (torch.float32, torch.bfloat16):
        assert torch.equal(logits(source, dtype), logits(target, dtype))


def test_the_config_is_clovers_own(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", QWEN3_5), tmp_path / "clover"
    convert(source, target)
    raw = json.loads((target / "config.json").read_text())
    assert raw["model_type"] == "clover"
    assert raw["base_model_type"] == "qwen3_5"
    assert CloverConfig.load(target) == CloverConfig.load(source).with_(mask_embedding=True)
    assert (target / "tokenizer.json").read_text(encoding="utf-8") == TOKENIZER
    assert not list(target.glob("*.partial"))


def test_the_mask_starts_at_the_mean_of_all_tokens(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", QWEN3, torch.bfloat16), tmp_path / "clover"
    convert(source, target)
    model = load_model(target)
    mean = model.model.embed_tokens.weight.detach().mean(dim=0)
    assert float((model.model.mask_embedding.detach() - mean).abs().max()) < 1e-6
    assert float(mean.abs().max()) > 0.1
    assert model.mask_id == -1


def test_a_mask_token_of_the_vocabulary_is_used(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", QWEN3_5), tmp_path / "clover"
    convert(source, target, mask_token=7)
    model = load_model(target)
    assert model.mask_id == model.config.mask_token_id == 7
    assert not model.config.mask_embedding
    assert "model.mask_embedding" not in everything(target)


def test_block_rows_start_neutral(reference: ModuleType, tmp_path: Path) -> None:
    """As in a model that has no such terms, with the mean of the embeddings for [MASK]."""
    source, target = base(tmp_path / "base", QWEN3_5), tmp_path / "clover"
    convert(source, target)
    model = load_model(target, torch.float64)
    for layer in (0, 2):
        scale = model.state_dict()[f"model.layers.{layer}.linear_attn.history.scale"]
        assert torch.equal(scale, torch.full((2,), math.sqrt(4)))
    weights = {n: t.double().numpy() for n, t in everything(source).items()}
    weights["model.mask_embedding"] = everything(target)["model.mask_embedding"].double().numpy()
    tokens, block = [3, 1, 4, 1, 5], [9, -1, -1, 6]
    with torch.no_grad():
        _, got = model(torch.tensor([tokens]), torch.tensor([[block]]))
    _, wanted = reference.run(model.config, weights, tokens, [(5, block)])
    for row, expected in zip(got[0, 0], wanted[0], strict=True):
        assert abs(row.numpy() - expected).max() <= 1e-9


def test_shards_stay_below_the_limit(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", FAMILIES["qwen3_5_moe"]), tmp_path / "clover"
    convert(source, target, shard_bytes=4000)
    shards = list(target.glob("*.safetensors"))
    assert len(shards) > 5
    for path in shards:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
        assert len(names) == 1 or path.stat().st_size < 6000
    assert torch.equal(logits(source, torch.float32), logits(target, torch.float32))


@torch.no_grad()
def test_fused_projections_and_separate_experts_of_qwen3_next(
    lively: Lively, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    values = {k: v for k, v in (QWEN3_5 | EXPERTS).items() if k != "model_type"}
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**values)).eval()
    lively(model)
    source, target = tmp_path / "base", tmp_path / "clover"
    model.save_pretrained(source, max_shard_size="5KB")
    (source / "tokenizer.json").write_text(TOKENIZER, encoding="utf-8")
    convert(source, target)
    assert "model.layers.0.mlp.experts.gate_up_proj" in everything(target)
    assert torch.equal(logits(source, torch.float32), logits(target, torch.float32))
    ids = torch.arange(12)[None]
    ours = load_model(target)
    assert float((ours.head(ours(ids)[0]) - model(ids).logits).abs().max()) <= 1e-4


# ---- what is refused --------------------------------------------------------------------------


def refused(source: Path, target: Path, *parts: str, **more: Any) -> None:
    with pytest.raises(CheckpointError) as caught:
        convert(source, target, **more)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_a_clover_checkpoint_is_refused(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", QWEN3_5), tmp_path / "clover"
    convert(source, target)
    refused(target, tmp_path / "again", "already")
    assert not (tmp_path / "again" / "config.json").exists()


def test_a_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    source = base(tmp_path / "base", QWEN3_5)
    before = {path: path.read_bytes() for path in source.iterdir()}
    refused(source, source, "already")
    assert before == {path: path.read_bytes() for path in source.iterdir()}


def test_a_mask_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    source = base(tmp_path / "base", QWEN3)
    refused(source, tmp_path / "clover", "mask_token_id", mask_token=32)
    refused(source, tmp_path / "clover", "mask_token_id", mask_token=-1)
    assert not (tmp_path / "clover").exists()


def test_a_missing_tokenizer_is_refused(tmp_path: Path) -> None:
    source = base(tmp_path / "base", QWEN3)
    (source / "tokenizer.json").unlink()
    refused(source, tmp_path / "clover", "tokenizer.json is missing")


def test_after_a_damaged_source_the_target_can_be_used_again(tmp_path: Path) -> None:
    source, target = base(tmp_path / "base", QWEN3_5), tmp_path / "clover"
    part = source / "part-1.safetensors"
    whole = load_file(part)
    lost = next(iter(whole))
    save_file({n: t for n, t in whole.items() if n != lost}, part)
    refused(source, target, "lacks 1 tensor", lost)
    part.write_bytes(part.read_bytes()[:-7])
    refused(source, target, "part-1.safetensors is truncated or corrupt")
    assert not (target / "config.json").exists()
    save_file(whole, part)
    convert(source, target)
    assert torch.equal(logits(source, torch.float32), logits(target, torch.float32))


# ---- the command ------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = base(tmp_path / "base", QWEN3), tmp_path / "clover"
    assert main([str(source), str(target), "--mask-token", "3"]) == 0
    assert load_model(target).mask_id == 3
    assert str(target) in capsys.readouterr().out
    assert main([str(source), str(target)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("convert: ") and told.err.count("\n") == 1
