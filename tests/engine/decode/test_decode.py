"""Decoding laws on random models in float64: speculation changes nothing but the speed."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import CancelToken
from clover_engine.decode import autoregressive, cloze, diffusion, scoring, speculative
from clover_engine.decode.common import Limits, Sampling, Start, Tally
from clover_engine.decode.lookup import Lookup
from clover_engine.errors import RequestCancelled
from clover_engine.inprocess.prefill import PrefixCache
from clover_engine.model import Cache, Clover, CloverConfig

VOCAB = 12
MASK, PAD, EOM = 1, 0, 2


def random_model(seed: int, kind: str = "hybrid", vocab: int = VOCAB) -> Clover:
    torch.manual_seed(seed)
    full, linear = "full_attention", "linear_attention"
    layers = {"hybrid": (linear, full), "dense": (full, full), "moe": (linear, full)}[kind]
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8)
    config = CloverConfig(
        vocab_size=vocab, hidden_size=16, layer_types=layers, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=24, qk_norm=True, output_gate=True,
        linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=8, mask_token_id=MASK, **(experts if kind == "moe" else {}),
    )  # fmt: skip
    model = Clover(config).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model


def start_from(model: Clover, prompt: list[int]) -> Start:
    cache = Cache(model.config)
    hidden, _ = model(torch.tensor([prompt]), cache=cache)
    return Start(cache, model.head(hidden[0, -1]))


pytestmark = pytest.mark.usefixtures("one_thread")
BANNED = torch.tensor([MASK])
prompts = st.lists(st.integers(3, VOCAB - 1), min_size=1, max_size=12)
kinds = st.sampled_from(["hybrid", "dense", "moe"])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=kinds,
    prompt=prompts,
    size=st.integers(2, 12),
    limit=st.integers(1, 24),
    threshold=st.sampled_from([0.0, 0.1, 0.3]),
    stop=st.booleans(),
    original=st.none() | st.lists(st.integers(3, VOCAB - 1), max_size=8),
    drafts=st.lists(st.lists(st.integers(2, VOCAB - 1), max_size=12), max_size=2),
    told=st.integers(0, 24),
)
@torch.inference_mode()
def test_greedy_speculation_equals_plain_decoding(
    seed: int, kind: str, prompt: list[int], size: int, limit: int, threshold: float, stop: bool,
    original: list[int] | None, drafts: list[list[int]], told: int,
) -> None:  # fmt: skip
    model = random_model(seed, kind)
    limits = Limits(limit, frozenset({EOM}) if stop else frozenset())
    greedy = Sampling(banned=BANNED)
    plain = autoregressive.decode(model, start_from(model, prompt), limits, greedy, Tally())
    drafts = [*drafts, plain.tokens[:told]]
    lookup = None if original is None else Lookup(original, prompt, drafts)
    fast = speculative.decode(
        model, start_from(model, prompt), limits, greedy, Tally(),
        block_size=size, draft_threshold=threshold, lookup=lookup,
    )  # fmt: skip
    assert fast.tokens == plain.tokens
    assert fast.reason == plain.reason
    assert fast.probs == pytest.approx(plain.probs, abs=1e-9)


@torch.inference_mode()
def test_drafts_are_really_accepted_and_save_passes() -> None:
    total = Tally()
    for seed in range(12):
        start = start_from(random_model(seed, vocab=5), [3, 4, 3])
        greedy = Sampling(banned=BANNED)
        speculative.decode(
            random_model(seed, vocab=5), start, Limits(24), greedy, total,
            block_size=6, draft_threshold=0.0,
        )  # fmt: skip
    assert total.accepted > 20
    assert total.tokens == 12 * 24
    assert total.accepted <= total.drafted


def test_rejection_sampling_keeps_the_distribution() -> None:
    torch.manual_seed(3)
    p = torch.randn(2, 6, dtype=torch.float64).mul(1.5).softmax(-1)
    q = torch.randn(1, 6, dtype=torch.float64).mul(1.5).softmax(-1)
    sampling, generator = Sampling(temperature=1.0), torch.Generator().manual_seed(5)
    counts = torch.zeros(6)
    rounds = 20_000
    for _ in range(rounds):
        draft = [int(torch.multinomial(q[0], 1, generator=generator))]
        accepted, known, _ = speculative.accept(draft, q, p, sampling, generator)
        counts[draft[0] if accepted else known] += 1
    assert torch.allclose(counts / rounds, p[0].float(), atol=0.015)


@torch.inference_mode()
def test_sampled_speculation_matches_plain_sampling_statistically() -> None:
    model = random_model(8, vocab=6)
    sampling = Sampling(temperature=1.0, banned=BANNED)
    exact = sampling.probabilities(start_from(model, [3, 4]).logits)
    second = torch.zeros(6, dtype=torch.float64)
    for token in range(6):
        following = sampling.probabilities(start_from(model, [3, 4, token]).logits)
        second += exact[token] * following
    counts = torch.zeros(6)
    for seed in range(1200):
        generator = torch.Generator().manual_seed(seed)
        out = speculative.decode(
            model, start_from(model, [3, 4]), Limits(3), sampling, Tally(),
            block_size=3, draft_threshold=0.0, generator=generator,
        )  # fmt: skip
        counts[out.tokens[1]] += 1
    assert torch.allclose(counts / 1200, second.float(), atol=0.06)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=kinds,
    prompt=prompts,
    size=st.integers(1, 16),
    limit=st.integers(1, 20),
    threshold=st.sampled_from([0.0, 0.2, 0.5, 1.1]),
    temperature=st.sampled_from([0.0, 1.0]),
)
@torch.inference_mode()
def test_threshold_decoding_terminates_and_counts_honestly(
    seed: int, kind: str, prompt: list[int], size: int, limit: int, threshold: float,
    temperature: float,
) -> None:  # fmt: skip
    model = random_model(seed, kind)
    sampling = Sampling(temperature, banned=BANNED)

    def run() -> tuple[list[int], Tally]:
        tally = Tally()
        generator = torch.Generator().manual_seed(seed)
        out = diffusion.decode(
            model, start_from(model, prompt), Limits(limit, frozenset({EOM})), sampling, tally,
            block_size=size, threshold=threshold, generator=generator,
        )  # fmt: skip
        return out.tokens, tally

    tokens, tally = run()
    assert MASK not in tokens and EOM not in tokens
    assert len(tokens) <= limit
    blocks = -(-(limit + 1) // size)
    assert tally.denoising_steps == tally.forward_passes
    if threshold == 0.0:
        assert tally.forward_passes <= blocks + 1
    if threshold > 1.0:
        assert tally.forward_passes >= len(tokens)
    assert run()[0] == tokens  # the seed reproduces


@torch.inference_mode()
def test_second_block_reads_the_first_as_history() -> None:
    """Threshold 0 fills each block in one step; the same by hand with separate passes."""
    model = random_model(4)
    greedy = Sampling(banned=BANNED)
    out = diffusion.decode(
        model, start_from(model, [5, 6]), Limits(8), greedy, Tally(), block_size=4, threshold=0.0
    )
    history, expected = [5, 6], []
    for _ in range(2):
        cache = start_from(model, history).cache
        _, hidden = model(None, torch.full((1, 1, 4), MASK), cache)
        ids = greedy.probabilities(model.head(hidden[0, 0])).argmax(-1).tolist()
        history, expected = history + ids, expected + ids
    assert out.tokens == expected


@torch.inference_mode()
def test_cancel_and_deadline_stop_within_one_step_and_keep_the_prefix() -> None:
    model = random_model(6)
    for mode in ("ar", "threshold", "speculative"):
        token, passes = CancelToken(), 0

        def forward(*args: object, **kwargs: object) -> object:
            nonlocal passes
            passes += 1
            if passes == 3:
                token.cancel()  # noqa: B023 - called in this iteration only
            return Clover.forward(model, *args, **kwargs)  # type: ignore[arg-type]

        start = start_from(model, [3, 4])
        model.forward = forward  # type: ignore[assignment]
        limits = Limits(40, cancel=token)
        greedy = Sampling(banned=BANNED)
        if mode == "ar":
            out = autoregressive.decode(model, start, limits, greedy, Tally())
        elif mode == "threshold":
            out = diffusion.decode(
                model, start, limits, greedy, Tally(), block_size=8, threshold=1.1
            )
        else:
            out = speculative.decode(model, start, limits, greedy, Tally(), block_size=8)
        del model.forward
        assert out.reason == "cancelled"
        assert passes <= 4
        late = Limits(40, deadline=time.monotonic() - 1)
        out = autoregressive.decode(model, start_from(model, [3]), late, greedy, Tally())
        assert out.reason == "deadline" and len(out.tokens) == 1


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    prompt=prompts,
    candidates=st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=7), min_size=1, max_size=9),
)
@torch.inference_mode()
def test_scores_are_the_sum_of_next_token_log_probabilities(
    seed: int, prompt: list[int], candidates: list[list[int]]
) -> None:
    model = random_model(seed)
    start = start_from(model, prompt)
    length = start.cache.length
    found = scoring.score(model, start, candidates, Limits(0), Tally())
    assert start.cache.length == length
    for tokens, value in zip(candidates, found, strict=True):
        hidden, _ = model(torch.tensor([prompt + tokens]))
        logp = model.head(hidden[0]).log_softmax(-1)
        expected = sum(float(logp[len(prompt) - 1 + i, t]) for i, t in enumerate(tokens))
        assert value == pytest.approx(expected, abs=1e-4)


@torch.inference_mode()
def test_scoring_stops_at_the_deadline() -> None:
    start = start_from(random_model(1), [3])
    late = Limits(0, deadline=time.monotonic() - 1)
    assert scoring.score(random_model(1), start, [[3], [4]], late, Tally()) == [None, None]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), line=st.lists(st.integers(3, VOCAB - 1), max_size=6))
@torch.inference_mode()
def test_cloze_fills_are_distinct_small_edits(seed: int, line: list[int]) -> None:
    model = random_model(seed)
    fills = cloze.fill(
        model, start_from(model, [3, 4]), line, cloze.Edits((EOM, PAD), 2, 2, 40), Limits(0),
        Sampling(banned=torch.tensor([PAD, MASK, EOM])), Tally(),
    )  # fmt: skip
    texts = [f.tokens for f in fills]
    assert len(texts) == len(set(texts)) and tuple(line) not in texts
    for tokens in texts:
        assert not {PAD, MASK, EOM} & set(tokens)
        assert any(
            tokens[:a] == tuple(line[:a])
            and tokens[len(tokens) - b :] == tuple(line[len(line) - b :])
            for a in range(len(line) + 1)
            for b in range(len(line) - a + 1)
            if len(line) - a - b <= 2 and len(tokens) - a - b <= 2 and a + b <= len(tokens)
        )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    contexts=st.lists(
        st.lists(st.integers(0, 2), min_size=1, max_size=300), min_size=2, max_size=4
    ),
)
@torch.inference_mode()
def test_prefix_reuse_equals_a_fresh_prefill(seed: int, contexts: list[list[int]]) -> None:
    model = random_model(seed)
    prefix = PrefixCache(model)
    for i, tokens in enumerate(contexts):
        if i % 2:
            tokens = contexts[i - 1][:200] + tokens
        start, cached = prefix.start(tokens, Limits(0), Tally())
        assert cached <= len(tokens) and start.cache.length == len(tokens)
        fresh = start_from(model, tokens)
        assert torch.allclose(start.logits, fresh.logits, atol=1e-9)
        greedy = Sampling(banned=BANNED)
        a = speculative.decode(model, start, Limits(6), greedy, Tally(), block_size=4)
        b = autoregressive.decode(model, fresh, Limits(6), greedy, Tally())
        assert a.tokens == b.tokens


def test_prefill_stops_when_cancelled_and_recovers() -> None:
    model = random_model(2)
    prefix, cancel = PrefixCache(model), CancelToken()
    cancel.cancel()
    with torch.inference_mode():
        with pytest.raises(RequestCancelled):
            prefix.start([3, 4, 5], Limits(0, cancel=cancel), Tally())
        start, _ = prefix.start([3, 4, 5], Limits(0), Tally())
        assert torch.allclose(start.logits, start_from(model, [3, 4, 5]).logits, atol=1e-9)


@torch.inference_mode()
def test_top_p_and_temperature_shape_the_distribution() -> None:
    logits = torch.tensor([4.0, 3.0, 1.0, 0.0, -2.0])
    probs = Sampling(1.0, 0.7).probabilities(logits)
    assert probs[2:].sum() == 0 and probs.sum() == pytest.approx(1.0)
    sharp = Sampling(0.1).probabilities(logits)
    assert sharp[0] > 0.99
    assert Sampling(banned=torch.tensor([0])).probabilities(logits)[0] == 0


def test_lookup_copies_the_replaced_text_first_then_the_context() -> None:
    lookup = Lookup([5, 6, 7, 8], [9, 9, 5, 3, 4, 10, 11, 3])
    assert lookup.draft([5], 3) == [6, 7, 8]
    assert lookup.draft([5, 6, 9, 7], 5) == [8]
    assert lookup.draft([4], 2) == [10, 11]  # the context ends in 3: the run is [3, 4]
    assert lookup.draft([12], 2) == []
    assert lookup.draft([], 2) == [] and lookup.draft([5], 0) == []


def test_the_callers_drafts_go_first_while_they_agree() -> None:
    lookup = Lookup([5, 6, 7], [3, 4], [[5, 9, 9], [5, 6, 8, 8]])
    assert lookup.draft([5], 4) == [9, 9]
    assert lookup.draft([5, 6], 1) == [8]
    assert lookup.draft([5, 6, 8, 8], 4) == []
    assert lookup.draft([5, 6, 7], 4) == []


@torch.inference_mode()
def test_blocks_stay_away_while_their_drafts_bring_nothing() -> None:
    told, tokens = Tally(), 60
    start, greedy = start_from(random_model(8), [3, 4]), Sampling(banned=BANNED)
    model, limits = random_model(8), Limits(tokens)
    speculative.decode(
        model, start, limits, greedy, told, block_size=8, draft_threshold=1.0
    )  # no draft is ever sure enough
    assert told.forward_passes == tokens - 1
    assert 0 < told.denoising_steps < tokens / 4


@torch.inference_mode()
def test_every_pass_yields_at_least_one_token_and_a_good_draft_more() -> None:
    model = random_model(5)
    limits, greedy = Limits(20), Sampling(banned=BANNED)
    plain = autoregressive.decode(model, start_from(model, [3, 4]), limits, greedy, Tally())
    told = Tally()
    lookup = Lookup(plain.tokens, [3, 4])
    out = speculative.decode(
        model, start_from(model, [3, 4]), limits, greedy, told, block_size=8, lookup=lookup
    )
    assert out.tokens == plain.tokens
    assert told.forward_passes < 19


@pytest.mark.parametrize("drafted", [True, False])
def test_a_draft_without_distribution_keeps_the_distribution_too(drafted: bool) -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)
    generator, counts = torch.Generator().manual_seed(1), torch.zeros(3)
    q = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64) if drafted else None
    for _ in range(6000):
        accepted, known, _ = speculative.accept([1], q, p, Sampling(1.0), generator)
        counts[1 if accepted else known] += 1
    assert torch.allclose(counts / 6000, p[0].float(), atol=0.025)
