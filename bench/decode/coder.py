"""Qwen2.5-Coder in this engine and in llama.cpp with the same file, side by side in one run.

    python -m bench.decode.coder --llama-server FILE [--model coder-0.5b] [--holes 12] [--threads 1]

llama-server must be built for this very CPU (GGML_NATIVE=ON, -O3). Each peer has a process of its
own; each hole of held-out code goes to both in turn, so that a busy machine slows both alike. The
prompt is the model's own hole-filling layout, 1,600 characters before the hole and 400 after it.

*cold*: an unseen context, up to 16 tokens. *warm*: the same with three more characters typed.
*decode*: time a token of 24 more tokens, the context being in the cache. *prefill*: time a token of
the cold context. Times are medians over holes of wall time, and of the process's CPU time in
brackets. *same*: holes whose first line is the same text.

The second table is look-up drafts against decoding one by one, of this engine alone: a function
rewritten with one change, through chat, and lines that a repository has elsewhere.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from bench.decode.peers import LlamaServer
from bench.suggest.holes import Hole, holes

from clover_engine.api import InfillRequest
from clover_engine.checkpoint.catalog import OFFERED
from clover_engine.clients.fim import TEMPLATES, FimParts

BEFORE, AFTER, ITEM, MORE = 1600, 400, 16, 24
Sample = dict[str, Any]


class Ours:
    def __init__(self, name: str, threads: int) -> None:
        from clover_engine.inprocess.embedded import EmbeddedEngine

        self.engine = EmbeddedEngine.load(OFFERED[name].path, threads)

    def ask(self, prefix: str, suffix: str, tokens: int) -> tuple[str, int, int]:
        """Text, tokens read, tokens written."""
        done = self.engine.infill(InfillRequest(prefix, suffix, mode="ar", max_tokens=tokens))
        return done.choices[0].text, done.stats.prefill_tokens, done.stats.tokens

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def memory(self) -> int:
        return resident(os.getpid())


class Llama:
    def __init__(self, program: str, name: str, threads: int) -> None:
        self.server = LlamaServer(program, threads, OFFERED[name].path)

    def ask(self, prefix: str, suffix: str, tokens: int) -> tuple[str, int, int]:
        prompt = TEMPLATES["qwen"].prompt(FimParts(prefix, suffix))
        done = self.server.complete(prompt, tokens, ignore_eos=False)
        timings = done["timings"]
        return done["content"], timings["prompt_n"], timings["predicted_n"]

    def now(self) -> tuple[float, float]:
        return self.server.now()

    def memory(self) -> int:
        size = resident(self.server.server.pid)
        self.server.close()
        return size


def resident(pid: int) -> int:
    """Proportional resident bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = [line.split() for line in file]
    return 1024 * sum(int(line[1]) for line in lines if line[0] == "Pss:")


def one_hole(peer: Ours | Llama, hole: Hole) -> Sample:
    prefix, suffix = hole.prefix[-BEFORE:], hole.suffix[:AFTER]
    marks = [peer.now()]
    cold = peer.ask(prefix, suffix, 1)
    marks.append(peer.now())
    text, _, written = peer.ask(prefix, suffix, MORE)
    marks.append(peer.now())
    peer.ask(prefix + hole.middle[:3], suffix, ITEM)
    marks.append(peer.now())
    times = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(marks, marks[1:], strict=False)]
    per_token = [t / max(1, written) for t in times[1]]
    return {
        "text": text, "prefill": [t / max(1, cold[1]) for t in times[0]], "decode": per_token,
        "cold": [a + ITEM * b for a, b in zip(times[0], per_token, strict=True)],
        "warm": list(times[2]), "read": cold[1],
    }  # fmt: skip


def serve(make: Any, threads: int, pipe: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    peer = make(threads)
    one_hole(peer, Hole("", "", "x = 1\n", "y", "\n"))
    pipe.send("ready")
    while (task := pipe.recv()) is not None:
        pipe.send(one_hole(peer, task))
    pipe.send(peer.memory())


def measure(peers: dict[str, Any], chosen: list[Hole], threads: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name, make in peers.items():
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(make, threads, theirs)).start()
        theirs.close()
        ours.recv()
        pipes[name] = ours
    found: dict[str, Any] = {name: {"samples": []} for name in peers}
    for hole in chosen:
        for name, pipe in pipes.items():
            pipe.send(hole)
            found[name]["samples"].append(pipe.recv())
    for name, pipe in pipes.items():
        pipe.send(None)
        found[name]["memory"] = pipe.recv()
    return found


def table(results: dict[str, Any]) -> None:
    print("| | prefill, ms a token | decode, ms a token | cold item, ms | warm item, ms | "
          "memory, MiB | same |")  # fmt: skip
    print("|-|-|-|-|-|-|-|")
    lines = [[s["text"].strip().split("\n")[0] for s in row["samples"]] for row in results.values()]
    same = sum(a == b for a, b in zip(lines[0], lines[-1], strict=True))
    for name, row in results.items():
        cells = []
        for key in ("prefill", "decode", "cold", "warm"):
            wall, cpu = (
                1000 * statistics.median(s[key][i] for s in row["samples"]) for i in (0, 1)
            )
            cells.append(f"{wall:.1f} ({cpu:.1f})")
        print(f"| {name} | {' | '.join(cells)} | {row['memory'] / 2**20:.0f} | "
              f"{same} of {len(lines[0])} |")  # fmt: skip


REWRITE = '''\
def load_settings(path, defaults=None):
    """Reads settings from a file of key = value lines."""
    settings = dict(defaults or {})
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, found, value = line.partition("=")
            if not found:
                raise ValueError(f"{path}:{number}: no value for {name!r}")
            settings[name.strip()] = value.strip()
    return settings
'''


def drafts(name: str, threads: int, tokens: int) -> None:
    import clover_engine

    with clover_engine.load(name, threads=threads) as model:
        question = (
            f"Rename the argument `defaults` to `base`. Answer with the code only.\n{REWRITE}"
        )
        rows = {}
        for mode in ("ar", "speculative"):
            model.generate(question, mode=mode, max_new_tokens=1, thinking=False)
            began, cpu = time.perf_counter(), time.process_time()
            done = model.generate(question, mode=mode, max_new_tokens=tokens, thinking=False)
            rows[mode] = (time.perf_counter() - began, time.process_time() - cpu, done)
        plain, drafted = rows["ar"], rows["speculative"]
        wall, cpu = (plain[i] / drafted[i] for i in (0, 1))
        stats, same = drafted[2].stats, plain[2].text == drafted[2].text
        passes = f"{stats.forward_passes} passes for {stats.tokens} tokens"
        print(f"rewrite: {wall:.2f} times as fast ({cpu:.2f} by CPU), {passes}, same: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--llama-server", help="llama.cpp's server, built for this CPU")
    parser.add_argument("--model", default="coder-0.5b", choices=("coder-0.5b", "coder-1.5b"))
    parser.add_argument("--holes", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rewrite-tokens", type=int, default=160)
    args = parser.parse_args()
    peers: dict[str, Any] = {"here": partial(Ours, args.model)}
    if args.llama_server:
        peers["llama.cpp"] = partial(Llama, args.llama_server, args.model)
    if args.holes:
        table(measure(peers, holes(args.holes), args.threads))
    if args.rewrite_tokens:
        drafts(args.model, args.threads, args.rewrite_tokens)


if __name__ == "__main__":
    main()
