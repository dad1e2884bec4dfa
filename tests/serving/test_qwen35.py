"""A hybrid model on SGLang, autoregressively, against this engine's clean rows and `transformers`.

The first rung: what later rungs build on (states per request, prefix cache, aborts) works in the
environment that the tests use, before Clover's own rows and algorithms come into it.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tests.serving.harness import Server, request
from tests.serving.prompts import random_ids

from clover_engine.model import Cache, load_model

NEW = 20
LENGTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 22, 30, 31, 33, 40, 48, 55, 63, 64, 65, 90)
"""Around the convolution's width and the 64 tokens of a chunk."""

Continue = Callable[[Sequence[int], int], tuple[int, ...]]


@pytest.fixture(scope="module")
def ours(qwen35_server: Server) -> Continue:
    """Greedy decoding with this engine's clean rows over the served checkpoint."""
    model = load_model(qwen35_server.checkpoint)

    @torch.no_grad()
    def decode(prompt: Sequence[int], max_new_tokens: int) -> tuple[int, ...]:
        cache, out = Cache(model.config), list[int]()
        rows = list(prompt)
        while len(out) < max_new_tokens:
            hidden, _ = model(torch.tensor([rows]), cache=cache)
            rows = [int(model.head(hidden[:, -1]).argmax())]
            out += rows
        return tuple(out)

    return decode


def prompts(seed: int) -> list[list[int]]:
    return [random_ids(length, seed + length) for length in LENGTHS]


def check(server: Server, ours: Continue, asked: Sequence[Sequence[int]]) -> int:
    """Asks four at a time and compares; returns how many tokens came from the prefix cache."""
    answers = server.generate_all(asked, NEW)
    for prompt, answer in zip(asked, answers, strict=True):
        assert answer.ids == ours(prompt, NEW), f"a prompt of {len(prompt)} tokens"
        assert answer.finish == "length"
    return sum(answer.cached_tokens for answer in answers)


def test_this_engine_and_transformers_agree(qwen35_server: Server, ours: Continue) -> None:
    from transformers import Qwen3_5MoeForCausalLM

    model = Qwen3_5MoeForCausalLM.from_pretrained(qwen35_server.checkpoint).eval()
    for prompt in prompts(0)[::6]:
        out = model.generate(
            torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=None
        )
        assert tuple(out[0, len(prompt) :].tolist()) == ours(prompt, NEW)


def test_greedy_answers_equal_this_engine(qwen35_server: Server, ours: Continue) -> None:
    answers = {ours(prompt, NEW) for prompt in prompts(0)}
    assert len(answers) == len(LENGTHS)
    assert len(set(itertools.chain(*answers))) > 100, "the model says always the same"
    check(qwen35_server, ours, prompts(0))


def test_shared_prefixes_come_from_the_cache(qwen35_server: Server, ours: Continue) -> None:
    """Dialogues that go on, and requests that part from each other in the middle."""
    qwen35_server.flush()
    first = prompts(1000)[8:]
    assert check(qwen35_server, ours, first) == 0
    followed = [p + [*ours(p, NEW)][:-1] + random_ids(6, len(p)) for p in first]
    assert check(qwen35_server, ours, followed) > sum(map(len, first)) // 2
    parted = [p[: len(p) // 2] + random_ids(9, len(p)) for p in followed]
    check(qwen35_server, ours, parted)
    check(qwen35_server, ours, followed)


def test_aborted_requests_leave_nothing_behind(qwen35_server: Server, ours: Continue) -> None:
    """Aborted by name or by hanging up, in the middle of an answer; others go on meanwhile."""
    base = prompts(2000)[8:]
    for round_ in range(3):
        long = [p + random_ids(5, round_) for p in base[:3]]
        rids = [uuid.uuid4().hex for _ in long]
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(
                    contextlib.closing(qwen35_server.stream("/generate", request(ids, 400, rid)))
                )
                for ids, rid in zip(long, rids, strict=True)
            ]
            seen = [next(itertools.islice(events, 3, None)) for events in streams]
            for ids, event in zip(long, seen, strict=True):
                got = tuple(event["output_ids"])
                assert got and got == ours(ids, len(got))
            qwen35_server.abort(rids[0])
            rest = list(streams[0])
            assert rest[-1]["meta_info"]["finish_reason"]["type"] == "abort"
            assert len(rest[-1]["output_ids"]) < 400
            check(qwen35_server, ours, [base[3]])
        check(qwen35_server, ours, [p + [*ours(p, 4)] for p in long])
    check(qwen35_server, ours, base)
    qwen35_server.flush()
    assert check(qwen35_server, ours, base[:4]) == 0


def test_streamed_text_is_the_text(qwen35_server: Server, ours: Continue) -> None:
    prompt = random_ids(25, 7)
    *_, last = qwen35_server.stream("/generate", request(prompt, NEW))
    assert tuple(last["output_ids"]) == ours(prompt, NEW)
    assert last["text"] == qwen35_server.generate(prompt, NEW).text != ""


def test_the_log_names_the_paths_taken(qwen35_server: Server) -> None:
    """The kernels of the shim served this, and SGLang's own hybrid cache."""
    log = Path(qwen35_server.log).read_text("utf-8", "replace")
    assert "GDN kernel dispatcher" in log
