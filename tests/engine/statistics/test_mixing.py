"""The compiled mixture against the plain one, token by token."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("numba")
torch = pytest.importorskip("torch")

from clover_engine.statistics.cutter import SEPARATOR, cutter  # noqa: E402
from clover_engine.statistics.grams import ORDERS, Grams  # noqa: E402
from clover_engine.statistics.mixing import Chunks, Mixer  # noqa: E402
from clover_engine.statistics.mixture import ALONE, Counts, refined  # noqa: E402

VOCABULARY = 40


def text(rng: random.Random, size: int) -> list[int]:
    found: list[int] = []
    while len(found) < size:
        piece = rng.choice([[16, 17, 18], [16, 17, 19, 20], [21], [22, 16], [23, 24, 25, 26]])
        found += piece if rng.random() < 0.9 else [rng.randrange(16, VOCABULARY)]
    return found


def counted(tokens: list[int], context: list[int], token: int) -> Counts:
    seen = [0] * ORDERS
    hits = [0] * (ORDERS + 1)
    for at in range(1, len(tokens)):
        if tokens[at] == SEPARATOR:
            continue
        for k in range(1, min(ORDERS, at) + 1):
            if tokens[at - k : at] != context[-k:]:
                break
            seen[k - 1] += 1
            hits[k] += tokens[at] == token
    return Counts(seen, hits, len(tokens))


@pytest.mark.parametrize("seed", range(6))
def test_every_row_is_that_of_the_plain_rule(seed: int) -> None:
    rng = random.Random(seed)
    texts = [text(rng, 120) for _ in range(3)]
    before, after = text(rng, 60), text(rng, 50)
    grams = Grams.of(texts)
    low = ORDERS + 1 + len(texts[0]) + 1
    mixer = Mixer(before, after, VOCABULARY, repository=grams, skip=(low, low + len(texts[1]) + 1))
    probs = torch.rand(4, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    probs = probs.softmax(-1).double()
    made, rows = [16], [17, 18, 22]
    kept = probs.clone()
    mixed = mixer(probs, made, rows)
    assert torch.equal(probs, kept)
    assert mixed.sum(-1).tolist() == pytest.approx([1.0] * 4)
    whole = [*texts[0], SEPARATOR, *[SEPARATOR] * ORDERS, *texts[2], SEPARATOR]
    for row in range(4):
        context = [*before, *made, *rows[:row]][-ORDERS:]
        for token in range(16, VOCABULARY):
            repository = counted(whole, context, token)
            file = counted([*before, SEPARATOR, *after], context, token)
            expected = refined(float(kept[row, token]), repository, file, ALONE)
            assert float(mixed[row, token]) == pytest.approx(expected, rel=1e-9)


def test_without_any_text_nothing_changes() -> None:
    probs = torch.rand(2, VOCABULARY).softmax(-1)
    assert torch.allclose(Mixer([], [], VOCABULARY)(probs, [], [16]), probs)


def test_a_line_break_counts_as_the_end_of_a_single_line() -> None:
    before = [16, 17, 30, 16, 17, 30, 16, 17, 30, 16]
    probs = torch.full((1, VOCABULARY), 1 / VOCABULARY)
    plain = Mixer(before, [], VOCABULARY)(probs, [17])
    ended = Mixer(before, [], VOCABULARY, breaks=[30], end=2)(probs, [17])
    assert int(plain.argmax()) == 30
    assert int(ended.argmax()) == 2
    assert float(ended[0, 30]) < 1 / VOCABULARY


def test_places_of_frequent_tokens_are_sampled_fairly() -> None:
    repeated = [16, 17] * 6000 + [16, 18] * 6000
    probs = torch.full((1, VOCABULARY), 1 / VOCABULARY)
    mixed = Mixer([30], [], VOCABULARY, repository=Grams.of([repeated]))(probs, [16])
    assert float(mixed[0, 17]) == pytest.approx(float(mixed[0, 18]), rel=0.1)


def test_the_result_of_refining_is_never_kept_for_the_next_row() -> None:
    mixer = Mixer([16, 17, 18, 16, 17, 18], [], VOCABULARY)
    probs = torch.full((1, VOCABULARY), 1 / VOCABULARY)
    first = mixer(probs, [16])
    mixer(probs, [17])
    assert torch.equal(mixer(probs, [16]), first)


def test_chunks_are_cut_as_the_whole() -> None:
    source = Path(__file__).read_text() * 3
    chunks = Chunks(cutter())
    for end in (len(source), len(source) - 700, 10, 1501, 0):
        assert chunks.cut(source[:end]) == cutter().cut(source[:end])
    windows = source.replace("\n\n", "\n\r\n")
    assert chunks.cut(windows) == cutter().cut(windows)
