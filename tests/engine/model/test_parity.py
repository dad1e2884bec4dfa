"""Clean rows against `transformers`' own implementation of every architecture that we load."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clover_engine.checkpoint.weights import load_model
from clover_engine.model import Cache, Clover, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
transformers = pytest.importorskip("transformers")

Lively = Callable[..., None]
CLOSE = 1e-4
VOCABULARY = 96
ROWS = 83
"""More than one chunk of 64 of the delta rule."""

_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4}
_HYBRID = _SIZES | {
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
_DENSE = _SIZES | {"num_hidden_layers": 2, "num_key_value_heads": 2, "intermediate_size": 48}
_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SHARED = _MOE | {"shared_expert_intermediate_size": 24}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", _HYBRID | _SHARED),
    "qwen3_5": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", _HYBRID | {"intermediate_size": 48}),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        _HYBRID | _SHARED | {"intermediate_size": 48},
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _DENSE | {"head_dim": 16}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", _DENSE | _MOE | {"head_dim": 16}),
    "qwen3_moe, shares renormalised": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        _DENSE | _MOE | {"head_dim": 16, "norm_topk_prob": True},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _DENSE),
    "qwen2, tied": ("Qwen2ForCausalLM", "Qwen2Config", _DENSE | {"tie_word_embeddings": True}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DENSE),
    "llama, biases": ("LlamaForCausalLM", "LlamaConfig", _DENSE | {"attention_bias": True}),
}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> None:
    """No progress bars and no log; `filterwarnings = error` stays in force."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def theirs(name: str, lively: Lively, by: float = 0.1) -> Any:
    """A tiny model of `transformers` with no parameter at its initial value."""
    model_class, config_class, values = CASES[name]
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**values)
    model = getattr(transformers, model_class)(config).eval()
    before = {n: p.clone() for n, p in model.named_parameters()}
    lively(model, by=by)
    for n, p in model.named_parameters():
        assert (p != before[n]).any()
    return model


def tokens(rows: int = ROWS) -> Tensor:
    return torch.randint(0, VOCABULARY, (2, rows), generator=torch.Generator().manual_seed(1))


def cached(model: Clover, ids: Tensor, sizes: list[int]) -> Tensor:
    """Logits from passes of these sizes over one cache."""
    cache, outs, at = Cache(model.config), [], 0
    for size in sizes:
        outs.append(model.head(model(ids[:, at : at + size], cache=cache)[0]))
        at += size
    assert cache.length == at == ids.shape[1]
    return torch.cat(outs, dim=1)


def compare(model: Clover, expected: Tensor, ids: Tensor) -> None:
    assert float(expected.abs().max()) > 0.5
    rows = ids.shape[1]
    ways = {
        "uncached": model.head(model(ids)[0]),
        "token by token": cached(model, ids, [1] * rows),
        "uneven chunks": cached(model, ids, [1, 17, 1, 2, 45, rows - 66]),
    }
    for way, logits in ways.items():
        assert float((logits - expected).abs().max()) <= CLOSE, way


@pytest.mark.parametrize("name", list(CASES))
@torch.no_grad()
def test_clean_rows_equal_transformers(name: str, lively: Lively, tmp_path: Path) -> None:
    model = theirs(name, lively)
    model.save_pretrained(tmp_path)
    compare(load_model(tmp_path), model(tokens()).logits, tokens())


@pytest.mark.parametrize("name", ["qwen3_5_moe", "qwen3_next"])
@torch.no_grad()
def test_a_sharded_checkpoint_equals_transformers(
    name: str, lively: Lively, tmp_path: Path
) -> None:
    model = theirs(name, lively)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 3
    compare(load_model(tmp_path), model(tokens()).logits, tokens())


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
@torch.no_grad()
def test_the_text_part_of_a_multimodal_checkpoint_equals_transformers(
    prefix: str, lively: Lively, tmp_path: Path
) -> None:
    """Nested `text_config`, names below `language_model`, and a vision tower that we leave."""
    model = theirs("qwen3_5_moe", lively)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    renamed = {
        (name.replace("model.", prefix, 1) if name.startswith("model.") else name): tensor
        for name, tensor in load_file(file).items()
    }
    renamed["model.visual.blocks.0.attn.qkv.weight"] = torch.ones(4, 4)
    renamed["mtp.layers.0.mlp.gate.weight"] = torch.ones(4, 4)
    save_file(renamed, file)
    text = json.loads((tmp_path / "config.json").read_text())
    outer = {
        "model_type": "qwen3_5_moe",
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "tie_word_embeddings": False,
        "text_config": text | {"model_type": "qwen3_5_moe_text"},
        "vision_config": {"model_type": "qwen3_5_moe", "hidden_size": 99, "num_heads": 3},
    }
    (tmp_path / "config.json").write_text(json.dumps(outer))
    compare(load_model(tmp_path), model(tokens()).logits, tokens())


@torch.no_grad()
def test_fused_experts_equal_transformers(lively: Lively, tmp_path: Path) -> None:
    """`save_pretrained` writes experts one by one; published Qwen3.5 files have them fused."""
    model = theirs("qwen3_5_moe", lively)
    model.save_pretrained(tmp_path)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert "model.layers.0.mlp.experts.gate_up_proj" in state
    save_file(state, tmp_path / "model.safetensors")
    compare(load_model(tmp_path), model(tokens()).logits, tokens())


@torch.no_grad()
def test_bfloat16_is_as_near_to_float32_as_transformers_is(lively: Lively, tmp_path: Path) -> None:
    model = theirs("qwen3_5", lively, by=0.3)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))
    model.save_pretrained(tmp_path)
    exact = model(tokens(300)).logits
    ours = load_model(tmp_path, torch.bfloat16)
    same = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    off = (ours.head(ours(tokens(300))[0]).float() - exact).abs().mean()
    their_off = (same(tokens(300)).logits.float() - exact).abs().mean()
    assert float(off) <= 1.1 * float(their_off)


def test_rotation_keeps_its_precision_in_bfloat16() -> None:
    """Frequencies rounded to bfloat16 would be whole turns off at the end of the context."""
    config = CloverConfig(
        vocab_size=4,
        hidden_size=4,
        layer_types=("full_attention",),
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        intermediate_size=4,
        rope_theta=1e7,
    )
    model = Clover(config).to(torch.bfloat16)
    cos, sin = model.rotary.table(torch.tensor([131_071]), torch.bfloat16)
    for i in range(32):
        angle = 131_071 * 1e7 ** (-2 * i / 64)
        for column in (i, i + 32):
            assert abs(float(cos[0, column]) - math.cos(angle)) < 0.02
            assert abs(float(sin[0, column]) - math.sin(angle)) < 0.02
