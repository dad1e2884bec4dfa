"""Every option of a request has an effect that can be named, or is refused in words."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import CancelToken, InfillRequest, Snippet
from clover_engine.errors import RequestCancelled, RequestError
from clover_engine.generation import GenerateRequest, Message
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.serving import options
from clover_engine.validation import check_generate, check_request
from clover_engine.worker.local import checkpoint_path

ROOT = Path(__file__).parents[3]
PREFIX, SUFFIX = "def area(width, height):\n    return ", "\n\nprint(area(2, 3))\n"
PLAIN = InfillRequest(PREFIX, SUFFIX, max_tokens=12)
HOT = replace(PLAIN, temperature=1.3, seed=3, max_tokens=24)

EFFECTS: dict[str, tuple[InfillRequest, dict[str, Any], Callable[[Any], Any]]] = {
    "prefix": (PLAIN, {"prefix": "import os\nos.pa"}, lambda r: r.choices[0].text),
    "suffix": (PLAIN, {"suffix": "\n" + "x = 1\n" * 40}, lambda r: r.stats.prefill_tokens),
    "snippets": (PLAIN, {"snippets": (Snippet("HEIGHT = 3\n" * 9),)},
                 lambda r: r.stats.prefill_tokens),
    "original": (PLAIN, {"original": "width + height + width"}, lambda r: r.stats.prefill_tokens),
    "max_tokens": (PLAIN, {"max_tokens": 1}, lambda r: r.choices[0].text),
    "mode": (PLAIN, {"mode": "threshold"}, lambda r: r.stats.denoising_steps),
    "threshold": (replace(PLAIN, mode="threshold", threshold=1.0), {"threshold": 0.01},
                  lambda r: r.stats.denoising_steps),
    "block_size": (replace(HOT, mode="threshold", threshold=0.01), {"block_size": 2},
                   lambda r: (r.choices[0].text, r.stats.denoising_steps)),
    "temperature": (HOT, {"temperature": 0.0}, lambda r: r.choices[0].text),
    "top_p": (HOT, {"top_p": 0.01}, lambda r: r.choices[0].text),
    "seed": (HOT, {"seed": 11}, lambda r: r.choices[0].text),
    "n": (HOT, {"n": 2}, lambda r: len(r.choices)),
    "stop": (replace(PLAIN, max_tokens=40), {"stop": ("h",)}, lambda r: r.choices[0].text),
    "must_start_with": (PLAIN, {"must_start_with": "heig"}, lambda r: r.choices[0].text[:4]),
    "drafts": (HOT, {"drafts": ()}, lambda r: r.stats.drafted),
    "deadline_s": (PLAIN, {"deadline_s": 0.0}, lambda r: r),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> EmbeddedEngine:
    return EmbeddedEngine.load(checkpoint_path(), 1)


def test_the_table_has_every_option() -> None:
    assert EFFECTS.keys() == {field.name for field in fields(InfillRequest)}
    known = EFFECTS.keys() | {"messages", "max_new_tokens", "thinking"}
    assert {field.name for field in fields(GenerateRequest)} <= known


@pytest.mark.parametrize("name", EFFECTS)
def test_every_option_has_an_effect(engine: EmbeddedEngine, name: str) -> None:
    request, change, seen = EFFECTS[name]

    def ask(request: InfillRequest) -> Any:
        engine.prefix.__init__(engine.model)  # type: ignore[misc]
        try:
            return seen(engine.infill(request))
        except RequestCancelled:
            return None

    if name == "drafts":
        change = {"drafts": (engine.infill(request).choices[0].text,)}
    assert ask(request) != ask(replace(request, **change))


WRONG = st.sampled_from([None, True, "x", -1, 0, 1.5, 1e309, float("nan"), (), 2**70, b"x"])
CHANGES = st.dictionaries(
    st.sampled_from(
        ["max_tokens", "mode", "threshold", "block_size", "temperature", "top_p", "seed", "n"]
    ),
    WRONG | st.sampled_from([1, 2, 0.5, 1e-300, 1e300, 5e-324, "ar", "threshold", "speculative"]),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(change=CHANGES, cancelled=st.booleans())
def test_any_option_is_honoured_or_refused(
    engine: EmbeddedEngine, change: dict[str, Any], cancelled: bool
) -> None:
    cancel = CancelToken()
    if cancelled:
        cancel.cancel()
    request = replace(replace(PLAIN, max_tokens=3), **change)
    try:
        result = engine.infill(request, cancel)
    except RequestError as error:
        named = [name for name in change if name in str(error)]
        assert named and "\n" not in str(error)
    except RequestCancelled:
        assert cancelled
    else:
        assert len(result.choices) == request.n
    again = engine.infill(replace(PLAIN, max_tokens=3))
    assert again.choices[0].finish_reason in ("length", "eom")


@settings(max_examples=100, deadline=None)
@given(change=CHANGES)
def test_conversations_have_the_same_rules(change: dict[str, Any]) -> None:
    shared = {k: v for k, v in change.items() if k not in ("n", "max_tokens")}
    talk = GenerateRequest((Message("user", "hello"),), **shared)
    texts = []
    for check, request in (
        (check_generate, talk),
        (check_request, replace(PLAIN, **shared)),
    ):
        try:
            check(request)  # type: ignore[operator]
            texts.append("")
        except RequestError as error:
            texts.append(str(error))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("mode", ["speculative", "ar"])
def test_a_threshold_without_its_mode_is_refused(mode: Any) -> None:
    with pytest.raises(RequestError, match="threshold: mode 'threshold' alone"):
        check_request(replace(PLAIN, mode=mode, threshold=0.5))


def test_the_default_mode_is_what_the_benchmark_shows_best() -> None:
    assert InfillRequest("").mode == GenerateRequest(()).mode == "speculative"
    assert options.DecodingOptions(8, 0.5).mode == "speculative"


def test_every_sampling_parameter_of_sglang_is_accounted_for() -> None:
    places = sorted(ROOT.glob(".sglang/lib/python*/site-packages/sglang/srt/sampling"))
    if not places:
        pytest.skip("SGLang is not installed")
    tree = ast.parse((places[0] / "sampling_params.py").read_text())
    (found,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "SamplingParams"]
    names = [n.target.id for n in found.body if isinstance(n, ast.AnnAssign)]  # type: ignore[union-attr]
    ours = [*options.APPLIED, *options.READ, *options.SGLANGS, *options.REFUSED]
    assert sorted(ours) == sorted(names)
