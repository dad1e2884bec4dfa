"""Reuse of contexts across keystrokes: always what a fresh prefill gives, and seldom more work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import CancelToken
from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.errors import RequestCancelled
from clover_engine.inprocess.prefill import CHUNK, MOST_CONTEXTS, REPLAYED, PrefixCache
from clover_engine.model import Clover, CloverConfig

pytestmark = pytest.mark.usefixtures("one_thread")
VOCABULARY = 20
HYBRID = CloverConfig(
    vocab_size=VOCABULARY + 1,
    hidden_size=8,
    layer_types=("linear_attention", "full_attention"),
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=12,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=4,
    linear_value_head_dim=4,
    mask_token_id=VOCABULARY,
)
PLAIN = HYBRID.with_(layer_types=("full_attention", "full_attention"))
BANNED = Sampling(banned=torch.tensor([VOCABULARY]))


@pytest.fixture(scope="module", params=[HYBRID, PLAIN], ids=["hybrid", "attention"])
def model(request: pytest.FixtureRequest, lively: Callable[..., None]) -> Clover:
    torch.manual_seed(1)
    made = Clover(request.param).double().eval()
    lively(made)
    return made


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def text(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (length,), generator=generator).tolist()


def ask(prefix: PrefixCache, tokens: list[int]) -> tuple[Start, int]:
    start, cached = prefix.start(tokens, Limits(0), Tally())
    assert start.cache.length == len(tokens)
    return start, len(tokens) - cached


def check(prefix: PrefixCache, model: Clover, tokens: list[int]) -> int:
    """The law; returns how many tokens were computed."""
    start, computed = ask(prefix, tokens)
    fresh, _ = ask(PrefixCache(model), tokens)
    assert torch.allclose(start.logits, fresh.logits, atol=1e-9)
    block = torch.full((1, 1, 4), VOCABULARY)
    own, wanted = (model(None, block, s.cache)[1] for s in (start, fresh))
    assert torch.allclose(own, wanted, atol=1e-9)
    a = speculative.decode(model, start, Limits(5), BANNED, Tally(), block_size=4)
    b = autoregressive.decode(model, fresh, Limits(5), BANNED, Tally())
    assert a.tokens == b.tokens
    return computed


edits = st.lists(
    st.tuples(
        st.sampled_from(["type", "type", "delete", "replace", "other", "back", "short"]),
        st.integers(1, 200),
        st.integers(0, 400),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=8, deadline=None)
@given(length=st.integers(1, 330), steps=edits)
def test_any_sequence_of_contexts_equals_fresh_prefills(
    model: Clover, length: int, steps: list[tuple[str, int, int]]
) -> None:
    prefix = PrefixCache(model)
    now, before = text(length), text(10)
    check(prefix, model, now)
    for i, (kind, size, at) in enumerate(steps):
        new = {
            "type": now + text(size % 9 + 1, i),
            "delete": now[: -(size % 70 + 1)] or now,
            "replace": now[: at % len(now)] + text(size, i) + now[at % len(now) + 1 :],
            "other": text(size, 100 + i),
            "back": before,
            "short": now[: at % len(now) + 1],
        }[kind][:400]
        check(prefix, model, new)
        now, before = new, now


def test_typing_and_deleting_at_the_end_cost_what_changed(model: Clover) -> None:
    prefix, now = PrefixCache(model), text(500)
    assert ask(prefix, now)[1] == 500
    for i in range(12):  # the last two tokens change with each keystroke
        now = now[:-2] + text(3, i)
        assert ask(prefix, now)[1] <= 3
    assert check(prefix, model, now + [1]) == 1
    for _ in range(12):
        now = now[:-3] + text(1, 50)
        assert ask(prefix, now)[1] <= 3
    assert check(prefix, model, now[:-25]) <= 1


def test_an_edit_further_up_costs_at_most_a_chunk_more(model: Clover) -> None:
    prefix, now = PrefixCache(model), text(500)
    ask(prefix, now)
    assert check(prefix, model, [*now[:300], *text(1, 5), *now[300:]]) <= 201 + CHUNK


def test_the_same_context_costs_nothing(model: Clover) -> None:
    prefix, tally = PrefixCache(model), Tally()
    ask(prefix, text(300))
    prefix.start(text(300), Limits(0), tally)
    assert tally.forward_passes == 0


def test_contexts_of_several_files_are_kept(model: Clover) -> None:
    prefix = PrefixCache(model)
    files = [text(200 + 10 * i, i) for i in range(MOST_CONTEXTS)]
    for file in files:
        ask(prefix, file)
    for file in files:
        assert check(prefix, model, file) == 0
    ask(prefix, text(150, 99))  # one more: the one asked for longest ago leaves
    assert ask(prefix, files[-1])[1] == 0
    assert ask(prefix, files[0])[1] > 150


def test_a_beginning_that_is_shared_is_not_computed_again(model: Clover) -> None:
    """Two contexts with the same snippets; neither pushes the other out."""
    prefix, shared = PrefixCache(model), text(300)
    one, other = shared + text(320, 1), shared + text(320, 2)
    ask(prefix, one)
    assert check(prefix, model, other) <= 320 + CHUNK
    assert check(prefix, model, one) == 0
    assert check(prefix, model, other) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, model: Clover) -> None:
    """By marks, bytes of marks and bytes of contexts, also over long sessions."""
    monkeypatch.setattr("clover_engine.inprocess.prefill.MOST_MARKS", 8)
    prefix, now = PrefixCache(model), text(1200)
    for i in range(30):
        now = now[:-1] + text(3, i)
        check(prefix, model, now) if i % 15 == 0 else ask(prefix, now)
        (context,) = prefix._contexts
        assert len(context.marks) <= 8
        assert sum(m.snapshot.replayable for m in context.marks) <= REPLAYED
    lengths = [m.length for m in context.marks]
    assert lengths == sorted(lengths) and lengths[0] == 0
    gaps = [b - a for a, b in zip(lengths, lengths[1:], strict=False)]
    assert max(gaps) <= 1200 // 2
    monkeypatch.setattr("clover_engine.inprocess.prefill.MARK_BYTES", 0)
    ask(prefix, now[:-1] + text(2, 70))
    assert len(context.marks) <= (4 if model.config.hybrid else 8)
    monkeypatch.setattr("clover_engine.inprocess.prefill.MOST_BYTES", 0)
    ask(prefix, text(100, 80))
    assert len(prefix._contexts) == 1


def test_a_cancelled_prefill_goes_on_where_it_stopped(model: Clover) -> None:
    class After(CancelToken):
        """Cancelled once it was asked for the third time."""

        asked = 0

        @property
        def cancelled(self) -> bool:
            self.asked += 1
            return self.asked > 2

    prefix, now = PrefixCache(model), text(500)
    with pytest.raises(RequestCancelled):
        prefix.start(now, Limits(0, cancel=After()), Tally())
    assert check(prefix, model, now) == 500 - 2 * CHUNK
