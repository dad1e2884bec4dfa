"""Clover on a real SGLang: every mode answers what this project's own decoding answers.

A tiny random checkpoint shaped like clover-nano, float32, greedy; four requests at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving.clover import (
    BLOCK,
    DENSE,
    EOM,
    MASK,
    Question,
    Reference,
    check,
    checkpoint,
    prompts,
    serve,
)
from tests.serving.harness import Answer, Server, ServerFailed, request
from tests.serving.models import TOKENS

from clover_engine.api import Mode

MODES: tuple[Mode, ...] = ("ar", "threshold", "speculative")


@pytest.fixture(scope="module")
def folder(checkpoints: Path) -> Path:
    return checkpoint(checkpoints / "clover-dense", DENSE)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture(scope="module")
def server(
    sglang: None, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with serve(folder, tmp_path_factory.mktemp("clover-dense") / "server.log") as server:
        yield server


def mixed(asked: list[list[int]], count: int = 24) -> list[Question]:
    """Neighbours ask for different modes, so that one round serves all of them."""
    return [Question(p, mode, count) for p, mode in zip(asked, itertools.cycle(MODES))]


def test_self_speculation_equals_plain_decoding_here(reference: Reference) -> None:
    asked = prompts(24)
    plain = [reference.generate(p, 24, "ar") for p in asked]
    assert [reference.generate(p, 24, "speculative") for p in asked] == plain
    assert len(set(plain)) == len(asked)


@pytest.mark.parametrize("threshold", [0.0, 0.05])
def test_writing_states_while_denoising_would_be_seen(
    reference: Reference, threshold: float
) -> None:
    """What the tests below rest on: answers differ if steps write states, from the second on."""
    for prompt in prompts(6):
        right = reference.generate(prompt, 24, "threshold", threshold=threshold)
        wrong = reference.corrupted(prompt, 24, threshold)
        assert wrong != right
        if threshold == 0.0:  # every block takes one step
            assert wrong[:BLOCK] == right[:BLOCK]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_equals_in_process_decoding(
    server: Server, reference: Reference, mode: Mode
) -> None:
    check(server, reference, [Question(p, mode) for p in prompts(24)])


def test_modes_share_rounds(server: Server, reference: Reference) -> None:
    check(server, reference, mixed(prompts(12, seed=5)))


def test_requests_choose_threshold_and_block(server: Server, reference: Reference) -> None:
    chosen: list[dict[str, Any]] = [
        {"threshold": 0.0},
        {"threshold": 1.0},
        {"block_size": 1},
        {"block_size": 5, "threshold": 0.2},
    ]
    asked = zip(prompts(8, seed=6), itertools.cycle(chosen))
    check(server, reference, [Question(p, "threshold", 19, custom) for p, custom in asked])


def test_lengths_that_are_no_multiple_of_a_block(server: Server, reference: Reference) -> None:
    lengths = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK)
    asked = zip(prompts(18, seed=7), itertools.product(MODES, lengths), strict=True)
    check(server, reference, [Question(p, mode, count) for p, (mode, count) in asked])


def test_contexts_come_from_the_prefix_cache(server: Server, reference: Reference) -> None:
    """Typing on: every next prompt begins with the last one, whose state the cache has."""
    server.flush()
    first = [p for p in prompts(40, seed=8) if len(p) > 20][:9]
    assert sum(a.cached_tokens for a in check(server, reference, mixed(first))) == 0
    followed = [p + q[:7] for p, q in zip(first, reversed(first), strict=True)]
    answers = check(server, reference, mixed(followed))
    assert [a.cached_tokens for a in answers] == [len(p) for p in first]
    parted = [p[: len(p) // 2] + q[:9] for p, q in zip(followed, reversed(first), strict=True)]
    check(server, reference, mixed(parted))
    check(server, reference, mixed(followed))


def test_aborted_requests_leave_nothing_behind(server: Server, reference: Reference) -> None:
    """By name or by hanging up, in the middle of blocks and drafts, while others are served."""
    asked = [p for p in prompts(30, seed=9) if len(p) > 10]
    for mode in MODES:
        long, rids = asked[:3], [uuid.uuid4().hex for _ in range(3)]
        sampling = Question([], mode).sampling
        with contextlib.ExitStack() as stack:
            streams = []
            for prompt, rid in zip(long, rids, strict=True):
                events = server.stream("/generate", request(prompt, 300, rid, **sampling))
                streams.append(stack.enter_context(contextlib.closing(events)))
            for prompt, events in zip(long, streams, strict=True):
                got = tuple(next(itertools.islice(events, 2, None))["output_ids"])
                whole = reference.generate(prompt, 64, mode)
                assert got and got == whole[: len(got)]
            server.abort(rids[0])
            *_, last = streams[0]
            assert last["meta_info"]["finish_reason"]["type"] == "abort"
            check(server, reference, [Question(asked[4], mode)])
        check(server, reference, [Question(p + p[:5], mode) for p in long])
    check(server, reference, mixed(asked[:6]))
    server.flush()  # waits until nothing runs: no aborted request is left
    assert check(server, reference, [Question(asked[0])])[0].cached_tokens == 0


@pytest.mark.parametrize("mode", MODES)
def test_streams_grow_to_the_answer(server: Server, reference: Reference, mode: Mode) -> None:
    question = Question(prompts(1, seed=10)[0], mode)
    body = request(question.prompt, question.count, **question.sampling)
    seen = [tuple(event["output_ids"]) for event in server.stream("/generate", body)]
    assert seen[-1] == question.expected(reference)
    assert all(b[: len(a)] == a for a, b in itertools.pairwise(seen))
    assert len(set(seen)) > 1


@pytest.mark.parametrize("mode", MODES)
def test_stop_tokens_end_the_answer(server: Server, reference: Reference, mode: Mode) -> None:
    for prompt in prompts(4, seed=11):
        stop = reference.generate(prompt, 24, mode)[11]
        wanted = reference.generate(prompt, 24, mode, stops=(stop, EOM))
        sampling = Question([], mode).sampling
        answer = server.generate(prompt, 24, ignore_eos=False, stop_token_ids=[stop], **sampling)
        assert answer.finish == "stop" and answer.ids == (*wanted, stop)


def test_drafts_never_change_the_answer(server: Server, reference: Reference) -> None:
    asked = prompts(4, seed=12)
    questions: list[Question] = []
    for prompt in asked:
        right = [*reference.generate(prompt, 24, "ar")]
        wrong = [*right[:5], (right[5] + 1) % TOKENS, *right[6:]]
        for drafts in ([right], [wrong], [wrong, right], [[]]):
            questions.append(Question(prompt, custom={"drafts": drafts}))
    check(server, reference, questions)


def test_a_seed_repeats_a_sampled_answer(server: Server) -> None:
    prompt = prompts(1, seed=13)[0]

    def ask(seed: int, mode: Mode) -> Answer:
        sampling = {"temperature": 1.0, "sampling_seed": seed, **Question([], mode).sampling}
        return server.generate(prompt, 16, **sampling)

    for mode in MODES:
        assert ask(1, mode).ids == ask(1, mode).ids != ask(2, mode).ids


def test_banned_ids_and_the_mask_are_never_generated(server: Server, reference: Reference) -> None:
    prompt = prompts(1, seed=14)[0]
    for mode in MODES:
        banned = [*dict.fromkeys(reference.generate(prompt, 24, mode))][:5]
        sampling = Question([], mode, custom={"banned": banned}).sampling
        answer = server.generate(prompt, 24, **sampling)
        assert len(answer.ids) == 24 and not {*answer.ids} & {*banned, MASK}


@pytest.mark.parametrize(
    ("ids", "custom", "words"),
    [
        ([5, TOKENS], {}, "token ids"),
        ([5], {"drafts": [[TOKENS]]}, "token ids"),
        ([5], {"mode": "fast"}, "mode must be"),
    ],
)
def test_bad_requests_are_refused_and_hurt_nobody(
    server: Server, reference: Reference, ids: list[int], custom: dict[str, object], words: str
) -> None:
    with pytest.raises(ServerFailed, match=words):
        server.generate(ids, 8, custom_params=custom)
    check(server, reference, [Question(prompts(1)[0])])
