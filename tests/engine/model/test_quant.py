"""Quantised weights: error bounds, packing, kernels against plain products, checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from clover_engine.checkpoint import quantize as command
from clover_engine.checkpoint.weights import load_model, save_model
from clover_engine.errors import CheckpointError
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.model.qlinear import (
    Dequantized,
    Fbgemm,
    OneDnn,
    PackedFourBits,
    QuantEmbedding,
    QuantLinear,
    product,
)
from clover_engine.model.quant import Quantization, quantize

pytestmark = pytest.mark.usefixtures("one_thread")
Lively = Callable[..., None]
ROWS8 = Quantization(8)
WAYS = [
    ROWS8,
    Quantization(8, 32),
    Quantization(4, 32),
    Quantization(4, 64, symmetric=False),
    Quantization(4, 0, symmetric=False),
]
CONFIG = CloverConfig(
    vocab_size=48,
    hidden_size=32,
    layer_types=("linear_attention", "full_attention"),
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    mask_embedding=True,
)
MIXTURE = CONFIG.with_(
    intermediate_size=0,
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- numbers ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 70),
    exponent=st.integers(-45, 38),
    kind=st.sampled_from(["normal", "zeros", "one", "positive", "outlier"]),
    seed=st.integers(0, 1000),
    how=st.builds(Quantization, st.just(4), st.sampled_from([0, 2, 6, 16, 64, 128]), st.booleans())
    | st.builds(Quantization, st.just(8), st.sampled_from([0, 2, 10, 64])),
)
def test_no_weight_moves_by_more_than_its_groups_scale_allows(
    rows: int, columns: int, exponent: int, kind: str, seed: int, how: Quantization
) -> None:
    """Any shape, whether the groups divide it or not, and any size of weights."""
    weight = randn(rows, columns, seed=seed).clamp(-3, 3)
    if kind == "zeros":
        weight.zero_()
    elif kind == "one":
        weight[1:] = 0.0
    elif kind == "positive":
        weight.abs_()
    elif kind == "outlier":
        weight[:, 0] *= 1e3
    weight *= 10.0**exponent
    weight.clamp_(-3e38, 3e38)
    packed = quantize(weight, how)
    back = packed.dequantize()
    assert back.shape == weight.shape == packed.shape
    size = packed.group_size
    scale = packed.scales.float().repeat_interleave(size, -1)[:, :columns]
    steps = 0.5 if how.symmetric else 1.0
    assert bool(((back - weight).abs() <= steps * scale * (1 + 1e-4)).all())
    greatest = weight.abs().max().item()
    levels = {8: 127, 4: 7}[how.bits] if how.symmetric else 7.5
    assert scale.max().item() <= max(1.02e-30, 1.02 * greatest / levels)
    assert bool((back[weight == 0] == 0).all())
    codes = packed.codes()
    assert int(codes.min()) >= (-127 if how.bits == 8 else 0) and int(codes.max()) <= 127
    again = quantize(back, how)  # what is quantised already stays where it is
    assert torch.allclose(again.dequantize(), back, atol=scale.max().item() * 0.51)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused(how: Quantization, bad: float) -> None:
    weight = randn(2, 3, 64)
    weight[1, 2, 5] = bad
    with pytest.raises(ValueError, match="not finite"):
        quantize(weight, how)


@pytest.mark.parametrize("how", WAYS)
def test_a_stack_is_its_matrices(how: Quantization) -> None:
    stack = randn(3, 8, 64)
    whole = quantize(stack, how)
    for i in range(3):
        assert torch.equal(whole[i].dequantize(), quantize(stack[i], how).dequantize())
        assert torch.equal(whole.dequantize()[i], whole[i].dequantize())


def test_fewer_bits_and_greater_groups_lose_more() -> None:
    weight = randn(64, 256)

    def loss(how: Quantization) -> float:
        return float((quantize(weight, how).dequantize() - weight).norm() / weight.norm())

    losses = [loss(h) for h in (ROWS8, *(Quantization(4, g, False) for g in (32, 64, 128)))]
    assert losses == sorted(losses) and losses[0] < 0.01 < losses[1] and losses[3] < 0.15
    assert loss(Quantization(4, 32, False)) < loss(Quantization(4, 32))


# ---- kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "columns", "kind"),
    [
        (ROWS8, 64, "integers"),
        (ROWS8, 37, "integers"),
        (Quantization(4, 32), 64, PackedFourBits),
        (Quantization(4, 64, False), 128, PackedFourBits),
        (Quantization(4, 64, False), 96, Dequantized),
        (Quantization(4, 16), 64, Dequantized),
        (Quantization(8, 32), 64, Dequantized),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 16, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_multiply_as_the_dequantised_weight_does(
    how: Quantization, columns: int, kind: Any, rows: int, dtype: torch.dtype
) -> None:
    packed = quantize(randn(48, columns), how)
    multiply = product(packed)
    expected = (Fbgemm, OneDnn, Dequantized) if kind == "integers" else kind
    assert isinstance(multiply, expected)
    x = randn(rows, columns, seed=1).to(dtype)
    got, wanted = multiply(x), x.double() @ packed.dequantize().double().T
    assert got.dtype == dtype and got.shape == (rows, 48)
    assert float((got.double() - wanted).norm() / wanted.norm()) < 0.02


@pytest.mark.parametrize("kind", [Fbgemm, OneDnn])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_row_of_an_integer_product_does_not_depend_on_the_others(kind: Any, data: Any) -> None:
    """What was verified beside a draft must be what decoding one by one gives."""
    columns, rows = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 20))
    multiply = kind(quantize(randn(24, columns), ROWS8))
    x = randn(rows, columns, seed=data.draw(st.integers(0, 99)))
    x *= 10.0 ** randn(rows, 1, seed=7)
    x[data.draw(st.integers(0, rows - 1))] = 0.0
    alone = torch.cat([multiply(row[None]) for row in x])
    assert torch.equal(multiply(x), alone)


def test_layers_have_the_shapes_of_those_they_replace() -> None:
    weight = randn(48, 64)
    layer = QuantLinear(quantize(weight, ROWS8))
    layer.bias = torch.nn.Parameter(randn(48, seed=2))
    x = randn(2, 3, 64, seed=1)
    with torch.no_grad():
        wanted = x @ weight.T + layer.bias
        assert layer(x).shape == (2, 3, 48)
        assert float((layer(x) - wanted).norm() / wanted.norm()) < 0.02
    embedding = QuantEmbedding(quantize(weight, ROWS8), torch.bfloat16)
    found = embedding(torch.tensor([[3, 47], [0, 3]]))
    assert found.shape == (2, 2, 64) and found.dtype == torch.bfloat16
    assert float((found[0, 1].float() - weight[47]).abs().max()) < 0.03


# ---- checkpoints --------------------------------------------------------------------------------


def lively_model(config: CloverConfig, lively: Lively) -> Clover:
    torch.manual_seed(0)
    model = Clover(config).eval()
    lively(model, by=0.1)
    return model


def logits(model: Clover) -> Tensor:
    """Of clean rows over a cache and of block rows."""
    ids = torch.arange(20)[None] * 7 % 48
    cache = Cache(model.config)
    with torch.inference_mode():
        model(ids[:, :9], cache=cache)
        clean, noisy = model(ids[:, 9:], torch.full((1, 1, 4), -1), cache)
        return model.head(torch.cat([clean[0], noisy[0, 0]]))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, lively: Lively) -> dict[str, Path]:
    """A dense and a mixture checkpoint."""
    folder = tmp_path_factory.mktemp("plain")
    for name, config in (("dense", CONFIG), ("mixture", MIXTURE)):
        save_model(lively_model(config, lively), folder / name, shard_bytes=4000)
        (folder / name / "tokenizer.json").write_text("{}")
    return {name: folder / name for name in ("dense", "mixture")}


@pytest.mark.parametrize("name", ["dense", "mixture"])
@pytest.mark.parametrize("how", WAYS)
def test_a_quantised_checkpoint_computes_nearly_the_same(
    name: str, how: Quantization, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    source = checkpoints[name]
    written = command.quantize(source, tmp_path / "q", how, shard_bytes=3000)
    assert written.tensors == written.total - 1  # a tied head is not written
    assert written.bytes < written.source_bytes * 0.75
    assert (tmp_path / "q" / "tokenizer.json").is_file()
    assert Quantization.load(tmp_path / "q") == how
    model = load_model(tmp_path / "q")
    original = load_model(source)
    assert model.parameter_count() == original.parameter_count()
    found, plain = logits(model), logits(original)
    assert float((found - plain).norm() / plain.norm()) < (0.05 if how.bits == 8 else 0.5)
    assert torch.equal(found, logits(load_model(source, quantize=how)))
    with pytest.raises(ValueError, match="cannot be saved"):
        save_model(model, tmp_path / "again")


def test_a_quantised_checkpoint_can_be_loaded_in_other_bits(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """Small on disk, fast in memory: 4 bits stored, 8-bit products."""
    command.quantize(checkpoints["mixture"], tmp_path / "q", Quantization(4, 32))
    four, eight = load_model(tmp_path / "q"), load_model(tmp_path / "q", quantize=ROWS8)
    difference = logits(four) - logits(eight)
    assert 0 < float(difference.norm() / logits(four).norm()) < 0.3
    kinds = {type(m.product) for m in eight.modules() if isinstance(m, QuantLinear)}
    assert kinds == {type(product(quantize(randn(16, 32), ROWS8)))}


def test_embeddings_may_stay(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    how = Quantization(4, 32, embeddings=False)
    command.quantize(checkpoints["dense"], tmp_path, how)
    model = load_model(tmp_path)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    own = load_model(checkpoints["dense"]).lm_head.weight
    assert torch.equal(model.lm_head.weight, own)


def test_an_own_head_is_quantised_apart(lively: Lively, tmp_path: Path) -> None:
    model = lively_model(CONFIG.with_(tie_word_embeddings=False), lively)
    save_model(model, tmp_path / "plain")
    command.quantize(tmp_path / "plain", tmp_path / "q", ROWS8)
    packed = load_model(tmp_path / "q")
    for found, plain in (
        (packed.lm_head(torch.eye(CONFIG.hidden_size)).T, model.lm_head.weight),
        (
            packed.model.embed_tokens(torch.arange(CONFIG.vocab_size)),
            model.model.embed_tokens.weight,
        ),
    ):
        step = plain.abs().amax(1, keepdim=True) / 127
        assert bool(((found - plain).abs() <= 0.5001 * step).all())


# ---- what can be wrong --------------------------------------------------------------------------


def refused(directory: Path, *parts: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_model(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert "fetch" in message or "use " in message
    for part in parts:
        assert part in message, message


@pytest.fixture
def four_bits(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    command.quantize(checkpoints["dense"], tmp_path / "q", Quantization(4, 32, symmetric=False))
    return tmp_path / "q"


def change(directory: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(directory / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")


STEM = "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize("part", ["qweight", "scales", "zeros"])
def test_a_missing_part(part: str, four_bits: Path) -> None:
    change(four_bits, lambda t: t.pop(f"{STEM}.{part}"))
    refused(four_bits, f"{STEM}.{part}", "missing")


def test_a_missing_weight(four_bits: Path) -> None:
    change(four_bits, lambda t: [t.pop(f"{STEM}.{p}") for p in ("qweight", "scales", "zeros")])
    refused(four_bits, "lacks 1 tensor", f"{STEM}.weight")


def test_a_part_of_another_shape_or_type(four_bits: Path) -> None:
    change(four_bits, lambda t: t.update({f"{STEM}.scales": torch.ones(3, dtype=torch.bfloat16)}))
    refused(four_bits, STEM, "scales", "do not belong together")
    change(four_bits, lambda t: t.update({f"{STEM}.scales": torch.ones(32, 1)}))
    refused(four_bits, STEM, "do not belong together")


@pytest.mark.parametrize(
    "value", [3, {"bits": 3}, {"bits": "4"}, {"bits": 8, "symmetric": False}, {"group_size": -2},
              {"bits": 4, "group_size": 33}, {"colour": 1}]
)  # fmt: skip
def test_a_bad_description(value: object, four_bits: Path) -> None:
    config = json.loads((four_bits / "config.json").read_text())
    (four_bits / "config.json").write_text(json.dumps(config | {"quantization": value}))
    refused(four_bits)


def test_another_description_than_the_tensors(four_bits: Path) -> None:
    config = json.loads((four_bits / "config.json").read_text())
    del config["quantization"]
    (four_bits / "config.json").write_text(json.dumps(config))
    refused(four_bits, "does not use")


def test_the_command(
    checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(checkpoints["dense"]), str(tmp_path / "q")
    assert command.main([source, target, "--bits", "4", "--group-size", "32"]) == 0
    assert "4 bits" in capsys.readouterr().out
    assert Quantization.load(tmp_path / "q") == Quantization(4, 32, symmetric=False)
    assert command.main([source, target]) == 2
    assert "has a checkpoint already" in capsys.readouterr().err
    assert command.main([target, str(tmp_path / "r")]) == 2
    assert "quantised already" in capsys.readouterr().err
    assert command.main([str(tmp_path / "nowhere"), str(tmp_path / "r")]) == 2
    assert command.main([source, str(tmp_path / "r"), "--group-size", "3"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    broken = tmp_path / "broken"
    shutil.copytree(checkpoints["dense"], broken)
    bad = next(p for p in broken.glob("*.safetensors") if f"{STEM}.weight" in load_file(p))
    tensors = load_file(bad)
    tensors[f"{STEM}.weight"][0, 0] = float("nan")
    save_file(tensors, bad)
    assert command.main([str(broken), str(tmp_path / "r")]) == 2
    assert "not finite" in (said := capsys.readouterr().err) and f"{STEM}.weight" in said
    assert not (tmp_path / "r" / "config.json").exists()
