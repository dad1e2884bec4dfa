"""Training: samples, noise, mutations, and a run that is stopped and goes on as if it was not."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.checkpoint.weights import load_model
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.train.mutate import mutate
from clover_engine.train.objective import add_noise
from clover_engine.train.run import PRESETS, Preset, Run
from clover_engine.train.samples import MIDDLE, WRONG, Documents, Mix, Sampler, related
from clover_engine.worker.local import checkpoint_path

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCES = (Path(ast.__file__), Path(json.decoder.__file__), Path(json.encoder.__file__))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of the standard library, packed as the corpus collector packs them."""
    folder = tmp_path_factory.mktemp("corpus")
    text = (checkpoint_path() / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(text)
    tok = Tokenizer.load(folder)
    for split in ("train", "val"):
        docs = [[tok.required("<doc>"), *tok.encode(p.read_text())] for p in SOURCES]
        starts = np.cumsum([0, *map(len, docs[:-1])])
        np.array(sum(docs, []), dtype="<u2").tofile(folder / f"{split}.bin")
        np.save(folder / f"{split}.idx.npy", starts)
    return folder


def sampler(corpus: Path, length: int = 192) -> Sampler:
    tok = Tokenizer.load(corpus)
    return Sampler(Documents(corpus, "train"), tok, length, Mix())


def test_samples_have_the_editor_layout(corpus: Path) -> None:
    s = sampler(corpus)
    kinds = set()
    for seed in range(12):
        batch = s.batch(4, 32, Random(seed))
        assert batch.ids.shape == batch.weights.shape == (4, 192)
        for ids, weights in zip(batch.ids.tolist(), batch.weights.tolist(), strict=True):
            hole = len(ids) - 32
            assert ids[0] == s.doc and ids[hole - 1] == s.mid
            assert ids.index(s.suf) < ids.index(s.pre) < hole
            end = ids.index(s.eom, hole)
            assert set(ids[end + 1 :]) <= {s.pad}
            assert weights[hole : end + 1] == [MIDDLE] * (end + 1 - hole)
            assert not any(weights[end + 1 :])
            before = ids[:hole]
            last_bug = max((i for i, t in enumerate(before) if t == s.bug), default=-1)
            repair = last_bug > max(i for i, t in enumerate(before[:-1]) if t != -1 and (
                t in (s.eom, s.pre)))  # fmt: skip
            kinds.add(repair)
            if repair:
                assert weights[last_bug:hole] == [WRONG] * (hole - last_bug)
    assert kinds == {True, False}


def test_related_pieces_come_from_around_the_window_and_share_names(corpus: Path) -> None:
    docs, rng = Documents(corpus, "train"), Random(4)
    for _ in range(40):
        window = docs.window(rng)
        for other in docs.around(window, rng):
            assert other.end <= window.start or other.start >= window.end or other.doc != window.doc
            assert len(docs.ids(other)) == other.end - other.start > 16
    text = "\n".join(["torn", *["alpha = beta(1)"] * 14, *["gamma()"] * 14, "torn"])
    found = related([text], "use(alpha, beta)", Random(0))
    assert found and all("alpha" in piece for piece in found)
    assert "torn" not in "".join(found)


def test_rows_with_snippets_keep_the_layout(corpus: Path) -> None:
    s = Sampler(Documents(corpus, "train"), Tokenizer.load(corpus), 192, Mix(related=1.0))
    batch = s.batch(24, 32, Random(1))
    assert sum(row.count(s.snip) > 0 for row in batch.ids.tolist()) > 12
    for row in batch.ids.tolist():
        assert len(row) == 192
        assert s.snip not in row[row.index(s.suf) :]


def test_the_same_step_gives_the_same_batch(corpus: Path) -> None:
    a = sampler(corpus).batch(3, 32, Random("1/7"))
    b = sampler(corpus).batch(3, 32, Random("1/7"))
    assert (a.ids == b.ids).all() and (a.weights == b.weights).all()


LINES = (
    "if lo < hi and self.items[i] is not None:",
    "return max(total, count + 1)",
    "result.append(f(x, y)[0])",
    "for i in range(len(values) - 1):",
    "while not queue.empty():",
)


@settings(max_examples=200, deadline=None)
@given(line=st.sampled_from(LINES), seed=st.integers(0, 10**6))
def test_mutations_change_a_line_and_only_a_little(line: str, seed: int) -> None:
    wrong = mutate(line, ["lo", "hi", "total", "count"], Random(seed))
    if wrong is None:  # no rule fitted; rare
        return
    assert wrong != line and "\n" not in wrong
    assert abs(len(wrong) - len(line)) < 40


def test_mutations_are_many() -> None:
    seen = {mutate(LINES[0], ["lo", "hi"], Random(i)) for i in range(300)}
    assert len(seen) > 60
    assert "if lo <= hi and self.items[i] is not None:" in seen


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([8, 16, 32]))
def test_noise_masks_and_complements(seed: int, size: int) -> None:
    rows = torch.randint(16, 99, (3, 128), generator=torch.Generator().manual_seed(seed))
    noise = add_noise(rows, 32, size, 3, 1, torch.Generator().manual_seed(seed))
    assert noise.masked.any(-1).all()
    assert (noise.ids == torch.where(noise.masked, 1, noise.truth)).all()
    copies = 32 // size
    assert noise.starts[:copies] == noise.starts[copies : 2 * copies] == tuple(range(96, 128, size))
    first, second = noise.masked[:, :copies], noise.masked[:, copies : 2 * copies]
    partial = ~first.all(-1)
    assert (first ^ second)[partial].all() and second[~partial].all()
    for b, start in enumerate(noise.starts):
        assert (noise.truth[:, b] == rows[:, start : start + size]).all()
        assert start % size == 0 and start >= size


def tiny(**changes: object) -> Preset:
    return replace(PRESETS["test"], **changes)  # type: ignore[arg-type]


def test_a_resumed_run_equals_an_unbroken_one(corpus: Path, tmp_path: Path) -> None:
    whole = Run(corpus, tmp_path / "whole", tiny(steps=6), "cpu")
    whole.train()
    broken = Run(corpus, tmp_path / "broken", tiny(steps=6), "cpu")
    real = broken._step

    def interrupted(step: int, batch: object) -> object:
        broken.stop = step == 2
        return real(step, batch)  # type: ignore[arg-type]

    broken._step = interrupted  # type: ignore[assignment, method-assign]
    broken.train()
    again = Run(corpus, tmp_path / "broken", tiny(steps=6), "cpu")
    assert again.step == 3
    again.train()
    for (name, a), b in zip(
        whole.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name


def test_a_short_run_learns_and_its_checkpoint_loads(corpus: Path, tmp_path: Path) -> None:
    run = Run(corpus, tmp_path, tiny(steps=40, warmup=4), "cpu")
    before = run.validate(2)
    run.train()
    after = run.validate(2)
    assert float(after.ar) < float(before.ar) - 1.0
    assert float(after.diffusion) < float(before.diffusion) - 1.0
    model = load_model(tmp_path / "checkpoint")
    assert model.config.mask_token_id == run.tok.mask
    log = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert log[0]["step"] == 0 and "val_diffusion" in log[-1]


@pytest.mark.parametrize("part", ["history_unit", "right_branch", "calibration"])
def test_ablations_take_their_part_away(corpus: Path, tmp_path: Path, part: str) -> None:
    run = Run(corpus, tmp_path, tiny(steps=3, **{part: False}), "cpu")
    run.train()
    frozen = [(n, p) for n, p in run.model.named_parameters() if not p.requires_grad]
    assert frozen
    for name, p in frozen:
        gone = -1e4 if name.endswith("score.bias") else 0.0
        assert bool((p == gone).all()), name


def test_the_h200_preset_fits_the_package() -> None:
    """bf16 weights under 24 MB, and a corpus budget of 60 MiB that the presets do not touch."""
    from clover_engine.train.run import nano_config

    tok = Tokenizer.load(checkpoint_path())
    model_bytes = 0
    with torch.device("meta"):
        from clover_engine.model import Clover

        model_bytes = 2 * Clover(nano_config(PRESETS["h200"], tok)).parameter_count()
    assert model_bytes < 24e6
