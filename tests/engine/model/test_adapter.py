"""Adapters of masked rows: clean rows stay the base's, drafts line up, training resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import write_gguf
from torch import Tensor

from clover_engine.checkpoint.convert import convert
from clover_engine.checkpoint.weights import load_model
from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.errors import CheckpointError
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.train.adapter import FILE, AdapterRun, Plan, Texts, block_rows, evaluate

pytestmark = pytest.mark.usefixtures("one_thread")
Lively = Callable[..., None]
PLAN = Plan(steps=30, length=48, draft=3, spacing=6, lr=0.02, warmup=2)


def config(rank: int) -> CloverConfig:
    return CloverConfig(
        vocab_size=64,
        hidden_size=32,
        layer_types=("full_attention",) * 3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        mask_embedding=True,
        adapter_rank=rank,
        block_shift=int(rank > 0),
    )


@pytest.fixture
def pair(lively: Lively) -> tuple[Clover, Clover]:
    """The base without an adapter, and the same weights with a lively one."""
    plain = Clover(config(0)).eval()
    lively(plain)
    adapted = Clover(config(4)).eval()
    missing, unexpected = adapted.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and all(name.startswith("adapter.") for name in missing)
    lively(adapted, seed=1, only="adapter")
    return plain, adapted


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 64, shape, generator=torch.Generator().manual_seed(seed))


# ---- what the adapter changes, and what not ---------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_clean_rows_stay_bit_for_bit(
    pair: tuple[Clover, Clover], cached: bool, dtype: torch.dtype
) -> None:
    block = torch.full((2, 2, 5), -1)
    found = []
    for model in (m.to(dtype) for m in pair):
        cache = Cache(model.config) if cached else None
        if cache is not None:
            model(ids(2, 9, seed=1), block, cache)
        found.append(model(ids(2, 7), block, cache))
    (clean, blocks), (other_clean, other_blocks) = found
    assert torch.equal(clean, other_clean)
    assert float((blocks - other_blocks).abs().amax(-1).min()) > 1e-3


@torch.no_grad()
def test_known_tokens_of_a_block_are_the_bases(pair: tuple[Clover, Clover]) -> None:
    plain, adapted = pair
    known = ids(1, 2, 5)
    assert torch.equal(plain(ids(1, 7), known)[1], adapted(ids(1, 7), known)[1])


@torch.no_grad()
def test_an_untrained_adapter_adds_nothing(pair: tuple[Clover, Clover]) -> None:
    plain, _ = pair
    fresh = Clover(config(4)).eval()
    fresh.load_state_dict(plain.state_dict(), strict=False)
    block = torch.full((1, 1, 5), -1)
    assert torch.equal(plain(ids(1, 7), block)[1], fresh(ids(1, 7), block)[1])


@torch.no_grad()
def test_blocks_may_begin_inside_the_cached_history(pair: tuple[Clover, Clover]) -> None:
    model = pair[1].double()
    tokens, block = ids(1, 12), torch.full((1, 3, 4), -1)
    cache = Cache(model.config)
    model(tokens[:, :9], cache=cache)
    _, got = model(tokens[:, 9:], block, cache, update=False, starts=(3, 9, 11))
    for i, start in enumerate((3, 9, 11)):
        short = Cache(model.config)
        model(tokens[:, :start], cache=short)
        _, alone = model(None, block[:, :1], short)
        assert float((got[:, i] - alone[:, 0]).abs().max()) <= 1e-10


@pytest.mark.parametrize("changes", [{"layer_types": ("linear_attention",)}, {"num_experts": 2}])
def test_other_architectures_are_refused(changes: dict[str, object]) -> None:
    sizes = {
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 1,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 8,
    }
    with pytest.raises(CheckpointError, match="adapter_rank needs dense layers"):
        config(4).with_(**{**sizes, **changes})


# ---- drafting ---------------------------------------------------------------------------------


@torch.no_grad()
def test_training_and_decoding_mean_the_same_rows(pair: tuple[Clover, Clover]) -> None:
    """What a block is trained to predict is what decoding takes it for: from the second token
    after the history on."""
    model = pair[1]
    tokens = ids(32).tolist()
    rows, judges, truth = block_rows(model, tokens, PLAN, 0)
    start = Start(Cache(model.config), torch.zeros(64))
    _, ahead = speculative._pass(model, start, tokens[:12], PLAN.draft + 1, Sampling(), Tally())
    assert ahead is not None
    block = 1  # it begins at 12
    assert float((ahead - rows[block].softmax(-1)).abs().max()) <= 1e-5
    assert truth[block].tolist() == tokens[13 : 13 + PLAN.draft]
    whole, _ = model(torch.tensor([tokens]))
    wanted = model.head(whole[0, 12 : 12 + PLAN.draft])  # row 12 predicts token 13
    assert float((judges[block] - wanted).abs().max()) <= 1e-5


@torch.no_grad()
def test_drafts_never_change_the_text(pair: tuple[Clover, Clover]) -> None:
    model = pair[1]
    for seed in range(5):
        prompt, found = ids(1, 10, seed=seed), []
        for decode in (autoregressive.decode, speculative.decode):
            cache, tally = Cache(model.config), Tally()
            hidden, _ = model(prompt, cache=cache)
            start = Start(cache, model.head(hidden[0, -1]))
            more = {"block_size": 6, "draft_threshold": 0.0} if decode is speculative.decode else {}
            out = decode(model, start, Limits(24), Sampling(), tally, **more)  # type: ignore[operator]
            found.append(out.tokens)
        assert found[0] == found[1]
        assert tally.drafted > 0


# ---- training ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    write_gguf(folder / "m.gguf")
    convert(folder / "m.gguf", folder / "clover", adapter_rank=4)
    lines = [json.dumps({"text": f"def f{i}(a):\n    return a + {i}\n" * 8}) for i in range(20)]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(checkpoint: Path, out: Path, steps: int) -> AdapterRun:
    made = AdapterRun(checkpoint / "clover", checkpoint / "docs.jsonl", out, PLAN)
    while made.step < steps:
        made._train_step()
        made.step += 1
    made.save()
    return made


def test_training_learns_and_leaves_the_base_alone(checkpoint: Path, tmp_path: Path) -> None:
    made = AdapterRun(checkpoint / "clover", checkpoint / "docs.jsonl", tmp_path, PLAN)
    before = {n: p.clone() for n, p in made.model.state_dict().items() if n not in made.trained}
    made.train()
    for name, value in before.items():
        assert torch.equal(made.model.state_dict()[name], value), name
    log = [json.loads(line) for line in (tmp_path / "adapter.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [10, 20, 30]
    assert log[-1]["loss"] < log[0]["loss"] - 0.4


def test_acceptance_is_counted_by_place(checkpoint: Path, tmp_path: Path) -> None:
    """By hand from the same rows: agreement of each place, and the lengths of agreeing runs."""
    made = AdapterRun(checkpoint / "clover", checkpoint / "docs.jsonl", tmp_path, PLAN)
    told = evaluate(made.model, made.texts, PLAN, windows=3)
    places: list[list[bool]] = []
    with torch.no_grad():
        for i in range(3):
            ids = made.texts.window(PLAN.length, Random(f"evaluate/{i}"))
            rows, judges, _ = block_rows(made.model, ids, PLAN, 0)
            places += (rows.argmax(-1) == judges.argmax(-1)).tolist()
    runs = [next((n for n, ok in enumerate(block) if not ok), len(block)) for block in places]
    assert told["blocks"] == len(places)
    assert told["accepted"] == pytest.approx(sum(runs) / len(runs), abs=1e-3)
    by_place = [sum(column) / len(column) for column in zip(*places, strict=True)]
    assert told["agreement"] == pytest.approx(by_place, abs=1e-3)


def test_a_stopped_run_goes_on_where_it_was(checkpoint: Path, tmp_path: Path) -> None:
    run(checkpoint, tmp_path / "whole", 4)
    run(checkpoint, tmp_path / "halves", 2)
    assert run(checkpoint, tmp_path / "halves", 4).step == 4
    whole, halves = (load_file(tmp_path / name / FILE) for name in ("whole", "halves"))
    assert whole.keys() == halves.keys()
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_a_conversion_takes_what_was_trained(checkpoint: Path, tmp_path: Path) -> None:
    made = run(checkpoint, tmp_path / "run", 2)
    convert(checkpoint / "m.gguf", tmp_path / "new", adapter=tmp_path / "run" / FILE)
    model = load_model(tmp_path / "new")
    assert (model.config.adapter_rank, model.config.block_shift) == (4, 1)
    for name, parameter in made.trained.items():
        assert torch.equal(model.state_dict()[name].bfloat16(), parameter.detach().bfloat16())
    convert(checkpoint / "m.gguf", tmp_path / "plain")
    with pytest.raises(CheckpointError, match="is no adapter"):
        convert(
            checkpoint / "m.gguf", tmp_path / "x", adapter=tmp_path / "plain" / "model.safetensors"
        )


def test_a_checkpoint_without_an_adapter_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    convert(checkpoint / "m.gguf", tmp_path / "plain")
    with pytest.raises(CheckpointError, match="has no adapter; .*--adapter-rank"):
        AdapterRun(tmp_path / "plain", checkpoint / "docs.jsonl", tmp_path / "out", PLAN)


def test_windows_come_whole_and_the_same_again(checkpoint: Path) -> None:
    texts = Texts(checkpoint / "docs.jsonl", Tokenizer.load(checkpoint / "clover"))
    found = [texts.window(40, Random(i)) for i in range(10)]
    assert found == [texts.window(40, Random(i)) for i in range(10)]
    assert {len(window) for window in found} == {40}
    assert len({tuple(window) for window in found}) > 5
    assert all(texts.tok.decode(window).startswith(("def", "    return")) for window in found)
