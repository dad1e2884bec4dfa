"""A hybrid model on SGLang, autoregressively, against this engine's clean rows and `transformers`.

The first rung: what later rungs build on (states per request, prefix cache, aborts) works in the
environment that the tests use, before Clover's own rows and algorithms come into it.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Sequence

import pytest
import torch
from tests.serving.greedy import Expected, Greedy
from tests.serving.harness import Server, request
from tests.serving.prompts import random_ids

NEW = 16
LENGTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 22, 30, 31, 33, 40, 48, 55, 63, 64, 65, 90)
"""Around the convolution's width and the 64 tokens of a chunk."""


@pytest.fixture(scope="module")
def ours(qwen35_server: Server) -> Greedy:
    return Greedy(qwen35_server.checkpoint)


def prompts(seed: int) -> list[list[int]]:
    return [random_ids(length, seed + length) for length in LENGTHS]


def check(server: Server, ours: Greedy, asked: Sequence[Sequence[int]]) -> int:
    """Asks four at a time and compares; returns how many tokens came from the prefix cache."""
    answers = server.generate_all(asked, NEW)
    for prompt, answer in zip(asked, answers, strict=True):
        expected = ours(prompt, NEW)
        assert expected.matches(answer.ids), f"{len(prompt)} tokens: {answer} is not {expected}"
        assert len(answer.ids) == NEW and answer.finish == "length"
    return sum(answer.cached_tokens for answer in answers)


def test_this_engine_and_transformers_agree(qwen35_server: Server, ours: Greedy) -> None:
    from transformers import Qwen3_5MoeForCausalLM

    model = Qwen3_5MoeForCausalLM.from_pretrained(qwen35_server.checkpoint).eval()
    for prompt in prompts(0)[::6]:
        out = model.generate(
            torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=None
        )
        assert ours(prompt, NEW).matches(out[0, len(prompt) :].tolist())


def test_greedy_answers_equal_this_engine(qwen35_server: Server, ours: Greedy) -> None:
    expected = [ours(prompt, NEW) for prompt in prompts(0)]
    assert len(set(expected)) == len(LENGTHS)
    assert len(set(itertools.chain(*(e.ids for e in expected)))) > 100, "always the same"
    assert sum(e.sure for e in expected) > 0.9 * NEW * len(LENGTHS), "mostly ties"
    check(qwen35_server, ours, prompts(0))


def test_shared_prefixes_come_from_the_cache(qwen35_server: Server, ours: Greedy) -> None:
    """Dialogues that go on, and requests that part from each other in the middle."""
    qwen35_server.flush()
    first = prompts(1000)[8::2]
    assert check(qwen35_server, ours, first) == 0
    followed = [p + [*ours(p, NEW).ids][:-1] + random_ids(6, len(p)) for p in first]
    assert check(qwen35_server, ours, followed) > sum(map(len, first)) // 2
    parted = [p[: len(p) // 2] + random_ids(9, len(p)) for p in followed]
    check(qwen35_server, ours, parted)
    check(qwen35_server, ours, followed)


def test_aborted_requests_leave_nothing_behind(qwen35_server: Server, ours: Greedy) -> None:
    """Aborted by name or by hanging up, in the middle of an answer; others go on meanwhile."""
    base = prompts(2000)[8::2]
    for round_ in range(2):
        long = [p + random_ids(5, round_) for p in base[:3]]
        rids = [uuid.uuid4().hex for _ in long]
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(
                    contextlib.closing(qwen35_server.stream("/generate", request(ids, 400, rid)))
                )
                for ids, rid in zip(long, rids, strict=True)
            ]
            for ids, events in zip(long, streams, strict=True):
                third = next(itertools.islice(events, 2, None))["output_ids"]
                assert len(third) >= 3 and begins(ours(ids, NEW), third)
            qwen35_server.abort(rids[0])
            *_, last = streams[0]
            assert last["meta_info"]["finish_reason"]["type"] == "abort"
            assert len(last["output_ids"]) < 400
            check(qwen35_server, ours, [base[3]])
        check(qwen35_server, ours, [p + [*ours(p, NEW).ids[:4]] for p in long])
    qwen35_server.flush()
    assert check(qwen35_server, ours, base) == 0


def begins(expected: Expected, ids: Sequence[int]) -> bool:
    """Whether these ids, of which there may be more than are expected, begin as expected."""
    return expected.matches(ids[: len(expected.ids)])


def test_streamed_text_is_the_text(qwen35_server: Server, ours: Greedy) -> None:
    prompt = random_ids(25, 7)
    *_, last = qwen35_server.stream("/generate", request(prompt, NEW))
    assert ours(prompt, NEW).matches(last["output_ids"])
    assert last["text"] == qwen35_server.generate(prompt, NEW).text != ""


def test_the_hybrid_cache_is_in_use(qwen35_server: Server) -> None:
    """The tests above say nothing about states if the server does not keep any."""
    info = qwen35_server.get("/get_server_info")
    assert info["mamba_radix_cache_strategy"] == "no_buffer" and not info["disable_radix_cache"]
    assert b"GDN kernel dispatcher" in qwen35_server.log.read_bytes()
