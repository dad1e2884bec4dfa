"""Block decoding against the same weights' AR decoding, side by side in one run.

    python -m bench.decode.decode [--holes 200] [--clock wall|cpu] [--checkpoint DIR] [--json FILE]

Two workloads on held-out code: whole lines to fill in, and lines with a bug planted by
`train.mutate` to repair (the wrong line is given; exact match = the true line came back). Every
hole is filled in every mode, in turn, from a warm prefix cache. `passes/token` counts forward
passes after the prefill per generated token, the end of the hole included; the last column is AR's
time over all holes divided by this mode's: wall time, or the process's CPU time on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.suggest.holes import Hole, holes

from clover_engine.api import InfillRequest
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.train.mutate import mutate
from clover_engine.worker.local import checkpoint_path

MODES: dict[str, dict[str, object]] = {
    "ar": {"mode": "ar"},
    "speculative": {"mode": "speculative", "block_size": 8},
    "speculative 5": {"mode": "speculative", "block_size": 5},
    "threshold 0.9": {"mode": "threshold", "threshold": 0.9},
    "threshold 0.7": {"mode": "threshold", "threshold": 0.7},
    "threshold 0.5": {"mode": "threshold", "threshold": 0.5},
    "threshold 0.3": {"mode": "threshold", "threshold": 0.3},
    "threshold 0.1": {"mode": "threshold", "threshold": 0.1},
    "threshold 0.05": {"mode": "threshold", "threshold": 0.05},
}


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Row:
    exact: int = 0
    same_as_ar: int = 0
    passes: int = 0
    tokens: int = 0
    times: list[float] = field(default_factory=list)


def bug(hole: Hole) -> str | None:
    """The hole's line with a bug in it, the same one every time."""
    names = re.findall(r"[A-Za-z_]\w*", hole.prefix[-600:])
    return mutate(hole.middle, names, Random(f"{hole.path}:{hole.line}"))


def request(hole: Hole, options: dict[str, object], original: str | None) -> InfillRequest:
    return InfillRequest(
        hole.prefix,
        hole.suffix,
        original=original,
        max_tokens=31,
        stop=("\n",),
        **options,  # type: ignore[arg-type]
    )


def run(
    engine: EmbeddedEngine, chosen: list[Hole], repair: bool, clock: Callable[[], float]
) -> dict[str, Row]:
    rows = {name: Row() for name in MODES}
    for hole in chosen:
        original = bug(hole) if repair else None
        engine.infill(request(hole, MODES["ar"], original))  # the prefix is warm from here on
        texts = {}
        for name, options in MODES.items():
            began = clock()
            result = engine.infill(request(hole, options, original))
            row = rows[name]
            row.times.append(clock() - began)
            texts[name] = result.choices[0].text
            row.exact += texts[name].rstrip() == hole.middle
            row.same_as_ar += texts[name] == texts["ar"]
            row.passes += result.stats.forward_passes
            row.tokens += result.stats.tokens
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    engine = EmbeddedEngine.load(args.checkpoint, args.threads)
    print(f"{args.holes} holes each, {engine.model.parameter_count() / 1e6:.1f}M parameters")
    found = {}
    for name, repair in (("whole lines", False), ("repairs", True)):
        chosen = [h for h in holes(3 * args.holes) if not repair or bug(h)][: args.holes]
        rows = run(engine, chosen, repair, CLOCKS[args.clock])
        table(name, rows, len(chosen))
        found[name] = {mode: vars(row) for mode, row in rows.items()}
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def table(workload: str, rows: dict[str, Row], count: int) -> None:
    ar = rows["ar"]
    print(f"\n{workload}\n")
    print("| mode | exact match | same text as AR | passes/token | ms/hole | time × AR |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        ratios = [a / b for a, b in zip(ar.times, row.times, strict=True)]
        exact, same = 100 * row.exact / count, 100 * row.same_as_ar / count
        wall = f"{sum(ar.times) / sum(row.times):.2f} (median pair {statistics.median(ratios):.2f})"
        print(
            f"| {name} | {exact:.1f} % | {same:.0f} % | {row.passes / row.tokens:.2f} "
            f"| {1000 * statistics.median(row.times):.1f} | {wall} |"
        )


if __name__ == "__main__":
    main()
