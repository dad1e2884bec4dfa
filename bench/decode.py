"""Block decoding against the same weights' AR decoding, side by side in one run.

    python bench/decode.py [--holes 200] [--checkpoint DIR] [--json FILE]

Every hole (a whole line of held-out code) is filled in every mode, in turn, from a warm prefix
cache. `passes/token` counts forward passes after the prefill per generated token, the end of the
hole included; `wall` is the ratio of AR's median time per hole to this mode's, over the same holes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from holes import Hole, holes

from clover_engine.api import InfillRequest
from clover_engine.embedded import EmbeddedEngine
from clover_engine.local import checkpoint_path

MODES: dict[str, dict[str, object]] = {
    "ar": {"mode": "ar"},
    "speculative": {"mode": "speculative"},
    "threshold 0.9": {"mode": "threshold", "threshold": 0.9},
    "threshold 0.7": {"mode": "threshold", "threshold": 0.7},
    "threshold 0.5": {"mode": "threshold", "threshold": 0.5},
    "threshold 0.3": {"mode": "threshold", "threshold": 0.3},
    "threshold 0.2": {"mode": "threshold", "threshold": 0.2},
}


@dataclass
class Row:
    exact: int = 0
    same_as_ar: int = 0
    passes: int = 0
    tokens: int = 0
    times: list[float] = field(default_factory=list)


def request(hole: Hole, options: dict[str, object]) -> InfillRequest:
    return InfillRequest(
        hole.prefix, hole.suffix, max_tokens=31, block_size=16, stop=("\n",), **options
    )  # type: ignore[arg-type]


def run(engine: EmbeddedEngine, chosen: list[Hole]) -> dict[str, Row]:
    rows = {name: Row() for name in MODES}
    for hole in chosen:
        engine.infill(request(hole, MODES["ar"]))
        texts = {}
        for name, options in MODES.items():
            began = time.perf_counter()
            result = engine.infill(request(hole, options))
            row = rows[name]
            row.times.append(time.perf_counter() - began)
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
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    engine = EmbeddedEngine.load(args.checkpoint, args.threads)
    rows = run(engine, holes(args.holes))
    ar = rows["ar"]
    print(f"{args.holes} whole-line holes, {engine.model.parameter_count() / 1e6:.1f}M parameters")
    print("| mode | exact match | same text as AR | passes/token | ms/hole | wall × AR |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        ratios = [a / b for a, b in zip(ar.times, row.times, strict=True)]
        exact, same = 100 * row.exact / args.holes, 100 * row.same_as_ar / args.holes
        wall = f"{sum(ar.times) / sum(row.times):.2f} (median pair {statistics.median(ratios):.2f})"
        print(
            f"| {name} | {exact:.1f} % | {same:.0f} % | {row.passes / row.tokens:.2f} "
            f"| {1000 * statistics.median(row.times):.1f} | {wall} |"
        )
    if args.json:
        args.json.write_text(json.dumps({n: vars(r) for n, r in rows.items()}, indent=1))


if __name__ == "__main__":
    main()
