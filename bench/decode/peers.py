"""SmolLM2-135M in llama.cpp and in this engine, and clover-nano, side by side in one run.

    python -m bench.decode.peers --llama-server FILE [--holes 20] [--threads 1] [--plot FILE]

Every peer runs in a process of its own; each hole goes to all of them in turn, so that a busy
machine slows all alike. The prompt is the text before a held-out line (about 256 tokens, cut before
its indentation); the peers of SmolLM2 continue it by the same number of tokens, greedily, and the
first line that comes is compared. clover-nano gets the same text, what stands after the hole as
well, and ends by itself.
Times are medians over holes: wall time, and CPU time of the peer's process in brackets.
Without --llama-server the table has no llama.cpp; `make setup-llamacpp` builds one. For a fair
comparison it must be built for this very CPU (GGML_NATIVE=ON, -O3).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import psutil
from bench.suggest.holes import Hole, holes

from clover_engine.checkpoint.known import CANDIDATES
from clover_engine.worker.local import DEFAULT_CHECKPOINT

TOKENS = 24
CONTEXT_CHARS = 800
LLAMA = "llama.cpp, Q4_1"


@dataclass(frozen=True)
class Fill:
    """One hole by one peer: seconds of wall and CPU time."""

    text: str
    prompt_tokens: int
    tokens: int
    prefill_s: float
    prefill_cpu_s: float
    decode_s: float
    decode_cpu_s: float


class Peer(Protocol):
    def fill(self, hole: Hole, prompt: str) -> Fill: ...

    def memory(self) -> int:
        """Peak resident bytes."""


class Embedded:
    """This engine, in this process."""

    def __init__(self, kind: str, threads: int) -> None:
        import torch

        from clover_engine.checkpoint.known import prepare
        from clover_engine.checkpoint.weights import load_model
        from clover_engine.inprocess.embedded import EmbeddedEngine
        from clover_engine.model.quant import Quantization
        from clover_engine.text.tokenizer import Tokenizer

        torch.set_num_threads(threads)
        self.nano = kind == "nano"
        folder = DEFAULT_CHECKPOINT if self.nano else CANDIDATES["smollm2"].folder
        prepare(folder)
        if kind in ("nano", "packed"):
            self.engine = EmbeddedEngine.load(folder, threads)
            return
        options: dict[str, Any] = {
            "float32": {},
            "bfloat16": {"dtype": torch.bfloat16},
            "int8": {"quantize": Quantization(8)},
        }[kind]
        self.engine = EmbeddedEngine(load_model(folder, **options), Tokenizer.load(folder))

    def fill(self, hole: Hole, prompt: str) -> Fill:
        from clover_engine.api import InfillRequest

        request = InfillRequest(prompt, mode="ar", max_tokens=TOKENS)
        if self.nano:
            request = InfillRequest(
                hole.prefix[-CONTEXT_CHARS:], hole.suffix[:CONTEXT_CHARS],
                mode="speculative", max_tokens=TOKENS, stop=("\n",),
            )  # fmt: skip
        first = InfillRequest(request.prefix, request.suffix, mode="ar", max_tokens=1)
        began, cpu = time.perf_counter(), time.process_time()
        read = self.engine.infill(first)
        middle, middle_cpu = time.perf_counter(), time.process_time()
        done = self.engine.infill(request)  # the context is in the cache
        end, end_cpu = time.perf_counter(), time.process_time()
        return Fill(
            done.choices[0].text, read.stats.prefill_tokens, done.stats.tokens,
            middle - began, middle_cpu - cpu, end - middle, end_cpu - middle_cpu,
        )  # fmt: skip

    def memory(self) -> int:
        import resource

        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class LlamaServer:
    """llama.cpp's own server, asked one request at a time."""

    def __init__(self, program: str, threads: int, source: Path | None = None) -> None:
        source = source or CANDIDATES["smollm2"].source
        if source is None:
            raise SystemExit(CANDIDATES["smollm2"].missing())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        options = {
            "-m": source,
            "--port": port,
            "-t": threads,
            "-tb": threads,
            "-c": 2048,
            "-np": 1,
        }
        command = [program, *(str(word) for pair in options.items() for word in pair)]
        self.server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.process = psutil.Process(self.server.pid)
        while self.server.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(
            f"{program} ended with {self.server.returncode}; run it by hand to see why"
        )

    def fill(self, hole: Hole, prompt: str) -> Fill:
        """Read, then continued from the cache, as `Embedded` does."""
        marks = [self.now()]
        read = self.complete(prompt, 1)
        marks.append(self.now())
        done = self.complete(prompt, TOKENS)
        marks.append(self.now())
        (a, a_cpu), (b, b_cpu), (c, c_cpu) = marks
        return Fill(
            done["content"], read["timings"]["prompt_n"], done["timings"]["predicted_n"],
            b - a, b_cpu - a_cpu, c - b, c_cpu - b_cpu,
        )  # fmt: skip

    def memory(self) -> int:
        try:
            return int(self.process.memory_info().rss)
        finally:
            self.close()

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()

    def complete(self, prompt: str, tokens: int, ignore_eos: bool = True) -> dict[str, Any]:
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0.0, "cache_prompt": True,
                "ignore_eos": ignore_eos}  # fmt: skip
        request = urllib.request.Request(
            f"{self.url}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            return dict(json.loads(reply.read()))

    def now(self) -> tuple[float, float]:
        used = self.process.cpu_times()
        return time.perf_counter(), used.user + used.system


def serve(make: Callable[[int], Peer], threads: int, pipe: Connection) -> None:
    """A peer's process: holes in, fills out; None asks for the memory and ends it."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    peer = make(threads)
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        pipe.send(peer.fill(*task))
    pipe.send(peer.memory())


def prompt_of(hole: Hole) -> str:
    """The text before the hole's line, from the beginning of a line on, without trailing blanks."""
    text = hole.prefix.rstrip()
    cut = text.find("\n", max(0, len(text) - CONTEXT_CHARS)) if len(text) > CONTEXT_CHARS else -1
    return text[cut + 1 :]


def measure(peers: dict[str, Callable[[int], Peer]], count: int, threads: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name, make in peers.items():
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(make, threads, theirs), daemon=False).start()
        theirs.close()
        ours.recv()
        pipes[name] = ours
    chosen = holes(count)
    fills: dict[str, list[Fill]] = {name: [] for name in peers}
    for hole in chosen:
        for name, pipe in pipes.items():
            pipe.send((hole, prompt_of(hole)))
            fills[name].append(pipe.recv())
    found = {}
    for name, pipe in pipes.items():
        pipe.send(None)
        found[name] = summary(fills[name], chosen) | {"memory": pipe.recv()}
        found[name]["texts"] = [line_of(fill.text) for fill in fills[name]]
    return found


def line_of(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].rstrip()


def summary(fills: list[Fill], chosen: list[Hole]) -> dict[str, Any]:
    """Medians over the holes, in milliseconds a token and in all."""

    def ms(each: Callable[[Fill], float]) -> float:
        return 1000 * statistics.median(map(each, fills))

    pairs = zip(fills, chosen, strict=True)
    return {
        "exact": sum(line_of(f.text) == h.middle for f, h in pairs) / len(fills),
        "decode_ms": ms(lambda f: f.decode_s / f.tokens),
        "decode_cpu_ms": ms(lambda f: f.decode_cpu_s / f.tokens),
        "prefill_ms": ms(lambda f: f.prefill_s / max(1, f.prompt_tokens)),
        "prefill_cpu_ms": ms(lambda f: f.prefill_cpu_s / max(1, f.prompt_tokens)),
        "item_ms": ms(lambda f: f.prefill_s + f.decode_s),
        "item_cpu_ms": ms(lambda f: f.prefill_cpu_s + f.decode_cpu_s),
    }


def table(results: dict[str, Any]) -> None:
    print(
        "| | exact | same line as llama.cpp | decode, ms a token (CPU) "
        "| prefill, tokens/s of wall (CPU) | time to item, cold, ms (CPU) | memory, MiB |"
    )
    print("|-|-|-|-|-|-|-|")
    reference = results.get(LLAMA, {}).get("texts")
    for name, row in results.items():
        same = "-"
        if reference and "nano" not in name:
            hits = sum(a == b for a, b in zip(row["texts"], reference, strict=True))
            same = f"{100 * hits / len(reference):.0f} %"
        print(
            f"| {name} | {100 * row['exact']:.1f} % | {same} "
            f"| {row['decode_ms']:.1f} ({row['decode_cpu_ms']:.1f}) "
            f"| {1000 / row['prefill_ms']:.0f} ({1000 / row['prefill_cpu_ms']:.0f}) "
            f"| {row['item_ms']:.0f} ({row['item_cpu_ms']:.0f}) | {row['memory'] / 2**20:.0f} |"
        )


def plot(results: dict[str, Any], path: Path) -> None:
    """CPU time a generated token and a read token, by peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(results)
    figure, sides = pyplot.subplots(1, 2, figsize=(9, 0.5 * len(names) + 1.2), sharey=True)
    for side, key, title in zip(
        sides, ("decode_cpu_ms", "prefill_cpu_ms"), ("decoding", "reading"), strict=True
    ):
        bars = side.barh(names, [results[name][key] for name in names])
        side.bar_label(bars, fmt="%.1f", padding=2)
        side.set_xlabel(f"CPU ms a token, {title}")
        side.margins(x=0.15)
    sides[0].invert_yaxis()  # the other one shares it
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--llama-server", help="llama.cpp's server, built for this CPU")
    parser.add_argument("--holes", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    peers: dict[str, Callable[[int], Peer]] = {}
    if args.llama_server:
        peers[LLAMA] = partial(LlamaServer, args.llama_server)
    names = {
        "packed": "4 bits packed",
        "int8": "int8",
        "bfloat16": "bfloat16",
        "float32": "float32",
    }
    for kind, name in names.items():
        peers[f"SmolLM2 here, {name}"] = partial(Embedded, kind)
    peers["clover-nano"] = partial(Embedded, "nano")
    found = measure(peers, args.holes, args.threads)
    table(found)
    if args.plot:
        plot(found, args.plot)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
