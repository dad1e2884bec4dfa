"""Counts of n-grams against counting by hand, in memory and from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.statistics.cutter import SEPARATOR
from clover_engine.statistics.grams import _MAGIC, ORDERS, Grams

TOKENS = st.sampled_from([16, 17, 18, 4000, 4095])
TEXTS = st.lists(st.lists(TOKENS, max_size=30), min_size=1, max_size=4)
CONTEXTS = st.lists(TOKENS, min_size=1, max_size=ORDERS + 3)


def by_hand(texts: Sequence[Sequence[int]], wanted: Sequence[int]) -> int:
    whole = [SEPARATOR] * (ORDERS + 1) + [t for text in texts for t in (*text, SEPARATOR)]
    size = len(wanted)
    return sum(whole[at - size + 1 : at + 1] == list(wanted) for at in range(ORDERS, len(whole)))


def check(grams: Grams, texts: Sequence[Sequence[int]], context: list[int], token: int) -> None:
    seen, hits = grams.contexts(context), grams.followed(context, token)
    longest = min(ORDERS, len(context))
    expected = [by_hand(texts, context[-k:]) for k in range(1, longest + 1)]
    assert seen == [n for n in expected if n]
    after = [by_hand(texts, [*(context[-k:] if k else []), token]) for k in range(longest + 1)]
    assert hits == [n for n in after if n]


@given(TEXTS, CONTEXTS, TOKENS)
@settings(max_examples=200, deadline=None)
def test_counts_are_those_of_counting_by_hand(
    texts: list[list[int]], context: list[int], token: int
) -> None:
    check(Grams.of(texts), texts, context, token)


def test_a_file_gives_the_same_counts(tmp_path: Path) -> None:
    texts = [[16, 17, 16, 17, 18] * 5, [4095], [17] * 30]
    path = tmp_path / "counts"
    Grams.of(texts).save(path)
    mapped = Grams.open(path)
    for context in ([16], [17, 17], [18, 16, 17, 16], [17] * 12, [4095]):
        for token in (16, 17, 18, 4095):
            check(mapped, texts, context, token)
    assert [p.name for p in tmp_path.iterdir()] == ["counts"]


def test_six_bytes_a_token(tmp_path: Path) -> None:
    Grams.of([list(range(16, 4000))]).save(tmp_path / "counts")
    assert (tmp_path / "counts").stat().st_size == pytest.approx(6 * 3984, rel=0.02)


def test_texts_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clover_engine.statistics.grams.MOST_TOKENS", 100)
    grams = Grams.of([[20] * 60, [21] * 60, [22] * 10])
    assert (grams.followed([], 20), grams.followed([], 21)) == ([60], [])
    assert grams.followed([], 22) == [10]


@pytest.mark.parametrize(
    "content", [b"", b"x", b"0" * 200, _MAGIC + bytes(16), _MAGIC + bytes([9] + [0] * 200)]
)
def test_a_damaged_file_is_an_os_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "counts"
    path.write_bytes(content)
    with pytest.raises(OSError):
        Grams.open(path)


def test_a_file_that_was_cut_off_is_an_os_error(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    Grams.of([[16, 17, 18] * 50]).save(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(OSError):
        Grams.open(path)
