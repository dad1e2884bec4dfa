"""Checkpoints on disk: round trips, and one plain line for everything that can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clover_engine.checkpoint.weights import load_model, save_model
from clover_engine.errors import CheckpointError
from clover_engine.model import Clover, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
Lively = Callable[..., None]
CONFIG = CloverConfig(
    vocab_size=24,
    hidden_size=8,
    layer_types=("linear_attention", "full_attention"),
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=12,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=3,
    linear_value_head_dim=4,
    mask_embedding=True,
    rope_theta=5e5,
    threshold=0.8,
    block_size=7,
)
INDEX = "model.safetensors.index.json"
ADVICE = ("fetch", "set CLOVER_CHECKPOINT", "reinstall", "use a", "supported:")
"""One of these is in every message: what to do."""


@pytest.fixture
def model(lively: Lively) -> Clover:
    torch.manual_seed(0)
    made = Clover(CONFIG).eval()
    lively(made)
    return made


@pytest.fixture
def sharded(model: Clover, tmp_path: Path) -> Path:
    """A checkpoint of many shards."""
    save_model(model, tmp_path / "sharded", shard_bytes=1000)
    return tmp_path / "sharded"


@pytest.fixture
def single(model: Clover, tmp_path: Path) -> Path:
    save_model(model, tmp_path / "single")
    return tmp_path / "single"


def assert_equal(a: Clover, b: Clover) -> None:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype
        assert torch.equal(tensor, right[name]), name


def refused(directory: Path, *parts: str) -> None:
    """`load_model` says in one line what is wrong and what to do."""
    with pytest.raises(CheckpointError) as caught:
        load_model(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert any(advice in message for advice in ADVICE), message
    for part in parts:
        assert part in message, message


# ---- round trips ------------------------------------------------------------------------------


def test_one_file_comes_back_bit_for_bit(model: Clover, single: Path) -> None:
    assert sorted(p.name for p in single.iterdir()) == ["config.json", "model.safetensors"]
    loaded = load_model(single)
    assert loaded.config == model.config == CONFIG
    assert not loaded.training
    assert_equal(loaded, model)


def test_shards_come_back_bit_for_bit(model: Clover, sharded: Path) -> None:
    shards = sorted(sharded.glob("*.safetensors"))
    assert len(shards) > 3
    assert [p.name for p in shards][0] == f"model-00001-of-{len(shards):05d}.safetensors"
    where = json.loads((sharded / INDEX).read_text())["weight_map"]
    for path in shards:
        tensors = load_file(path)
        size = sum(t.nelement() * t.element_size() for t in tensors.values())
        assert size <= 1000 or len(tensors) == 1
        assert {name for name, file in where.items() if file == path.name} == tensors.keys()
    assert not list(sharded.glob("*.partial"))
    assert_equal(load_model(sharded), model)


def test_bfloat16_comes_back_as_saved(model: Clover, tmp_path: Path) -> None:
    save_model(model, tmp_path, torch.bfloat16)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    assert_equal(load_model(tmp_path, torch.bfloat16), model.to(torch.bfloat16))
    assert_equal(load_model(tmp_path), model.to(torch.float32))


def test_a_tied_head_is_saved_once_and_tied_again(model: Clover, single: Path) -> None:
    assert "lm_head.weight" not in load_file(single / "model.safetensors")
    loaded = load_model(single)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_an_own_head_comes_back(tmp_path: Path) -> None:
    model = Clover(CONFIG.with_(tie_word_embeddings=False))
    save_model(model, tmp_path)
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    assert_equal(load_model(tmp_path), model)


def test_saving_again_replaces_whatever_was_there(
    model: Clover, lively: Lively, tmp_path: Path
) -> None:
    for seed, shard_bytes in enumerate([500, 10**6, 2000, 10**6]):
        lively(model, seed)
        save_model(model, tmp_path, shard_bytes=shard_bytes)
        assert (tmp_path / INDEX).is_file() == (shard_bytes < 10**6)
        assert (tmp_path / "model.safetensors").is_file() == (shard_bytes == 10**6)
        assert_equal(load_model(tmp_path), model)


def test_a_save_that_fails_leaves_the_old_checkpoint(
    model: Clover, single: Path, lively: Lively, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_model(single)
    lively(model, 1)
    calls: list[str] = []

    def full(tensors: Any, path: str, **_: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError("no space left on device")
        save_file(tensors, path)

    monkeypatch.setattr("clover_engine.checkpoint.weights.save_file", full)
    with pytest.raises(OSError, match="no space"):
        save_model(model, single, shard_bytes=1000)
    assert len(calls) == 3
    assert_equal(load_model(single), before)


# ---- damage -----------------------------------------------------------------------------------


def test_no_directory_and_no_config(tmp_path: Path, single: Path) -> None:
    refused(tmp_path / "nowhere", "config.json is missing", str(tmp_path / "nowhere"))
    (single / "config.json").unlink()
    refused(single, "config.json is missing")


def test_no_weights(single: Path) -> None:
    (single / "model.safetensors").unlink()
    refused(single, "model.safetensors is missing")


def test_a_shard_is_missing(sharded: Path) -> None:
    victim = sorted(sharded.glob("*.safetensors"))[1]
    victim.unlink()
    refused(sharded, f"{victim.name} is missing")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file(share: float, single: Path) -> None:
    file = single / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    refused(single, "model.safetensors is truncated or corrupt")


def test_a_truncated_shard_is_named(sharded: Path) -> None:
    victim = sorted(sharded.glob("*.safetensors"))[1]
    victim.write_bytes(victim.read_bytes()[:-1])
    refused(sharded, f"{victim.name} is truncated or corrupt")


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>\n<body>404: Not Found\n</body></html>\n",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12\n",
        bytes(range(256)) * 8,
        (20).to_bytes(8, "little") + b'{"a": 1,\n "b":\n [2]}',
        b"\xff" * 64,
    ],
    ids=["html", "lfs pointer", "bytes", "another header", "huge header"],
)
def test_garbage(garbage: bytes, single: Path) -> None:
    (single / "model.safetensors").write_bytes(garbage)
    refused(single, "model.safetensors is truncated or corrupt")


@pytest.mark.parametrize(
    "index", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": []}', "\xff", "null"]
)
def test_a_bad_index(index: str, sharded: Path) -> None:
    (sharded / INDEX).write_bytes(index.encode("latin-1"))
    refused(sharded, INDEX, "cannot be read")


def change(directory: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(directory / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")


def test_a_missing_tensor(single: Path) -> None:
    change(single, lambda t: t.pop("model.layers.1.self_attn.k_proj.weight"))
    refused(single, "lacks 1 tensor", "model.layers.1.self_attn.k_proj.weight")


@pytest.mark.parametrize(
    "name", ["model.layers.0.linear_attn.history.score.weight", "model.mask_embedding"]
)
def test_a_missing_new_parameter_among_others(name: str, single: Path) -> None:
    """A base checkpoint has none of them; one that lacks some is damaged."""
    change(single, lambda t: t.pop(name))
    refused(single, "lacks 1 tensor", name)


def test_a_tensor_too_many(single: Path) -> None:
    name = "model.layers.1.mlp.down_proj.bias"
    change(single, lambda t: t.update({name: torch.zeros(8)}))
    refused(single, name, "does not use")


def test_a_head_beside_tied_embeddings_is_left(model: Clover, single: Path) -> None:
    change(single, lambda t: t.update({"lm_head.weight": torch.zeros(24, 8)}))
    assert_equal(load_model(single), model)


def test_a_wrong_shape(single: Path) -> None:
    change(single, lambda t: t.update({"model.norm.weight": torch.zeros(9)}))
    refused(single, "model.norm.weight", "[9]", "[8]")


def test_a_config_of_another_model(single: Path) -> None:
    (single / "config.json").write_text(json.dumps(CONFIG.with_(hidden_size=16).to_json()))
    refused(single, "do not belong together")


# ---- config.json ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "not json\nat all", '{"a": 1\n"b": 2}', "\xff\xfe"])
def test_a_config_that_is_not_json(text: str, single: Path) -> None:
    (single / "config.json").write_bytes(text.encode("latin-1"))
    refused(single, "config.json cannot be read")


@pytest.mark.parametrize("text", ["[]", "3", "null", '"clover"'])
def test_a_config_that_is_no_object(text: str, single: Path) -> None:
    (single / "config.json").write_text(text)
    refused(single, "config.json is no JSON object")


@pytest.mark.parametrize("kind", ["gpt2", "mamba2", "", None, 5])
def test_an_unknown_architecture(kind: object, single: Path) -> None:
    (single / "config.json").write_text(json.dumps(CONFIG.to_json() | {"model_type": kind}))
    refused(single, "unknown architecture", "qwen3_5_moe")


BAD_VALUES: list[tuple[str, object]] = [
    ("hidden_size", "8"),
    ("hidden_size", 8.5),
    ("hidden_size", 0),
    ("vocab_size", -1),
    ("vocab_size", None),
    ("layer_types", []),
    ("layer_types", ["mamba"]),
    ("layer_types", None),
    ("num_attention_heads", 0),
    ("num_key_value_heads", 0),
    ("num_key_value_heads", 3),
    ("head_dim", 0),
    ("partial_rotary_factor", 0.25),
    ("partial_rotary_factor", 2.0),
    ("rope_theta", "big"),
    ("intermediate_size", 0),
    ("linear_num_key_heads", 0),
    ("linear_num_value_heads", 0),
    ("linear_value_head_dim", 0),
    ("linear_conv_kernel_dim", 1),
    ("num_experts", 2),
    ("block_size", 33),
    ("block_size", 0),
    ("mask_token_id", 24),
    ("mask_embedding", "yes"),
    ("tie_word_embeddings", None),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=[f"{n}={v}" for n, v in BAD_VALUES])
def test_a_bad_value(name: str, value: object, single: Path) -> None:
    (single / "config.json").write_text(json.dumps(CONFIG.to_json() | {name: value}))
    refused(single)


@pytest.mark.parametrize("name", ["vocab_size", "hidden_size", "layer_types", "head_dim"])
def test_a_missing_value(name: str, single: Path) -> None:
    values = CONFIG.to_json()
    del values[name]
    (single / "config.json").write_text(json.dumps(values))
    refused(single, name)


def test_a_value_of_a_later_version_is_left(model: Clover, single: Path) -> None:
    (single / "config.json").write_text(json.dumps(CONFIG.to_json() | {"not_yet": 1}))
    assert_equal(load_model(single), model)


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 24,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": "two"}, ""),
        ({"rope_parameters": 3}, ""),
        ({"rope_theta": "x"}, ""),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}}, "linear"),
        ({"layer_types": ["sliding_attention"]}, "sliding"),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, "sliding"),
        ({"model_type": "qwen3_moe"}, "num"),
        ({"model_type": "qwen3_5"}, "linear"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"decoder_sparse_step": 2}, "dense and expert"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_a_base_config_that_we_cannot_run(changes: dict[str, Any], part: str) -> None:
    """A model that would run, but wrongly, is worse than none."""
    CloverConfig.from_hf(LLAMA)
    with pytest.raises(CheckpointError) as caught:
        CloverConfig.from_hf(LLAMA | changes)
    message = str(caught.value)
    assert "\n" not in message
    assert part in message
    assert any(advice in message for advice in ADVICE), message
