"""Everything that claims to be an engine, ready to be asked."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.serving.harness import Server, missing

from clover_engine.api import Engine
from clover_engine.clients.llamacpp import LlamaCppEngine
from clover_engine.clients.openai import OpenAIEngine
from clover_engine.clients.sglang import SGLangEngine
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.fakes import FakeEngine
from clover_engine.testing.server import FakeServer
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine

LONG = "word " * 3000
STEP_S = 0.01
"""Pace of the fakes that are slow: a token of `LONG` each."""


@dataclass
class Subject:
    """One engine under test, and what it can do."""

    engine: Engine
    fresh: Callable[[], Engine]
    """Another one over the same model, for the test to close."""
    slow: Engine
    """One that takes seconds for hundreds of tokens (at a high temperature)."""
    can_score: bool = True
    can_cloze: bool = True
    has_seeds: bool = True
    """The same seed gives the same text, at any temperature."""
    has_template: bool = True
    """A model without a chat template cannot converse."""
    answers: bool = True
    """It says something: a model with random weights may begin with the end of the hole."""


Making = Callable[[Path], AbstractContextManager[Subject]]


@contextlib.contextmanager
def fake(folder: Path) -> Iterator[Subject]:
    def fresh() -> FakeEngine:
        return FakeEngine(infills=["return a + b\n    done"])

    yield Subject(fresh(), fresh, FakeEngine(infills=[LONG], step_s=STEP_S))


@contextlib.contextmanager
def worker(folder: Path) -> Iterator[Subject]:
    """The embedded engine's client with a fake model behind the real protocol."""

    def command(**options: object) -> list[str]:
        return [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(options)]

    def fresh() -> LocalEngine:
        return LocalEngine(command=command(infills=["return a + b\n    done"]))

    with fresh() as engine, LocalEngine(command=command(infills=[LONG], step_s=STEP_S)) as slow:
        slow.health(start=True)
        yield Subject(engine, fresh, slow, has_template=False)


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Subject]:
    """The shipped model."""
    with LocalEngine(threads=1) as engine:
        engine.health(start=True)
        yield Subject(engine, lambda: LocalEngine(threads=1), engine, has_template=False)


@contextlib.contextmanager
def in_process(folder: Path) -> Iterator[Subject]:
    """The shipped model in this process, as `clover_engine.load` gives it."""
    from clover_engine.inprocess.conversation import InProcessEngine

    def fresh() -> InProcessEngine:
        return InProcessEngine.load(DEFAULT_CHECKPOINT, 1)

    engine = fresh()
    yield Subject(engine, fresh, engine, has_template=False)
    engine.close()


@contextlib.contextmanager
def conversing(folder: Path) -> Iterator[Subject]:
    """A tiny model with a chat template in this process."""
    from tiny_chat import write_checkpoint

    from clover_engine.inprocess.conversation import InProcessEngine

    checkpoint = write_checkpoint(folder / "tiny-chat", holes=True)

    def fresh() -> InProcessEngine:
        return InProcessEngine.load(checkpoint, 1)

    engine = fresh()
    yield Subject(engine, fresh, engine, answers=False)
    engine.close()


@contextlib.contextmanager
def sglang_fake(folder: Path, *, is_diffusion: bool = False) -> Iterator[Subject]:
    """The client of SGLang, and a fake server over real sockets."""
    model = FakeModel(["return a + b\n    done", "a"], is_diffusion=is_diffusion)
    scores = not is_diffusion
    with (
        FakeServer(model) as server,
        FakeServer(FakeModel([LONG], is_diffusion=is_diffusion), step_s=STEP_S) as slow_server,
        SGLangEngine(server.url) as engine,
        SGLangEngine(slow_server.url) as slow,
    ):
        yield Subject(
            engine, lambda: SGLangEngine(server.url), slow, can_score=scores, can_cloze=scores
        )


@contextlib.contextmanager
def sglang_fake_diffusion(folder: Path) -> Iterator[Subject]:
    with sglang_fake(folder, is_diffusion=True) as subject:
        yield subject


@contextlib.contextmanager
def openai_fake(folder: Path) -> Iterator[Subject]:
    """The client of OpenAI's interface, and a fake server over real sockets."""
    with (
        FakeServer(FakeModel(["return a + b\n    done", "a"])) as server,
        FakeServer(FakeModel([LONG]), step_s=STEP_S) as slow_server,
        OpenAIEngine(server.url) as engine,
        OpenAIEngine(f"{slow_server.url}/v1") as slow,
    ):
        yield Subject(
            engine, lambda: OpenAIEngine(server.url), slow, can_score=False, can_cloze=False
        )


@contextlib.contextmanager
def sglang_real(server: AbstractContextManager[Server], has_scores: bool) -> Iterator[Subject]:
    """A real server; its tiny model has random weights."""
    with server as started:

        def fresh() -> SGLangEngine:
            return SGLangEngine(started.url, max_prompt_chars=1200)  # a CPU reads slowly

        with fresh() as engine:
            yield Subject(
                engine,
                fresh,
                engine,
                can_score=has_scores,
                can_cloze=has_scores,
                has_seeds=False,
                answers=False,
            )


def real_sglang() -> None:
    """Skips what needs SGLang where it is not installed."""
    if reason := missing():
        pytest.skip(reason)


@contextlib.contextmanager
def sglang_sdar(folder: Path) -> Iterator[Subject]:
    """SGLang's own block diffusion."""
    from tests.serving import models

    real_sglang()
    server = Server(
        models.sdar(folder / "sdar"),
        folder / "server.log",
        modules=("sdar",),
        arguments=("--dllm-algorithm", "LowConfidence"),
    )
    with sglang_real(server, has_scores=False) as subject:
        yield subject


@contextlib.contextmanager
def sglang_autoregressive(folder: Path) -> Iterator[Subject]:
    """A tiny Qwen3, of which SGLang gives log-probabilities."""
    from tests.serving import models

    real_sglang()
    checkpoint = models.sdar(folder / "qwen3")  # SDAR's layers are Qwen3's
    config = json.loads((checkpoint / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]
    (checkpoint / "config.json").write_text(json.dumps(config))
    server = Server(checkpoint, folder / "server.log", modules=("qwen3",))
    with sglang_real(server, has_scores=True) as subject:
        yield subject


@contextlib.contextmanager
def sglang_clover(folder: Path) -> Iterator[Subject]:
    """A tiny Clover with its own algorithm."""
    from tests.serving import clover

    real_sglang()
    checkpoint = clover.checkpoint(folder / "clover", clover.DENSE)
    server = clover.serve(checkpoint, folder / "server.log")
    with sglang_real(server, has_scores=False) as subject:
        yield subject


@contextlib.contextmanager
def llama_server(
    folder: Path, client: type[LlamaCppEngine] | type[OpenAIEngine]
) -> Iterator[Subject]:
    """The real llama-server with a real model of 135M parameters, asked by one of the clients."""
    from tests.llamacpp import harness

    if not harness.is_there():
        pytest.skip(harness.MISSING)
    server = harness.LlamaServerProcess(folder / "server.log")
    try:
        with client(server.url) as engine:
            yield Subject(
                engine, lambda: client(server.url), engine, can_score=False, can_cloze=False
            )
    finally:
        server.close()


SUBJECTS: dict[str, Making] = {
    "fake": fake,
    "worker": worker,
    "embedded": embedded,
    "in-process": in_process,
    "in-process-tiny": conversing,
    "sglang-fake": sglang_fake,
    "sglang-fake-diffusion": sglang_fake_diffusion,
    "openai-fake": openai_fake,
    "sglang-clover": sglang_clover,
    "sglang-sdar": sglang_sdar,
    "sglang-autoregressive": sglang_autoregressive,
    "llamacpp": lambda folder: llama_server(folder, LlamaCppEngine),
    "openai-llama-server": lambda folder: llama_server(folder, OpenAIEngine),
}
"""Each is made once, in this order; only one real server is alive at a time."""
