"""The time of one forward pass, the model's own layers against the fast path, in one run.

    python -m bench.decode.step [--threads 2] [--history 400] [--rounds 40] [--checkpoint DIR]

Steps are measured in CPU time of one thread, whatever else the machine does; both paths in turn,
median of the rounds, the best of them in brackets. The prefill is a new context in chunks of 128
tokens: wall time with `--threads`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from clover_engine.checkpoint.weights import load_model
from clover_engine.cpu.accelerate import accelerate
from clover_engine.model import Cache, Clover
from clover_engine.worker.local import checkpoint_path

PREFILL, CHUNK = 1000, 128
PASSES = {  # clean rows, block rows
    "AR step, 1 row": (1, 0),
    "verifying 8 rows": (8, 0),
    "1 row and a block of 5": (1, 5),
    "1 row and a block of 8": (1, 8),
    "denoising step, 16 rows": (0, 16),
    "denoising step, 32 rows": (0, 32),
    "prefill chunk, 128 rows": (128, 0),
}


def ids(model: Clover, count: int) -> torch.Tensor:
    return torch.randint(16, model.config.vocab_size - 16, (1, count))


def step(model: Clover, cache: Cache, clean: int, block: int) -> None:
    """A pass and the logits that decoding needs of it; the cache stays as it is."""
    masks = torch.full((1, 1, block), model.mask_id) if block else None
    text = ids(model, clean) if clean else None
    hidden, noisy = model(text, masks, cache, update=False)
    rows = torch.cat([hidden[0], noisy.reshape(-1, hidden.shape[-1])])
    model.head(rows[-1:] if clean == CHUNK else rows)


def prefill(model: Clover) -> None:
    cache = Cache(model.config)
    for at in range(0, PREFILL, CHUNK):
        model(ids(model, min(CHUNK, PREFILL - at)), cache=cache)


def compare(
    runs: Mapping[str, Callable[[], None]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Milliseconds of every round of each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 2):
        for name, run in runs.items():
            began = clock()
            run()
            times[name].append(1000 * (clock() - began))
    return {name: values[2:] for name, values in times.items()}


def row(name: str, result: dict[str, list[float]]) -> str:
    plain, fast = (statistics.median(result[path]) for path in ("plain", "fast"))
    cells = (f"{statistics.median(v):.2f} ({min(v):.2f})" for v in result.values())
    return f"| {name} | {' | '.join(cells)} | {plain / fast:.1f} |"


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of the prefill")
    parser.add_argument("--history", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    args = parser.parse_args()
    models = {"plain": load_model(args.checkpoint), "fast": load_model(args.checkpoint)}
    preparing = accelerate(models["fast"], args.threads)
    if preparing is not None:
        preparing.join()
    if models["fast"].fused is None:
        parser.error("there is no fast path for this checkpoint here")
    caches = {path: Cache(model.config) for path, model in models.items()}
    torch.set_num_threads(1)
    for path, model in models.items():
        model(ids(model, args.history), cache=caches[path])
    print(f"\n| ms, {args.history} tokens of history | plain | fast | plain / fast |\n|-|-|-|-|")
    for name, (clean, block) in PASSES.items():
        runs = {
            path: partial(step, model, caches[path], clean, block) for path, model in models.items()
        }
        print(row(name, compare(runs, args.rounds, time.thread_time)))
    torch.set_num_threads(args.threads)
    whole = {path: partial(prefill, model) for path, model in models.items()}
    found = compare(whole, max(3, args.rounds // 8), time.perf_counter)
    print(row(f"prefill of {PREFILL}, wall, {args.threads} threads", found))


if __name__ == "__main__":
    main()
