"""A context of 128K tokens with tiny weights: time a token, memory against the plan.

    python -m bench.decode.long_context [--lengths 8192 32768 131072] [--chunk 512]

Every length runs in a process of its own (so that its peak memory is its own): a hybrid network of
random weights reads the tokens in chunks, then takes denoising steps and AR steps at the end.
`plan` is what `clover_engine.capacity.sizes` says for the caches; `held` is what they hold, their
spare room included; `peak` is the process's growth while reading.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def child(length: int, chunk: int) -> dict[str, float]:
    import torch

    from clover_engine.capacity.sizes import kv_bytes_per_token, state_bytes
    from clover_engine.model import Cache, Clover, CloverConfig

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Clover(
        CloverConfig(
            vocab_size=512, hidden_size=64,
            layer_types=("linear_attention",) * 3 + ("full_attention",),
            num_attention_heads=2, num_key_value_heads=1, head_dim=32, intermediate_size=96,
            output_gate=True, qk_norm=True, linear_num_key_heads=2, linear_num_value_heads=2,
            linear_key_head_dim=16, linear_value_head_dim=32, max_position_embeddings=131072,
            mask_token_id=1,
        )
    ).eval()  # fmt: skip
    tokens = torch.randint(2, 512, (1, length))
    cache = Cache(model.config)
    block = torch.full((1, 1, 16), 1)
    with torch.inference_mode():
        model(tokens[:, :chunk], cache=Cache(model.config))  # warm
        before, began, times = peak(), time.process_time(), []
        for at in range(0, length, chunk):
            since = time.process_time()
            model(tokens[:, at : at + chunk], cache=cache)
            times.append(time.process_time() - since)
        total = time.process_time() - began

        def step(run: object) -> float:
            found = []
            for _ in range(15):
                since = time.process_time()
                run()  # type: ignore[operator]
                found.append(time.process_time() - since)
            return 1000 * statistics.median(found)

        denoise = step(lambda: model(None, block, cache))
        ar = step(lambda: model(tokens[:, :1], cache=cache, update=False))
    edge = max(1, len(times) // 8)
    planned = length * kv_bytes_per_token(model.config, 4) + state_bytes(model.config, 4)
    return {
        "us a token": 1e6 * total / length,
        "first": 1e6 * statistics.median(times[:edge]) / chunk,
        "last": 1e6 * statistics.median(times[-edge:]) / chunk,
        "denoising step ms": denoise,
        "AR step ms": ar,
        "plan MiB": planned / 2**20,
        "held MiB": cache.nbytes() / 2**20,
        "peak MiB": (peak() - before) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 32768, 131072])
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child, args.chunk)))
        return
    rows = {}
    for length in args.lengths:
        command = [
            sys.executable,
            "-m",
            "bench.decode.long_context",
            "--child",
            str(length),
            "--chunk",
            str(args.chunk),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows[length] = json.loads(done.stdout)
    names = list(next(iter(rows.values())))
    print("| tokens | " + " | ".join(names) + " |\n|" + "-|" * (len(names) + 1))
    for length, row in rows.items():
        print(f"| {length} | " + " | ".join(f"{row[n]:.1f}" for n in names) + " |")


if __name__ == "__main__":
    main()
