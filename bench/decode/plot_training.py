"""The loss curve of a training run, from its log.

python -m bench.decode.plot_training RUN/train.jsonl docs/nano-loss.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


def smooth(values: list[float], keep: float = 0.85) -> list[float]:
    """Exponential moving average."""
    out: list[float] = []
    for value in values:
        out.append(value if not out else keep * out[-1] + (1 - keep) * value)
    return out


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    entries = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    train = [e for e in entries if "diffusion" in e]
    val = [e for e in entries if "val_diffusion" in e]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for key, label, color in (
        ("diffusion", "block rows (diffusion)", "C0"),
        ("ar", "clean rows (AR)", "C1"),
        ("ar_middle", "clean rows, hole only", "C2"),
    ):
        tokens = [e["tokens"] / 1e6 for e in train]
        axes.plot(tokens, smooth([e[key] for e in train]), color=color, label=label)
        points = [(e["tokens"] / 1e6, e[f"val_{key}"]) for e in val]
        axes.plot(*zip(*points, strict=True), "o", ms=3, color=color, mfc="none")
    axes.set(xlabel="million tokens", ylabel="nats a token", title="circles: held out")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(sys.argv[2], dpi=120)


if __name__ == "__main__":
    main()
