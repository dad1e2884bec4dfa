"""The capacity simulator: queueing theory where it has an answer, and sense elsewhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Imports a module of `bench/` by its full name."""
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(ROOT))


def waits(bench: Any, load: float, most: int, steps: Any, count: int = 60_000) -> list[float]:
    """Times from arrival to end in units of one step, for arrivals by chance."""
    batching = bench("bench.serving.batching")
    clock, choose = batching.Clock(), Random(7)
    server = batching.Server(clock, lambda jobs, prompt: 1.0, most)
    found: list[float] = []

    def arrive() -> None:
        begun = clock.now
        job = batching.Job(0, steps(choose), lambda: found.append(clock.now - begun))
        server.submit(job)
        clock.after(choose.expovariate(load), arrive)

    clock.after(0, arrive)
    clock.run(count / load)
    assert len(found) > 0.95 * count
    return found


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_is_an_m_d_1_queue(bench: Any, load: float) -> None:
    """Pollaczek and Khinchine: the mean wait before the service is ρ/(2(1-ρ)) service times."""
    found = waits(bench, load, 1, lambda choose: 1)
    wait = sum(found) / len(found) - 1
    assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def test_one_at_a_time_with_lengths_by_chance_is_an_m_g_1_queue(bench: Any) -> None:
    """Half of the jobs take one step, half take three: E[S] = 2, E[S²] = 5."""
    rate = 0.3
    found = waits(bench, rate, 1, lambda choose: choose.choice((1, 3)))
    wait = sum(found) / len(found) - 2
    assert wait == pytest.approx(rate * 5 / (2 * (1 - 2 * rate)), rel=0.06)


def test_a_batch_that_takes_all_delays_by_half_a_step(bench: Any) -> None:
    """Steps that cost the same for any batch: who comes during one waits for its end."""
    found = waits(bench, 5.0, 10**6, lambda choose: 4)
    assert sum(found) / len(found) == pytest.approx(4 + 0.5, rel=0.02)


def test_prompts_are_read_in_chunks_and_cancelled_work_is_counted(bench: Any) -> None:
    batching = bench("bench.serving.batching")
    clock = batching.Clock()
    server = batching.Server(clock, lambda jobs, prompt: 1.0 + prompt, 4, chunk=10)
    ended: list[float] = []
    job = batching.Job(25, 1, lambda: ended.append(clock.now))
    server.submit(job)
    clock.run(100)
    assert ended == [11 + 11 + 6]  # the last chunk's step decodes too
    gone = batching.Job(0, 1000, lambda: ended.append(-1))
    server.submit(gone)
    clock.after(2.5, lambda: server.cancel(gone))
    clock.run(200)
    assert ended == [28.0] and server.in_flight == 0
    assert server.totals.aborted == 1 and server.totals.aborted_s == pytest.approx(3.0)


def setting(bench: Any, block: int = 16, context: int = 1024, **changes: Any) -> Any:
    capacity = bench("bench.serving.capacity")
    model = capacity.find_model("clover-35b-a3b")
    return capacity.Setting(model, block, context, replace(capacity.Assumptions(), **changes))


def test_accepted_tokens_are_what_the_formula_says(bench: Any) -> None:
    """Drafted tokens are right up to the first wrong one; the verifying pass adds one."""
    found, choose = setting(bench, block=8, acceptance=0.75), Random(2)
    steps = found.steps(10**6, choose)
    expected = 1 + sum(0.75**i for i in range(1, 9))
    assert 10**6 / steps == pytest.approx(expected, rel=0.01)
    assert setting(bench, block=1).steps(17, choose) == 17


def test_measured_passes_replace_the_assumptions(bench: Any) -> None:
    capacity = bench("bench.serving.capacity")
    one = setting(bench, efficiency=0.37, overhead_ms=4.5)
    measured = [
        {"sequences": n, "rows": r, "history": 1024, "seconds": one.pass_s(n, r)}
        for n, r in ((1, 1), (1, 16), (8, 16), (64, 8))
    ]
    fitted = capacity.fitted(capacity.Assumptions(), one.model, measured)
    assert fitted.efficiency == pytest.approx(0.37) and fitted.overhead_ms == pytest.approx(4.5)


def test_more_editors_wait_longer_and_slower_gpus_serve_fewer(bench: Any) -> None:
    capacity = bench("bench.serving.capacity")
    few, many = (capacity.simulate(setting(bench), n, 8, 2) for n in (4, 120))
    assert few["p95_ms"] < many["p95_ms"] and few["busy"] < many["busy"] <= 1
    assert 0 < few["aborted_share"] < 1
    slow = capacity.simulate(setting(bench, bandwidth_tb_s=1.0, peak_tflops=200.0), 4, 8, 2)
    assert slow["p50_ms"] > few["p50_ms"]


def test_contexts_that_do_not_fit_are_read_again(bench: Any) -> None:
    capacity = bench("bench.serving.capacity")
    long = capacity.simulate(setting(bench, context=131072, moves=0.0), 60, 8, 2)
    assert long["contexts_held"] < 60 and long["read_again"] > 0.1
    short = capacity.simulate(setting(bench, moves=0.0), 60, 8, 2)
    assert short["contexts_held"] > 60 and short["read_again"] == 0


def test_cost_of_a_thousand(bench: Any) -> None:
    capacity = bench("bench.serving.capacity")
    assumed = capacity.Assumptions(active=0.25, price_per_hour=2.0, hours_per_month=100.0)
    assert capacity.cost(60, assumed) == (5, 1000.0)
    assert capacity.cost(0, assumed)[1] == float("inf")
