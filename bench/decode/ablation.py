"""What the parts of a block row are worth: small models trained alike, one part taken away each.

    python -m bench.decode.ablation --data DIR --out DIR [--steps 300] [--seeds 1]
    python -m bench.decode.ablation --data DIR --out DIR --trained RUN

The second form takes the parts away from a finished `nano` run instead, without training again:
what that model has come to rely on.

Parts: the history unit in the softmax (a_i = -10⁴ takes it away), the convolution's right branch
(kept at 0), the block-size calibration (γ kept at 0). Same data, same steps, same seed. Losses are
nats a token on held-out documents; a finished variant is not trained again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from clover_engine.train.run import PRESETS, Run, apply_ablation

VARIANTS: dict[str, dict[str, bool]] = {
    "all parts": {},
    "history unit off": {"history_unit": False},
    "right branch off": {"right_branch": False},
    "calibration off": {"calibration": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trained", type=Path, help="folder of a finished run of preset nano")
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = replace(
        PRESETS["nano"], hidden=128, layers=3, mlp=256, length=256, batch=8,
        noisy_context_rows=96, steps=args.steps, warmup=30,
    )  # fmt: skip
    print("| variant | seed | diffusion | block 8 | block 16 | block 32 | AR |")
    print("|---|---|---|---|---|---|---|")
    if args.trained:
        for name, switches in VARIANTS.items():
            run = Run(args.data, args.trained, PRESETS["nano"], "cpu")
            apply_ablation(run.model, replace(PRESETS["nano"], **switches))
            report(name, 0, run)
        return
    for seed in range(1, args.seeds + 1):
        for name, switches in VARIANTS.items():
            folder = args.out / f"{name.replace(' ', '-')}-{seed}"
            run = Run(args.data, folder, replace(base, seed=seed, **switches), "cpu")
            run.train()
            report(name, seed, run)


def report(name: str, seed: int, run: Run) -> None:
    by_size = {}
    for size in (8, 16, 32):
        run.p = replace(run.p, block_sizes=(size,), seed=99)
        by_size[size] = run.validate(16)
    mean = sum(float(r.diffusion) for r in by_size.values()) / 3
    cells = " | ".join(f"{float(r.diffusion):.3f}" for r in by_size.values())
    print(f"| {name} | {seed} | {mean:.3f} | {cells} | {float(by_size[16].ar):.3f} |", flush=True)


if __name__ == "__main__":
    main()
