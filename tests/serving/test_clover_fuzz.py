"""No request ends the server, whatever it asks for: the algorithm over our own model, no SGLang.

An exception in a round is what would end the scheduler, and with it every other request.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.decode.chances import Markov, assert_distributed
from tests.serving.rounds import SAMPLING, Batch, Network, Tables, request

from clover_engine.decode.common import Sampling
from clover_engine.model import Clover, CloverConfig
from clover_engine.serving.options import DecodingOptions, problem

pytestmark = pytest.mark.usefixtures("one_thread")
VOCAB, EOM, MASK = 12, 2, 1
BLOCK = 8


@pytest.fixture(scope="module")
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(own_mask: bool, seed: int = 0) -> Clover:
    """With a mask embedding of its own, as conversion makes one by default, or a mask token."""
    torch.manual_seed(seed)
    mask: dict[str, Any] = {"mask_embedding": True} if own_mask else {"mask_token_id": MASK}
    config = CloverConfig(
        vocab_size=VOCAB, hidden_size=16, layer_types=("linear_attention", "full_attention"),
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24,
        linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=8, block_size=BLOCK, **mask,
    )  # fmt: skip
    network = Clover(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


MODELS = {own: [model(own, seed) for seed in range(3)] for own in (True, False)}
odd = st.sampled_from([None, True, "x", -1, 0, 1, 2.5, 1e300, float("nan"), [], {}, 2**70])
ids = st.lists(st.integers(-1, VOCAB), max_size=6)
custom = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["ar", "threshold", "speculative"]) | odd,
        "threshold": st.floats(0, 1) | odd,
        "block_size": st.integers(1, 32) | odd,
        "drafts": st.lists(ids, max_size=2) | odd,
        "banned": ids | st.just(list(range(VOCAB))) | st.just(list(range(1, VOCAB))) | odd,
        "tresholds": odd,
    },
)
sampling = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 1e308) | st.sampled_from([0.0, 1e-300, 1e39]),
        "top_p": st.floats(0, 1, exclude_min=True) | st.sampled_from([1e-300, 5e-324]),
        "top_k": st.integers(1, 2 * VOCAB) | st.sampled_from([1 << 30, 2.5]),
        "min_p": st.floats(0, 1),
        "repetition_penalty": st.floats(0, 2, exclude_min=True),
        "sampling_seed": st.integers(-(2**63), 2**63 - 1),
        "stop_token_ids": st.sets(st.integers(-5, VOCAB + 5) | st.just(2**63), max_size=4),
        "ignore_eos": st.booleans(),
        "frequency_penalty": st.sampled_from([0.0, 1.0, float("nan")]),
        "max_new_tokens": st.sampled_from([0, 1, 2, 3, BLOCK, BLOCK + 1, 30]),
    },
)


@settings(max_examples=100, deadline=None)
@given(
    own_mask=st.booleans(),
    network=st.integers(0, 2),
    asked=st.lists(
        st.tuples(
            st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5),
            sampling,
            custom | st.none(),
        ),
        min_size=1,
        max_size=3,
    ),
    leave=st.lists(st.integers(0, 4), max_size=3),
    server=st.sampled_from(["speculative", "threshold", "ar"]),
)
@torch.inference_mode()
def test_no_request_ends_the_server(
    own_mask: bool, network: int, asked: list[tuple[list[int], dict[str, Any], Any]],
    leave: list[int], server: str,
) -> None:  # fmt: skip
    """Together with others, some of which hang up in the middle of a block."""
    batch = Batch(Network(MODELS[own_mask][network]), DecodingOptions(BLOCK, 0.3, server))
    plain = request([5, 6], VOCAB, EOM, temperature=0.0, max_new_tokens=12)
    assert batch.add(plain) is None
    for prompt, given_sampling, given_custom in asked:
        options = {"max_new_tokens": 12, **given_sampling, "custom_params": given_custom}
        why = batch.add(request(prompt, VOCAB, EOM, **options))
        assert why is None or (why and "\n" not in why)
    for rounds in leave:
        for _ in range(rounds):
            batch.round()
        if len(batch.asked) > 1:
            batch.asked.popitem()
    batch.finish()
    for found in batch.asked.values():
        given_custom = found.sampling_params.custom_params or {}
        banned = {*given_custom.get("banned", [])} | (set() if own_mask else {MASK})
        assert all(0 <= token < VOCAB for token in found.output_ids)
        assert not banned & {*found.output_ids}
        json.dumps(found.answer)
    alone = Batch(Network(MODELS[own_mask][network]), DecodingOptions(BLOCK, 0.3, server))
    other = request([5, 6], VOCAB, EOM, temperature=0.0, max_new_tokens=12)
    alone.add(other)
    alone.finish()
    assert other.answer == plain.answer


@pytest.mark.parametrize("own_mask", [True, False])
@torch.inference_mode()
def test_a_block_that_ends_early_commits_no_masks(own_mask: bool) -> None:
    """Every token as the stop token, so that blocks end at each of their places."""
    ended = set()
    for network in MODELS[own_mask]:
        for stop in range(VOCAB):
            for threshold in (0.0, 0.15, 1.0):
                batch = Batch(Network(network), DecodingOptions(BLOCK, threshold, "threshold"))
                found = request([5, 6, 7], VOCAB, temperature=0.0, stop_token_ids={stop},
                                max_new_tokens=20)  # fmt: skip
                batch.add(found)
                batch.finish()
                if stop in found.output_ids:
                    assert found.output_ids[-1] == stop
                    ended.add(len(found.output_ids) % BLOCK)
    assert len(ended) > 3


@pytest.mark.parametrize("seed", range(6))
@torch.inference_mode()
def test_served_self_speculation_samples_as_plain_decoding_does(seed: int) -> None:
    shape: dict[str, Any] = [
        {}, {"top_p": 0.8}, {"temperature": 0.5}, {"top_k": 3}, {"repetition_penalty": 1.4},
        {"min_p": 0.2, "repetition_penalty": 0.8},
    ][seed]  # fmt: skip
    table = Markov(seed + 20, vocab=4, block=BLOCK)
    threshold = [0.3, 0.0, 0.45, 0.6, 0.3, 0.3][seed]
    drafts = [[0, 1, 2], [2, 2]] if seed % 2 else []

    def draw(number: int) -> list[int]:
        batch = Batch(Tables(table), DecodingOptions(BLOCK, 0.9, "speculative", threshold))
        asked = request([1], 4, max_new_tokens=3, sampling_seed=number,
                        custom_params={"drafts": drafts}, **shape)  # fmt: skip
        assert batch.add(asked) is None
        batch.finish()
        return asked.answer

    names = {"temperature": 1.0, "top_p": 1.0, "banned": None, "top_k": 0, "min_p": 0.0}
    plain = Sampling(**{**names, "repetition_penalty": 1.0, **shape})
    assert_distributed(draw, table.sequences(1, 3, plain), 400)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"temperature": float("inf")}, "temperature must be a number"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 2.5}, "top_k must be a whole number"),
        ({"max_new_tokens": 1.5}, "max_new_tokens must be a whole number"),
        ({"sampling_seed": "x"}, "sampling_seed must be a whole number"),
        ({"beam_width": 4}, "beam_width is not available"),
        ({"watermark": object()}, "watermark is not available"),
        ({"custom_params": {"treshold": 0.5}}, "unknown 'treshold'; known: mode"),
        ({"custom_params": {"banned": list(range(VOCAB))}}, "banned must leave a token"),
        ({"custom_params": {"mode": ["ar"]}}, "mode must be one of"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    asked = request([1], VOCAB, **{**SAMPLING, "temperature": 1.0})
    for name, value in given.items():
        setattr(asked.sampling_params, name, value)
    assert words in (problem(asked) or "")
