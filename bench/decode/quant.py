"""What 8 and 4 bits cost and gain: quality, size, and the time of passes and of single products.

    python -m bench.decode.quant [--holes 200] [--checkpoint DIR] [--kernels] [--json FILE]

Quality on held-out packages, the same holes for every way of quantising: nats a token of the true
lines (given both sides), exact match of the line that is filled in, agreement with float32's text.
Times are CPU time of one thread, medians of interleaved repetitions, without the fast path
(`model.accelerate`), which has only unquantised weights. `--kernels` measures the products alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from bench.suggest.holes import Hole, holes

from clover_engine.api import InfillRequest, ScoreRequest
from clover_engine.checkpoint.quantize import quantize as write
from clover_engine.checkpoint.weights import load_model
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.model import Cache, Clover
from clover_engine.model.qlinear import product
from clover_engine.model.quant import Quantization, quantize
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.worker.local import checkpoint_path

WAYS: dict[str, Quantization | None] = {
    "float32": None,
    "int8 a row": Quantization(8),
    "int8 groups of 64": Quantization(8, 64),
    "int4 groups of 32": Quantization(4, 32, symmetric=False),
    "int4 groups of 64": Quantization(4, 64, symmetric=False),
    "int4 groups of 128": Quantization(4, 128, symmetric=False),
    "int4 groups of 128, symmetric": Quantization(4, 128),
}
SHAPES = ((256, 256), (512, 256), (4096, 256), (576, 576), (1536, 576), (576, 1536), (49152, 576))
ROWS = (1, 8, 16, 128, 512)


def cpu_medians_ms(runs: Mapping[str, Callable[[], object]], count: int) -> dict[str, float]:
    """CPU time of each, in turn, so that load meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(count + 1):
        for name, run in runs.items():
            began = time.thread_time()
            run()
            times[name].append(1000 * (time.thread_time() - began))
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def quality(engine: EmbeddedEngine, chosen: list[Hole]) -> tuple[float, list[str]]:
    """Nats a token of the true lines, and the lines filled in."""
    nats, tokens, texts = 0.0, 0, []
    for hole in chosen:
        scored = engine.score(ScoreRequest(hole.prefix, hole.suffix, (hole.middle,)))
        assert scored.logprobs[0] is not None
        nats -= scored.logprobs[0]
        tokens += scored.tokens[0]
        request = InfillRequest(
            hole.prefix, hole.suffix, max_tokens=31, mode="speculative", stop=("\n",)
        )
        texts.append(engine.infill(request).choices[0].text.rstrip())
    return nats / tokens, texts


@torch.inference_mode()
def passes(models: Mapping[str, Clover], count: int) -> dict[str, dict[str, float]]:
    """ms of passes of 1, 16 and 128 clean rows after 256 tokens, by way and rows."""
    some = next(iter(models.values()))
    ids = torch.randint(100, some.config.vocab_size - 1, (1, 256))
    caches = {}
    for name, model in models.items():
        caches[name] = Cache(model.config)
        model(ids, cache=caches[name])
    found: dict[str, dict[str, float]] = {name: {} for name in models}
    for rows in (1, 16, 128):

        def run(name: str, rows: int = rows) -> Callable[[], object]:
            model, cache, now = models[name], caches[name], ids[:, :rows]
            return lambda: model.head(model(now, cache=cache, update=False)[0][0, -1:])

        medians = cpu_medians_ms({name: run(name) for name in models}, count)
        for name, value in medians.items():
            found[name][f"{rows} rows, ms"] = round(value, 2)
    return found


@torch.inference_mode()
def kernels() -> dict[str, dict[str, float]]:
    """µs of one product, by shape and rows, and way."""
    ways = ("int8 a row", "int4 groups of 32", "int4 groups of 64")
    found = {}
    for out, columns in SHAPES:
        weight = torch.randn(out, columns) * 0.02
        products = {}
        for way in ways:
            how = WAYS[way]
            assert how is not None
            products[way] = product(quantize(weight, how))
        for rows in ROWS:
            if rows * out * columns > 500_000_000:
                continue
            x = torch.randn(rows, columns)
            narrow, half = x.to(torch.bfloat16), weight.to(torch.bfloat16)
            runs: dict[str, Callable[[], object]] = {
                "float32": lambda x=x, w=weight: x @ w.T,
                "bfloat16": lambda x=narrow, w=half: x @ w.T,
            }
            runs |= {way: lambda x=x, p=products[way]: p(x) for way in ways}
            count = max(5, min(100, 20_000_000 // (rows * out * columns)))
            medians = cpu_medians_ms(runs, count)
            found[f"{out} × {columns}, {rows} rows"] = {
                name: round(1000 * value, 1) for name, value in medians.items()
            }
    return found


def measure(checkpoint: Path, count: int, repetitions: int) -> dict[str, dict[str, float]]:
    tokenizer = Tokenizer.load(checkpoint / "tokenizer.json")
    chosen, models = holes(count), {}
    found: dict[str, dict[str, float]] = {}
    reference: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for way, how in WAYS.items():
            folder, size = checkpoint, 0
            if how is not None:
                folder = Path(name) / way
                write(checkpoint, folder, how)
            size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
            models[way] = load_model(folder)
            nats, texts = quality(EmbeddedEngine(models[way], tokenizer), chosen)
            reference = reference or texts
            exact = sum(t == h.middle for t, h in zip(texts, chosen, strict=True))
            same = sum(a == b for a, b in zip(texts, reference, strict=True))
            found[way] = {
                "MB on disk": round(size / 1e6, 2),
                "nats a token": round(nats, 4),
                "exact match, %": round(100 * exact / count, 2),
                "same text as float32, %": round(100 * same / count, 1),
            }
        for way, times in passes(models, repetitions).items():
            found[way] |= times
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--holes", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--kernels", action="store_true", help="single products, in µs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = kernels() if args.kernels else measure(args.checkpoint, args.holes, args.repetitions)
    names = list(next(iter(rows.values())))
    print(f"| | {' | '.join(names)} |")
    print("|-|" + "-|" * len(names))
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(f'{values[n]:g}' for n in names)} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
