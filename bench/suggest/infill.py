"""Whole-line infill on held-out packages: exact match, precision at coverage, latency.

    python -m bench.suggest.infill [--holes 300] [--checkpoint DIR] [--mode threshold]

`precision at 20 %` is the exact match among the most confident fifth.
"""

from __future__ import annotations

import argparse
import statistics
import time

from bench.suggest.holes import holes

from clover_engine.api import InfillRequest, Mode
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.worker.local import checkpoint_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=300)
    parser.add_argument("--checkpoint", type=checkpoint_path, default=checkpoint_path())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mode", default="speculative")
    parser.add_argument("--show", type=int, default=0, help="print this many results")
    args = parser.parse_args()
    mode: Mode = args.mode
    engine = EmbeddedEngine.load(args.checkpoint, args.threads)
    results, times = [], []
    for i, hole in enumerate(holes(args.holes)):
        began = time.perf_counter()
        request = InfillRequest(hole.prefix, hole.suffix, max_tokens=31, mode=mode, stop=("\n",))
        choice = engine.infill(request).choices[0]
        times.append(1000 * (time.perf_counter() - began))
        exact = choice.text.rstrip() == hole.middle
        results.append((choice.confidence, exact))
        if i < args.show:
            print(f"{choice.confidence:.2f} {exact!s:5} {hole.middle!r} <- {choice.text!r}")
    results.sort(reverse=True)
    print(f"exact match {100 * sum(e for _, e in results) / len(results):.1f} %")
    for share in (0.1, 0.2, 0.3, 0.5):
        top = results[: int(len(results) * share)]
        hit = 100 * sum(e for _, e in top) / len(top)
        print(f"precision at {share:.0%} coverage {hit:.1f} % (confidence ≥ {top[-1][0]:.2f})")
    times.sort()
    p95 = times[int(0.95 * len(times))]
    print(f"ms a hole, cold prefix: p50 {statistics.median(times):.0f}, p95 {p95:.0f}")


if __name__ == "__main__":
    main()
