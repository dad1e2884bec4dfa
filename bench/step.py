"""The time of one forward pass: a denoising step of 16 rows and an AR step after 256 tokens.

python bench/step.py [--threads 2] [--checkpoint DIR]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from clover_engine.local import checkpoint_path
from clover_engine.model import Cache, load_model


def median_ms(run: Callable[[], object], count: int = 60) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[5:])


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load_model(args.checkpoint)
    cache = Cache(model.config)
    model(torch.randint(16, 4000, (1, 256)), cache=cache)
    block = torch.full((1, 1, 16), model.mask_id)
    token = torch.tensor([[100]])
    for name, run in (
        ("denoising step, 16 rows", lambda: model.head(model(None, block, cache)[1])),
        ("AR step, 1 row", lambda: model.head(model(token, cache=cache, update=False)[0])),
    ):
        print(f"{name}: {median_ms(run):.1f} ms (median of 55)")


if __name__ == "__main__":
    main()
