"""What counts say about edits: against a direct calculation, and on code that repeats itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clover_engine.statistics.cutter import SEPARATOR, cutter
from clover_engine.statistics.edits import FileStatistics
from clover_engine.statistics.grams import ORDERS, Grams
from clover_engine.statistics.mixture import ALONE, BASE, NOTHING, Counts, Lambdas, refined

TEXT = """class Cart:
    def __init__(self, prices):
        self.prices = prices
        self.total = 0

    def add(self, price):
        self.prices.append(price)
        self.total += price
        return self.total


    def remove(self, price):
        self.prices.remove(price)
        self.total += price
        return self.total
"""
OTHER = "for price in prices:\n    cart.total -= price\n    cart.prices.remove(price)\n"


def direct(tokens: list[int], low: int, high: int, new: list[int], repository: list[int]) -> float:
    """log p of `new` for tokens [low, high): every count by going through all places."""
    pad = [SEPARATOR] * ORDERS
    text, other = [*pad, *tokens, SEPARATOR], [*pad, *repository, SEPARATOR]
    low, high = low + ORDERS, high + ORDERS

    def count(context: list[int], token: int | None, k: int) -> tuple[int, int]:
        found = []
        for scope, hidden in ((other, None), (text, (low, high))):
            n = 0
            for at in range(ORDERS, len(scope) + (token is None)):
                if hidden and hidden[0] <= at and at - k < hidden[1]:
                    continue
                fits = scope[at - k : at] == context[len(context) - k :]
                n += fits and (token is None or scope[at] == token)
            found.append(n)
        return found[0], found[1]

    whole, total = [*text[low - ORDERS : low], *new], 0.0
    size = len(text) + len(other) - 2 * ORDERS + 1 - (high - low)
    for at in range(ORDERS, len(whole)):
        context, token = whole[at - ORDERS : at], whole[at]
        p = (sum(count(context, token, 0)) + BASE) / (size + BASE * cutter().size)
        for k in range(1, ORDERS + 1):
            seen, hits = count(context, None, k), count(context, token, k)
            for scope, weights in enumerate((ALONE.repository, ALONE.file)):
                if seen[scope]:
                    weight = weights[k - 1]
                    p = (hits[scope] + weight * p) / (seen[scope] + weight)
        total += math.log(p)
    return total


BEGIN = TEXT.index("self.total")
"""Before that, contexts reach beyond the text: counts there are approximate."""


@given(st.integers(BEGIN, len(TEXT)), st.integers(0, 30), st.sampled_from(["", "-=", "x\n  y"]))
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_counts_leave_out_exactly_the_lines_in_question(start: int, size: int, new: str) -> None:
    end = min(len(TEXT), start + size)
    own = cutter().cut(OTHER)
    tokens = cutter().cut(TEXT)
    file = FileStatistics(TEXT, cutter(), Grams.of([own, tokens]), TEXT)
    region = file.region(start, end)
    low, high = (len(cutter().cut(TEXT[:at])) for at in region.span)
    assert tokens[low:high] == region.tokens
    after = TEXT[region.span[0] : start] + new + TEXT[end : region.span[1]]
    expected = direct(tokens, low, high, cutter().cut(after), own)
    assert file.logprob(start, end, new) == pytest.approx(expected, abs=1e-6)


def test_what_the_repository_writes_elsewhere_is_likelier() -> None:
    at = TEXT.rindex("+=")
    ids = [cutter().cut(text) for text in (TEXT, OTHER, OTHER.replace("cart", "self"))]
    file = FileStatistics(TEXT, cutter(), Grams.of(ids), TEXT)
    assert file.delta(at, at + 2, "-=") > file.delta(at, at + 2, "*=") + 1
    assert file.delta(at, at + 2, "+=") == 0


def test_a_line_does_not_speak_for_itself() -> None:
    """Were it counted, what stands there would always be likeliest."""
    text = "a = first(b)\nc = first(d)\ne = frist(f)\n"
    at = text.index("frist")
    file = FileStatistics(text, cutter(), Grams.of([cutter().cut(text)]), text)
    assert file.delta(at, at + 5, "first") > 3


@pytest.mark.parametrize("text", ["", "\n", "x", "\n\n\n", "é = '🙂'"])
@pytest.mark.parametrize("inside", [True, False])
def test_texts_of_hardly_anything(text: str, inside: bool) -> None:
    repository = Grams.of([cutter().cut(text)] if inside else [])
    file = FileStatistics(text, cutter(), repository, text if inside else None)
    for start in range(len(text) + 1):
        assert file.delta(start, start, "") == 0
        assert math.isfinite(file.delta(start, len(text), "new = 1\n"))


def test_refining_keeps_a_distribution_a_distribution() -> None:
    grams = Grams.of([[16, 17, 16, 18, 16, 17] * 3])
    base = {token: 0.25 for token in (16, 17, 18, 19)}
    context = [18, 16]

    def after(token: int) -> float:
        seen = [n - (k == 0 and 0) for k, n in enumerate(grams.contexts(context))]
        own = Counts(seen, grams.followed(context, token), len(grams))
        return refined(base[token], NOTHING, own, Lambdas((5.0,) * ORDERS, (2.0,) * ORDERS))

    assert sum(after(token) for token in base) == pytest.approx(1.0)
    assert after(17) > after(18) > after(19)
