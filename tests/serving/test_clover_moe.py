"""A converted Qwen3.5-MoE on a real SGLang: experts, and a mask with an embedding of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving.clover import MOE, Question, Reference, check, checkpoint, prompts, serve
from tests.serving.harness import Server, ServerFailed

from clover_engine.api import Mode


@pytest.fixture(scope="module")
def folder(checkpoints: Path) -> Path:
    return checkpoint(checkpoints / "clover-moe", MOE)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture(scope="module")
def server(
    sglang: None, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with serve(folder, tmp_path_factory.mktemp("clover-moe") / "server.log") as server:
        yield server


@pytest.mark.parametrize("mode", ["ar", "threshold", "speculative"])
def test_every_mode_equals_in_process_decoding(
    server: Server, reference: Reference, mode: Mode
) -> None:
    server.flush()
    first = prompts(20)
    check(server, reference, [Question(p, mode) for p in first])
    followed = [Question(p + p[:3], mode) for p in first[:8]]
    answers = check(server, reference, followed)
    assert [a.cached_tokens for a in answers] == [len(p) for p in first[:8]]


ODD: list[dict[str, Any]] = [
    {"stop_token_ids": list(range(3, 4000, 3)), "ignore_eos": False},
    {"stop_token_ids": [2**63], "ignore_eos": False},
    {"max_new_tokens": 0},
    {"max_new_tokens": 1, "ignore_eos": False},
    {"temperature": 1e-300, "top_p": 1e-300},
    {"temperature": 1e300},
    {"temperature": 1.0, "top_k": 3, "min_p": 0.2, "repetition_penalty": 1.05},
    {"temperature": 1.0, "repetition_penalty": 1e-300, "sampling_seed": -(2**63)},
    {"temperature": 1.0, "sampling_seed": 2**63 - 1, "top_k": 2**40},
    {"stop": ["x" * 3000, "a", "\n"]},
    {"stop_regex": "[a-z]{2}"},
]
REFUSED: list[dict[str, Any]] = [
    {"frequency_penalty": 1.0},
    {"min_new_tokens": 2},
    {"top_k": 2.5},
    {"custom_params": {"treshold": 0.3}},
    {"custom_params": {"banned": list(range(4096))}},
    {"custom_params": {"mode": "ar", "threshold": 0.3}},
]


@pytest.mark.skipif(not os.environ.get("CLOVER_LONG"), reason="minutes; CLOVER_LONG=1")
def test_no_request_ends_the_server(server: Server, reference: Reference) -> None:
    """Stop tokens in the middle of a block leave masks behind them, which are no tokens here."""
    prompt = prompts(1, seed=3)[0]
    for odd in ODD:
        for mode in ("threshold", "speculative", "ar"):
            given = {"custom_params": {"mode": mode}, **odd}
            count = given.pop("max_new_tokens", 20)
            answer = server.generate(prompt, count, **given)
            assert answer.finish in ("length", "stop")
            assert all(0 <= token < 4096 for token in answer.ids) and len(answer.ids) <= count
    for refused in REFUSED:
        with pytest.raises(ServerFailed, match="400"):
            server.generate(prompt, 8, **refused)
    check(server, reference, [Question(prompt, "threshold")])


def test_stop_tokens_end_blocks_at_every_place(server: Server, reference: Reference) -> None:
    for prompt in prompts(6, seed=5):
        whole = reference.generate(prompt, 24, "threshold")
        for place in (0, 3, 7, 12):
            stop = whole[place]
            wanted = reference.generate(prompt, 24, "threshold", stops=(stop, 2))
            answer = server.generate(
                prompt, 24, ignore_eos=False, stop_token_ids=[stop],
                custom_params={"mode": "threshold"},
            )  # fmt: skip
            assert answer.ids[: len(wanted)] == wanted and answer.finish == "stop"


def test_defaults_of_a_generation_config_are_applied(server: Server) -> None:
    """SGLang gives a chat these defaults, see `options.APPLIED`."""
    text = [5, 6, 7, 8]
    shared = {"temperature": 1.0, "sampling_seed": 4}
    plain = server.generate(text, 24, **shared)
    assert server.generate(text, 24, **shared, repetition_penalty=1.8).ids != plain.ids
    greedy = server.generate(text, 24)
    assert server.generate(text, 24, **shared, top_k=1).ids == greedy.ids
    assert server.generate(text, 24, **shared, min_p=1.0).ids == greedy.ids
