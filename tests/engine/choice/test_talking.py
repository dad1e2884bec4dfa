"""Conversations go to the engine, or to a coder model beside one that only fills holes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from clover_engine.checkpoint.catalog import OFFERED
from clover_engine.choice.engines import choose_engines
from clover_engine.choice.talking import Talking, installed_coder
from clover_engine.choice.wanted import Wanted
from clover_engine.errors import Unsupported
from clover_engine.generation import GenerateRequest, Message
from clover_engine.testing.fakes import FakeEngine, FakeTalker
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine

ASK = GenerateRequest((Message("user", "hello"),))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLOVER_CHECKPOINT", raising=False)
    return tmp_path


def install(name: str) -> None:
    """A file where the model would be."""
    OFFERED[name].path.parent.mkdir(parents=True, exist_ok=True)
    OFFERED[name].path.write_bytes(b"GGUF")


def test_an_engine_that_converses_is_asked_itself(cache: Path) -> None:
    install("coder-1.5b")
    assert Talking(FakeTalker(answers=["hi"])).generate(ASK).text == "hi"


def test_without_a_coder_model_nobody_converses(cache: Path) -> None:
    assert installed_coder() is None
    with pytest.raises(Unsupported):
        Talking(FakeEngine()).generate(ASK)


def test_the_larger_of_the_installed_coders_is_preferred(cache: Path) -> None:
    install("coder-0.5b")
    assert installed_coder() == OFFERED["coder-0.5b"].path
    install("coder-1.5b")
    assert installed_coder() == OFFERED["coder-1.5b"].path


def test_the_shipped_model_is_not_asked_where_a_coder_is_installed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coder's process is a fake here; the shipped model's would say that it fills holes."""
    install("coder-1.5b")
    nano = LocalEngine(DEFAULT_CHECKPOINT)
    fake = json.dumps({"answers": ["from the coder"]})
    worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", fake]
    monkeypatch.setenv("CLOVER_WORKER", shlex.join(worker))
    talking = Talking(nano)
    try:
        assert talking.generate(ASK).text == "from the coder"
        assert nano.health().pid is None, "the shipped model was not started"
    finally:
        talking.close()
        nano.close()


def test_whether_a_conversation_can_be_expected(cache: Path) -> None:
    engines = choose_engines(Wanted("embedded"), {})
    assert not engines.may_converse
    install("coder-0.5b")
    assert engines.may_converse
    engines.close()
    assert choose_engines(Wanted("none"), {}).conversing() is None
