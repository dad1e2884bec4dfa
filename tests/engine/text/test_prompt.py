"""The model's context: what is kept when not everything fits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import Snippet
from clover_engine.errors import RequestError
from clover_engine.text.prompt import CUT, GRAIN, Prompt
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.worker.local import checkpoint_path

TOK = Tokenizer.load(checkpoint_path() / "tokenizer.json")
PROMPT = Prompt(TOK, 256)
LONG = "".join(f"value_{i} = compute({i})\n" for i in range(400))
texts = st.text(st.sampled_from("ab =(\n"), max_size=900)


def parts(ids: list[int]) -> tuple[str, str, str]:
    """What stands as snippets, suffix and prefix."""
    suf, pre, mid = (ids.index(i) for i in (PROMPT.suf, PROMPT.pre, PROMPT.mid))
    return TOK.decode(ids[1:suf]), TOK.decode(ids[suf + 1 : pre]), TOK.decode(ids[pre + 1 : mid])


def test_snippets_have_their_share_even_where_the_file_would_fill_everything() -> None:
    snippets = (Snippet("def best(): pass"), Snippet("def second(): pass"))
    ids = PROMPT.context(LONG, LONG, None, snippets, 32)
    extra, after, before = parts(ids)
    assert "best" in extra and "second" in extra
    assert extra.index("second") < extra.index("best")  # the most relevant is nearest
    assert LONG.startswith(after) and LONG.endswith(before)
    assert len(TOK.encode(before)) > len(TOK.encode(after)) > 20


def test_a_short_file_leaves_the_rest_to_snippets() -> None:
    snippets = tuple(Snippet(f"def helper_{i}(argument): return argument") for i in range(12))
    few = parts(PROMPT.context(LONG, LONG, None, snippets, 32))[0].count("helper_")
    many = parts(PROMPT.context("x = ", "\n", None, snippets, 32))[0].count("helper_")
    assert 0 < few < many


def test_a_snippet_that_does_not_fit_is_left_out_whole() -> None:
    snippets = (Snippet(LONG), Snippet("def small(): pass"))
    assert "value_" not in (found := parts(PROMPT.context(LONG, "", None, snippets, 32))[0])
    assert "small" in found


@settings(max_examples=80, deadline=None)
@given(prefix=texts, suffix=texts, snippets=st.lists(texts, max_size=4), reserve=st.integers(1, 64))
def test_a_context_never_exceeds_its_room_and_keeps_what_is_nearest(
    prefix: str, suffix: str, snippets: list[str], reserve: int
) -> None:
    pieces = tuple(Snippet(text) for text in snippets)
    ids = PROMPT.context(prefix, suffix, None, pieces, reserve)
    assert len(ids) <= 256 - reserve
    _, after, before = parts(ids)
    assert suffix.startswith(after) and prefix.endswith(before)


def test_no_room_is_said() -> None:
    with pytest.raises(RequestError, match="no room for context"):
        PROMPT.context("x", "", None, (), 250)


# ---- stability --------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    lines=st.integers(0, 60),
    rest=st.integers(0, 60),
    snippets=st.integers(0, 6),
    length=st.sampled_from([512, 1024]),
)
def test_typing_a_line_seldom_moves_anything_before_it(
    lines: int, rest: int, snippets: int, length: int
) -> None:
    """Whatever fits or does not, at most one step of the cut falls into twenty keystrokes."""
    prompt = Prompt(TOK, length)
    extra = tuple(
        Snippet(f"def helper_{i}(argument):\n    return argument\n") for i in range(snippets)
    )
    head, suffix = LONG[: 28 * lines], "\n" + LONG[: 28 * rest]
    moved, last = 0, None
    for typed in range(20):
        line = "total = compute(value"[:typed]
        # As a word grows, the engine is asked to force more, and reserves more.
        ids = prompt.context(head + line, suffix, None, extra, 32 + typed % 7)
        start = ids[: ids.index(PROMPT.pre) + 1 + (lines > 0)]
        moved += last is not None and start != last
        last = start
    assert moved <= 1


def test_a_long_file_fills_the_context() -> None:
    """Coarse steps must not leave much unused."""
    for length in (256, 512, 1024):
        ids = Prompt(TOK, length).context(LONG * 3, LONG * 3, None, (), 32)
        assert length - 32 - CUT - 2 * GRAIN <= len(ids) <= length - 32


def test_a_request_for_most_of_the_context_still_sees_both_sides() -> None:
    _, after, before = parts(Prompt(TOK, 1024).context(LONG, LONG, None, (), 940))
    assert after and before
