"""GGUF weights run as they are, against independent readings and transformers' Qwen2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_qwen import Quant, random_blocks, vocabulary, write_qwen

from clover_engine.checkpoint.blocks import GROUPED, values_of
from clover_engine.checkpoint.ggufread import RawTensor
from clover_engine.cpu.grouped_kernels import grouped_product
from clover_engine.cpu.grouped_layers import SAME_ROWS, quantised
from clover_engine.cpu.grouped_pack import pack_grouped
from clover_engine.cpu.grouped_step import GroupedStep
from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.decode.lookup import Lookup
from clover_engine.inprocess.opened import open_model
from clover_engine.model import Cache, Clover

pytestmark = pytest.mark.usefixtures("one_thread")
Array = npt.NDArray[Any]


def raw(kind: str, rows: int, columns: int, seed: int) -> RawTensor:
    number = getattr(Quant, kind)
    data = random_blocks(number, rows, columns, seed)
    return RawTensor("t", kind, int(number), (rows, columns), data)


@pytest.mark.parametrize("kind", GROUPED)
def test_blocks_are_read_as_the_package_gguf_reads_them(kind: str) -> None:
    tensor = raw(kind, 24, 512, 1)
    wanted = gguf.dequantize(tensor.data, getattr(Quant, kind))
    assert np.allclose(values_of(tensor), wanted, rtol=1e-6, atol=1e-7)
    assert np.array_equal(values_of(tensor, np.array([3, 3, 20])), values_of(tensor)[[3, 3, 20]])


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(GROUPED), panels=st.integers(1, 3), blocks=st.integers(1, 2),
    rows=st.integers(1, 9), seed=st.integers(0, 2**31), threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_product_is_exact_for_the_rounded_activations(
    kind: str, panels: int, blocks: int, rows: int, seed: int, threads: int
) -> None:
    """Weights of all codes, among them the extreme ones; activations of any size."""
    tensor = raw(kind, 8 * panels, 256 * blocks, seed)
    rng = np.random.default_rng(seed)
    padded = np.zeros((-(-rows // 4) * 4, 256 * blocks), np.float32)
    padded[:rows] = rng.normal(size=(rows, 256 * blocks)) * 10.0 ** rng.integers(-3, 4)
    padded[0, :32] = np.where(rng.random(32) < 0.5, 1, -1)  # the greatest codes side by side
    tiles = quantised(padded)
    codes = tiles[..., :128].view(np.int8).reshape(*tiles.shape[:2], 8, 4, 4)
    codes = codes.transpose(0, 3, 1, 2, 4).reshape(len(padded), -1, 32)
    steps = tiles.view(np.float32)[..., 32:36].transpose(0, 2, 1).reshape(len(padded), -1)
    rounded = (codes * steps[..., None]).reshape(padded.shape)
    assert np.abs(rounded - padded).max() <= 0.5001 * steps.max()
    matrix = pack_grouped(tensor, threads)
    out = np.ones((len(padded), 8 * panels + 8), np.float32)
    grouped_product(matrix.kind, matrix.codes, matrix.scales, tiles, rows, 0, panels, out, 8)
    wanted = rounded.astype(np.float64) @ values_of(tensor).astype(np.float64).T + 1
    scale = np.abs(rounded).astype(np.float64) @ np.abs(values_of(tensor)).astype(np.float64).T
    assert (np.abs(out[:rows, 8:] - wanted[:rows]) <= 4e-6 * scale[:rows] + 1e-6).all()
    assert (out[:rows, :8] == 1).all()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen") / "tiny.gguf"
    write_qwen(path)
    return path


@pytest.fixture(scope="module")
def packed(file: Path) -> Clover:
    model = open_model(file).model
    assert isinstance(model.fused, GroupedStep)
    return model


@pytest.fixture(scope="module")
def dense(file: Path) -> Clover:
    return open_model(file, packed=False).model


def ids(count: int, seed: int = 0, batch: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, len(vocabulary()), (batch, count), generator=generator)


@torch.inference_mode()
def test_unrounded_rows_are_those_of_transformers(file: Path, dense: Clover) -> None:
    """transformers' Qwen2 with weights that the package gguf dequantises."""
    transformers = pytest.importorskip("transformers")
    reader = gguf.GGUFReader(file)
    config = transformers.Qwen2Config(
        vocab_size=len(vocabulary()), hidden_size=256, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=512,
        rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = transformers.Qwen2ForCausalLM(config).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    state = {}
    for name in theirs.state_dict():
        stem, _, end = name.rpartition(".")
        found = next(t for t in reader.tensors if t.name == f"{names.get_name(stem)}.{end}")
        state[name] = torch.tensor(gguf.dequantize(found.data, found.tensor_type))
    theirs.load_state_dict(state)
    tokens = ids(60, batch=2)
    wanted = theirs(tokens).logits
    assert float((dense.head(dense(tokens)[0]) - wanted).abs().max()) <= 1e-3
    assert float(wanted.std()) > 0.5


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 2, 3, 5, SAME_ROWS, SAME_ROWS + 30])
def test_packed_rows_differ_by_the_rounding_of_activations(
    packed: Clover, dense: Clover, rows: int
) -> None:
    """Hidden states and what stays in the cache, from an empty one and a filled one on."""
    caches = [Cache(model.config) for model in (packed, dense)]
    for part in (ids(rows, 1), ids(7, 2), ids(rows, 3)):
        got, wanted = (
            m.head(m(part, cache=c)[0]) for m, c in zip((packed, dense), caches, strict=True)
        )
        assert float((got - wanted).std() / wanted.std()) <= 0.03
    for own, other in zip(caches[0].layers, caches[1].layers, strict=True):
        for kept, other_kept in zip(own.view(), other.view(), strict=True):  # type: ignore[union-attr]
            assert float((kept - other_kept).std() / other_kept.std()) <= 0.03


@torch.inference_mode()
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_the_same_to_the_bit_alone_and_together(
    file: Path, packed: Clover, threads: int
) -> None:
    """Passes of any number of rows, after a rolled back one as well, on several threads too."""
    packed = packed if threads == 1 else open_model(file, threads).model
    tokens = ids(SAME_ROWS + 40, 5)
    alone, together = Cache(packed.config), Cache(packed.config)
    packed(tokens[:, :40], cache=alone)
    packed(tokens[:, :40], cache=together)
    rows = [packed(tokens[:, at : at + 1], cache=alone)[0] for at in range(40, 40 + SAME_ROWS)]
    packed(ids(9, 6), cache=together)
    together.keep(0)
    at, found = 40, []
    for size in (1, 2, 3, 5, 7, SAME_ROWS - 18):
        found.append(packed(tokens[:, at : at + size], cache=together)[0])
        at += size
    assert torch.equal(torch.cat(rows, 1), torch.cat(found, 1))
    assert torch.equal(packed.head(torch.cat(rows, 1)), packed.head(torch.cat(found, 1)))


@torch.inference_mode()
def test_many_sequences_over_one_history(packed: Clover, dense: Clover) -> None:
    cache, other = Cache(packed.config), Cache(packed.config)
    packed(ids(20), cache=cache)
    batch = ids(6, 3, batch=5)
    got = packed(batch, cache=cache, update=False)[0]
    assert cache.length == 20
    packed(ids(20), cache=other)
    for i in range(5):
        twin = other.copy(other.snapshot())
        wanted = packed(batch[i : i + 1], cache=twin)[0][0]
        assert float((got[i] - wanted).std() / wanted.std()) <= 0.02


@torch.inference_mode()
def test_long_reads_on_several_threads_fill_the_same_cache(file: Path, packed: Clover) -> None:
    other = open_model(file, threads=2).model
    caches = Cache(packed.config), Cache(packed.config)
    tokens = ids(200, 4)
    for model, cache in zip((packed, other), caches, strict=True):
        model(tokens, cache=cache)
    one, two = (m(ids(1), cache=c)[0] for m, c in zip((packed, other), caches, strict=True))
    assert float((one - two).std() / one.std()) <= 0.03


@torch.inference_mode()
def test_drafts_change_no_token(packed: Clover) -> None:
    """Right drafts, wrong ones and half right ones give the text of decoding one by one."""
    prompt = ids(30, 8)[0].tolist()

    def start() -> Start:
        cache = Cache(packed.config)
        hidden, _ = packed(torch.tensor([prompt]), cache=cache)
        return Start(cache, packed.logits(hidden[0, -1]))

    limits, sampling = Limits(48), Sampling()
    plain = autoregressive.decode(packed, start(), limits, sampling, Tally())
    drafts = [plain.tokens, plain.tokens[:9] + [5] + plain.tokens[10:], [1, 2, 3], []]
    for draft in drafts:
        tally = Tally()
        found = speculative.decode(
            packed, start(), limits, sampling, tally, block_size=16, ride=False,
            lookup=Lookup([], prompt, [draft]),
        )  # fmt: skip
        assert found.tokens == plain.tokens
        assert found.probs == plain.probs
        if draft == plain.tokens:
            assert tally.forward_passes < 12


def test_what_cannot_be_packed_becomes_dense(tmp_path: Path) -> None:
    """A file with tied embeddings is packed, one with other kinds of weights is not."""
    write_qwen(tmp_path / "tied.gguf", tied=True)
    model = open_model(tmp_path / "tied.gguf").model
    assert isinstance(model.fused, GroupedStep)
    with torch.inference_mode():
        assert model.head(model(ids(3))[0]).shape == (1, 3, len(vocabulary()))
    with pytest.raises(ValueError, match="no masked rows"), torch.inference_mode():
        model(None, torch.full((1, 1, 4), -1))
    with pytest.raises(IndexError), torch.inference_mode():
        model(torch.tensor([[len(vocabulary())]]))
