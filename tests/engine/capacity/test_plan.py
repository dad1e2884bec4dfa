"""The planner's arithmetic against real checkpoints, real caches and published sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.capacity.plan import (
    CARDS,
    CONTEXTS,
    GB,
    GEOMETRIES,
    STATE_SLOTS,
    cards_needed,
    fetch_seconds,
    find_model,
    parse_memory,
    plan,
    sglang_working_bytes,
)
from clover_engine.capacity.sizes import (
    Precision,
    active_parameters,
    distinct_experts,
    expert_bytes,
    kv_bytes_per_token,
    parameter_count,
    pass_bytes,
    state_bytes,
    stored_bytes,
    weight_bytes,
)
from clover_engine.checkpoint.quantize import quantize
from clover_engine.checkpoint.weights import save_model
from clover_engine.errors import CheckpointError, RequestError
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.model.quant import Quantization
from clover_engine.worker.local import DEFAULT_CHECKPOINT

HYBRID_MOE = CloverConfig(
    vocab_size=96,
    hidden_size=32,
    layer_types=("linear_attention", "full_attention", "linear_attention"),
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    output_gate=True,
    qk_norm=True,
    tie_word_embeddings=False,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=16,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=24,
    shared_expert_intermediate_size=16,
    mask_embedding=True,
)
DENSE = HYBRID_MOE.with_(
    num_experts=0, num_experts_per_tok=0, intermediate_size=48, tie_word_embeddings=True
)
LLAMA = CloverConfig(
    vocab_size=64,
    hidden_size=24,
    layer_types=("full_attention",) * 2,
    num_attention_heads=6,
    num_key_value_heads=3,
    head_dim=4,
    intermediate_size=40,
    attention_bias=True,
    output_bias=True,
)
ADAPTED = LLAMA.with_(adapter_rank=3, mask_embedding=True)


@pytest.mark.parametrize(
    "config", [HYBRID_MOE, DENSE, LLAMA, ADAPTED], ids=["moe", "dense", "llama", "adapted"]
)
@pytest.mark.parametrize(("bits", "dtype"), [(32, torch.float32), (16, torch.bfloat16)])
def test_weights_are_exact_to_the_byte(
    config: CloverConfig, bits: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = Clover(config)
    assert parameter_count(config) == model.parameter_count()
    save_model(model, tmp_path, dtype, shard_bytes=4096)
    planned = weight_bytes(config, Precision(bits))  # type: ignore[arg-type]
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert stored_bytes(tmp_path) == planned
    assert find_model(tmp_path).weights(None) == planned


def test_the_shipped_model_is_exact_to_the_byte() -> None:
    found = find_model(DEFAULT_CHECKPOINT)
    assert found.weights(None) == found.weights(Precision(16))
    assert found.block_rows and not found.quantised


def test_names_of_hugging_face_checkpoints_find_their_parts(tmp_path: Path) -> None:
    """The same parts under the base family's names; a vision tower does not count."""
    from safetensors.torch import load_file, save_file

    config = HYBRID_MOE.with_(mask_embedding=False)
    save_model(Clover(config), tmp_path / "ours")
    tensors = load_file(tmp_path / "ours" / "model.safetensors")
    renamed = {n.replace("model.", "model.language_model.", 1): t for n, t in tensors.items()}
    renamed["model.visual.blocks.0.mlp.up_proj.weight"] = torch.zeros(8, 8)
    renamed["mtp.layers.0.mlp.up_proj.weight"] = torch.zeros(8, 8)
    (tmp_path / "theirs").mkdir()
    save_file(renamed, tmp_path / "theirs" / "model.safetensors")
    assert stored_bytes(tmp_path / "theirs") == stored_bytes(tmp_path / "ours")


@pytest.mark.parametrize("config", [HYBRID_MOE, DENSE, LLAMA], ids=["moe", "dense", "llama"])
def test_caches_are_exact_to_the_byte(config: CloverConfig) -> None:
    """A cache of a real pass over 64 tokens, which its buffers hold without room to spare."""
    cache = Cache(config)
    with torch.no_grad():
        Clover(config).eval()(torch.zeros(1, 64, dtype=torch.long), cache=cache)
    held = sum(
        t.element_size() * t.nelement()
        for layer in cache.layers
        for t in (getattr(layer, n, None) for n in ("k", "v", "tail", "state"))
        if t is not None
    )
    assert held == 64 * kv_bytes_per_token(config, 4) + state_bytes(config, 4)


def test_published_sizes() -> None:
    clover = find_model("clover-35b-a3b")
    assert sum(clover.weights(Precision(16)).values()) == pytest.approx(69e9, rel=0.01)
    assert parameter_count(clover.config) == pytest.approx(35e9, rel=0.015)
    assert active_parameters(clover.config) == pytest.approx(3e9, rel=0.02)
    assert state_bytes(clover.config) == pytest.approx(60 * 2**20, rel=0.03)
    for name, billions in (("qwen2.5-coder-7b", 7.61), ("qwen2.5-coder-1.5b", 1.54)):
        config = find_model(name).config
        assert parameter_count(config) == pytest.approx(billions * 1e9, rel=0.003)


@pytest.mark.parametrize("config", [HYBRID_MOE, DENSE, LLAMA], ids=["moe", "dense", "llama"])
@pytest.mark.parametrize(
    "how",
    [(8, 0, True, True), (8, 32, True, False), (4, 16, False, True), (4, 128, True, False)],
)
def test_quantised_checkpoints_are_exact_to_the_byte(
    config: CloverConfig, how: tuple[int, int, bool, bool], tmp_path: Path
) -> None:
    bits, group, symmetric, embeddings = how
    save_model(Clover(config), tmp_path / "plain", torch.bfloat16)
    (tmp_path / "plain" / "tokenizer.json").write_text("{}")
    quantize(tmp_path / "plain", tmp_path / "packed", Quantization(*how))
    precision = Precision(bits, group, symmetric, embeddings)  # type: ignore[arg-type]
    assert stored_bytes(tmp_path / "packed") == weight_bytes(config, precision)
    assert find_model(tmp_path / "packed").quantised


def test_the_planners_defaults_are_the_quantisers() -> None:
    assert str(Precision(4)) == "int4, groups of 128" and str(Precision(8)) == "int8, by rows"
    experts = weight_bytes(HYBRID_MOE, Precision(4, group_size=16))["experts"]
    # [32, 24] pads to two groups of 16: 16 bytes, two scales of 2, two zero points of 1.
    assert experts == 3 * 8 * (32 * (16 + 2 * 3) + 48 * (16 + 2 * 3))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CARDS), st.sampled_from(CONTEXTS), st.sampled_from([16, 8, 4]))
def test_what_is_planned_fits_and_no_more_does(card: int, context: int, bits: int) -> None:
    model = find_model("clover-35b-a3b")
    found = plan(model, Precision(bits), card, context=context)  # type: ignore[arg-type]
    count = found.sequences(context)
    used = found.resident_bytes + found.working_bytes
    if found.fits:
        assert count >= 1
        assert used + count * found.sequence_bytes(context) <= card
        assert used + (count + 1) * found.sequence_bytes(context) > card or count == 256
    smaller = plan(model, Precision(bits), card - GB, context=context)  # type: ignore[arg-type]
    assert smaller.sequences(context) <= count
    assert smaller.expert_share <= found.expert_share


def test_experts_leave_the_card_only_where_they_must() -> None:
    model, int4 = find_model("clover-35b-a3b"), Precision(4)
    assert not plan(model, int4, 24 * GB).offloaded
    small = plan(model, int4, 16 * GB)
    assert small.fits and 0.5 < small.expert_share < 0.8
    assert small.host_bytes == small.weights["experts"]
    # One token takes 8 experts in each of 40 layers, `1 - share` of them from the host.
    one = 8 * 40 * (1 - small.expert_share) * expert_bytes(model.config, int4)
    assert small.fetched_bytes(1) == pytest.approx(one, rel=1e-6)
    assert one / 25e9 == pytest.approx(fetch_seconds(small, 1), rel=1e-6)
    assert small.fetched_bytes(16) < 16 * small.fetched_bytes(1)
    # With the embeddings alone over the card's size, nothing helps.
    tiny = plan(model, int4, 3 * GB)
    assert not tiny.fits and tiny.missing_bytes > 0 and tiny.sequences(4096) == 0


def test_distinct_experts_by_counting() -> None:
    """The expectation against 400 random draws."""
    generator = torch.Generator().manual_seed(3)
    draws = []
    for _ in range(400):
        rows = torch.rand(5, 8, generator=generator).topk(2, dim=1).indices
        draws.append(len(rows.unique()))
    mean = sum(draws) / len(draws)
    assert distinct_experts(HYBRID_MOE, 5) == pytest.approx(mean, rel=0.03)
    assert distinct_experts(HYBRID_MOE, 1) == pytest.approx(2)
    assert distinct_experts(LLAMA, 5) == 0


def test_a_pass_reads_weights_once_and_caches_for_each_sequence() -> None:
    config, precision = LLAMA, Precision(16)
    weights = sum(weight_bytes(config, precision).values())
    assert pass_bytes(config, precision, 1, 1, 0) == weights  # tied: the head is the embeddings
    more = pass_bytes(config, precision, 3, 4, 100) - weights
    assert more == 3 * 100 * kv_bytes_per_token(config)


def test_several_cards_share_the_model() -> None:
    model = find_model("clover-35b-a3b")
    one, two = (plan(model, None, 80 * GB, gpus=n) for n in (1, 2))
    assert one.precision == Precision(16)
    assert 2 * two.resident_bytes == pytest.approx(one.resident_bytes, rel=0.01)
    assert two.kv_per_token * 2 == one.kv_per_token
    # Two KV heads cannot be divided further: four cards hold copies.
    assert plan(model, None, 80 * GB, gpus=4).kv_per_token == two.kv_per_token
    assert cards_needed(model, None, 24 * GB) == 4
    assert cards_needed(model, None, 2 * GB) is None
    with pytest.raises(RequestError, match="3 cards cannot share 16 attention heads"):
        plan(model, None, 80 * GB, gpus=3)


def test_block_rows_and_slots_count_for_each_sequence() -> None:
    clover, base = find_model("clover-35b-a3b"), find_model("qwen3.6-35b-a3b")
    ours, theirs = (plan(m, None, 141 * GB, block_size=32) for m in (clover, base))
    assert "block rows" in ours.weights and "block rows" not in theirs.weights
    assert ours.logits_per_sequence == 32 * theirs.logits_per_sequence
    states = STATE_SLOTS * state_bytes(clover.config)
    assert ours.sequence_bytes(0) == states + ours.logits_per_sequence


def test_sglang_keeps_more_free_than_we_plan() -> None:
    """Its rule is for any model: 512 MiB, 1.5 MiB a prefill row, 2 a graph's sequence, and more."""
    mib = 512 + 1.5 * 2048 + 128 + 2 * 64
    assert sglang_working_bytes(16 * GB) == mib * 2**20
    assert (
        sglang_working_bytes(16 * GB)
        > plan(find_model("clover-35b-a3b"), None, 16 * GB).working_bytes
    )
    found = plan(find_model("clover-35b-a3b"), None, 141 * GB, working_bytes=10 * GB)
    assert found.working_bytes == 10 * GB


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GB", 16 * GB),
        ("16", 16 * GB),
        ("15 GiB", 15 * 2**30),
        ("40000MiB", 40000 * 2**20),
        ("1.5gb", 1_500_000_000),
        ("2T", 2000 * GB),
    ],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-4GB", "0", "16XB", "1e9", "16 GB or so"])
def test_bad_amounts_of_memory(text: str) -> None:
    with pytest.raises(RequestError, match="16GB"):
        parse_memory(text)


def test_unknown_models_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="clover-35b-a3b"):
        find_model("gpt-17")
    with pytest.raises(CheckpointError, match="config.json is missing"):
        find_model(tmp_path)
    shutil.copy(DEFAULT_CHECKPOINT / "config.json", tmp_path)
    assert find_model(tmp_path).weights(None) == find_model(DEFAULT_CHECKPOINT).weights(None)
    for content in (
        b"",
        b"\xff" * 40,
        (8).to_bytes(8, "little") + b'{"a":{}}',
        b"\x02" + b"\0" * 9,
    ):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(CheckpointError, match="fetch the checkpoint again"):
            find_model(tmp_path)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_named_models_are_complete(name: str) -> None:
    found = plan(find_model(name), Precision(4), 141 * GB)
    assert found.fits and found.sequences(CONTEXTS[0]) > found.sequences(32768) > 0
