"""What requests may ask of the served algorithm, and the check of SGLang's version. No server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.serving.rounds import SAMPLING

from clover_engine.serving import pinned
from clover_engine.serving.options import DecodingOptions, problem, server_options
from clover_engine.serving.request import PROBE, Drafting

VOCABULARY = 100


def request(custom: Any = None, ids: tuple[Any, ...] = (1, 2), **given: Any) -> SimpleNamespace:
    """The parts of an SGLang request that are looked at."""
    sampling = SimpleNamespace(**{**SAMPLING, "custom_params": custom, **given})
    return SimpleNamespace(
        vocab_size=VOCABULARY, origin_input_ids=ids, return_logprob=False, sampling_params=sampling
    )


@pytest.mark.parametrize(
    "custom",
    [
        None,
        {},
        {"mode": "ar"},
        {"mode": "threshold", "threshold": 0.5, "block_size": 4},
        {"drafts": [[0, 99], []], "banned": [5]},
        {"__sglangs_own": [1, 2]},
    ],
)
def test_good_requests_pass(custom: Any) -> None:
    assert problem(request(custom)) is None


@pytest.mark.parametrize(
    ("custom", "words"),
    [
        ({"mode": "fast"}, "mode must be one of"),
        ({"threshold": 1.5}, "threshold must be a number"),
        ({"threshold": True}, "threshold must be a number"),
        ({"block_size": 0}, "block_size must be"),
        ({"block_size": 2.0}, "block_size must be"),
        ({"drafts": [1, 2]}, "list of lists"),
        ({"drafts": [[100]]}, "0..99"),
        ({"drafts": [[-1]]}, "0..99"),
        ({"drafts": [["a"]]}, "0..99"),
        ({"banned": 3}, "list of token ids"),
        ({"banned": [True]}, "0..99"),
    ],
)
def test_bad_custom_parameters_are_refused_with_the_reason(custom: Any, words: str) -> None:
    found = problem(request(custom))
    assert found is not None and words in found


@pytest.mark.parametrize("ids", [(100,), (-1,), (1, 2**40)])
def test_ids_outside_the_vocabulary_are_refused(ids: tuple[int, ...]) -> None:
    assert "0..99" in (problem(request(ids=ids)) or "")


@pytest.mark.parametrize(
    ("name", "value"), [("regex", "a+"), ("min_new_tokens", 3), ("logit_bias", {"1": 2.0})]
)
def test_what_the_algorithm_does_not_apply_is_refused(name: str, value: Any) -> None:
    assert name in (problem(request(**{name: value})) or "")


def test_a_request_overrides_the_servers_options() -> None:
    server = server_options({"mode": "threshold", "threshold": 0.8}, 16, 0.9)
    assert server == DecodingOptions(16, 0.8, "threshold")
    own = server.for_request({"mode": "ar", "drafts": [[1, 2]], "banned": [3], "unknown": 1})
    assert own == DecodingOptions(16, 0.8, "ar", drafts=((1, 2),), banned=(3,))
    assert server.for_request({"block_size": 32}).block_size == 16
    assert server.for_request(None) is server


@pytest.mark.parametrize("config", [{"tresholds": 0.5}, {"threshold": "high"}, {"mode": 1}])
def test_bad_server_options_name_the_option(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="--dllm-algorithm-config"):
        server_options(config, 16, 0.9)


def test_drafts_stop_where_they_bring_nothing_and_are_tried_again() -> None:
    drafting = Drafting()
    for _ in range(4):
        drafting.count(drafted=True, accepted=0)
    assert not drafting.wanted
    for _ in range(PROBE):
        drafting.count(drafted=False, accepted=0)
    assert drafting.wanted


def test_nothing_is_said_to_have_moved_that_has_not() -> None:
    here = {"clover_engine.serving.pinned:problem": ("found", "changes")}
    fields = {"clover_engine.serving.options:DecodingOptions": ("mode", "drafts")}
    assert pinned.moved(here, ("clover_engine.serving.pinned:VERSION",), fields) == []
    assert pinned.problem("0.6.0", []) == ""


def test_what_moved_is_named() -> None:
    functions = {
        "clover_engine.serving.pinned:problem": ("found",),
        "clover_engine.serving.pinned:gone": (),
        "clover_engine.serving.nowhere:thing": (),
    }
    names = ("clover_engine.serving.options:DecodingOptions.nothing",)
    fields = {"clover_engine.serving.options:DecodingOptions": ("mode", "speed")}
    changes = pinned.moved(functions, names, fields)
    assert changes == [
        "clover_engine.serving.pinned.problem takes (found, changes)",
        "clover_engine.serving.pinned.gone is missing",
        "clover_engine.serving.nowhere.thing is missing",
        "clover_engine.serving.options.DecodingOptions.nothing is missing",
        "clover_engine.serving.options.DecodingOptions.speed is missing",
    ]
    line = pinned.problem("0.6.0", changes)
    assert "0.6.0" in line and "gone is missing" in line
    assert line.endswith(f"install sglang=={pinned.VERSION}") and "\n" not in line
