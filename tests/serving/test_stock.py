"""SGLang's own block diffusion on a CPU: a tiny SDAR against an independent reference.

It shows that the environment serves diffusion models as they are, which Clover's algorithms are
then held against, and which a client must get along with.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Sequence

import pytest
from tests.serving.harness import Server, request
from tests.serving.models import SDAR_BLOCK, SDAR_MASK
from tests.serving.prompts import random_ids
from tests.serving.reference_sdar import Reference

NEW = 18
LENGTHS = (*range(1, 17), 20, 31, 37, 50)
"""Shorter than a block, whole blocks, and neither."""


@pytest.fixture(scope="module")
def reference(sdar_server: Server) -> Reference:
    return Reference(sdar_server.checkpoint)


def prompts(seed: int) -> list[list[int]]:
    return [random_ids(length, seed + length) for length in LENGTHS]


def check(server: Server, reference: Reference, asked: Sequence[Sequence[int]]) -> int:
    """Asks four at a time and compares; returns how many tokens came from the prefix cache."""
    answers = server.generate_all(asked, NEW)
    for prompt, answer in zip(asked, answers, strict=True):
        assert answer.ids == reference.generate(prompt, NEW), f"a prompt of {len(prompt)} tokens"
        assert answer.finish == "length"
    return sum(answer.cached_tokens for answer in answers)


def test_answers_equal_the_reference(sdar_server: Server, reference: Reference) -> None:
    check(sdar_server, reference, prompts(0))
    tokens = sum(-(-(len(p) + NEW) // SDAR_BLOCK) * SDAR_BLOCK - len(p) for p in prompts(0))
    blocks = sum(-(-(len(p) + NEW) // SDAR_BLOCK) - len(p) // SDAR_BLOCK for p in prompts(0))
    assert blocks < reference.steps < tokens, "steps that take one token, and steps that take more"
    answers = [reference.generate(prompt, NEW) for prompt in prompts(0)]
    assert len(set(answers)) == len(LENGTHS) and SDAR_MASK not in set(itertools.chain(*answers))


def test_prefixes_come_from_the_cache_by_whole_blocks(
    sdar_server: Server, reference: Reference
) -> None:
    sdar_server.flush()
    asked = prompts(1000)[10:]
    assert check(sdar_server, reference, asked) == 0
    assert check(sdar_server, reference, asked) > 0
    longer = [prompt + random_ids(5, len(prompt)) for prompt in asked]
    cached = check(sdar_server, reference, longer)
    assert cached > 0 and cached % SDAR_BLOCK == 0


def test_aborted_requests_leave_nothing_behind(sdar_server: Server, reference: Reference) -> None:
    asked = prompts(2000)[10:]
    with contextlib.ExitStack() as stack:
        rids = [uuid.uuid4().hex for _ in asked[:3]]
        streams = [
            stack.enter_context(
                contextlib.closing(sdar_server.stream("/generate", request(ids, 400, rid)))
            )
            for ids, rid in zip(asked, rids, strict=False)
        ]
        for ids, events in zip(asked, streams, strict=False):
            got = tuple(next(e for e in events if e["output_ids"])["output_ids"])
            assert got == reference.generate(ids, len(got))
        sdar_server.abort(rids[0])
        *_, last = streams[0]
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        check(sdar_server, reference, asked[3:5])
    check(sdar_server, reference, asked)
    sdar_server.flush()


def test_health_costs_no_forward_pass(sdar_server: Server) -> None:
    """A client may ask often: nothing is generated for it."""

    def passes() -> int:
        return sdar_server.log.read_bytes().count(b"Prefill batch")

    before = passes()
    for _ in range(20):
        sdar_server.get("/health")
    assert passes() == before
    sdar_server.generate([5, 6, 7], 1)
    assert passes() > before
