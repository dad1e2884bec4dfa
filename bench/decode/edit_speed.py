"""Rewriting existing functions: speculative decoding against AR, in turn on the same weights.

    python -m bench.decode.edit_speed [--edits 24] [--threads 1] [--checkpoint DIR]

An edit is a function of a held-out package in which `train.mutate` changed one line; the changed
function is given as `original`, the true one is wanted. "One line" are the lines of
`bench/decode/decode.py`. Every edit is done from a warm prefix cache, in two ways:

- by the model: same text = AR's, exact = the true text came back. A small model seldom copies a
  whole function, so this says little of what the engine could gain;
- replayed: the clean rows' choice is forced to the true text, everything else is as it is. This is
  the gain once the model is right: an upper bound for an edit of that length.

Ratios are AR's time of the group divided by speculation's: the process's CPU time, which other
work on the machine hardly disturbs, and wall time. At last, what a row of a long pass costs: no
draft can gain more than the inverse.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import torch
from bench.decode.decode import bug
from bench.decode.step import compare, step
from bench.suggest.holes import PACKAGES, files, holes
from torch import Tensor

from clover_engine.api import InfillRequest
from clover_engine.decode import autoregressive, speculative
from clover_engine.decode.common import Generated, Limits, Sampling, Tally
from clover_engine.decode.lookup import Lookup
from clover_engine.inprocess.embedded import EmbeddedEngine
from clover_engine.model import Cache, Clover
from clover_engine.train.mutate import mutate
from clover_engine.worker.local import checkpoint_path

BUCKETS = (24, 64, 128, 256, 401)
"""Tokens of a function: from each of these to below the next; the context holds it twice."""
SPARE = 16
"""Tokens that a rewritten text may be longer than the original."""
BLOCK = 8
ROWS = (6, 12, 24, 48, 64)


@dataclass(frozen=True)
class Edit:
    prefix: str
    original: str
    text: str
    suffix: str


@dataclass
class Row:
    """One way to do the edits of a group."""

    same: int = 0
    exact: int = 0
    tallies: list[Tally] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def passes(self) -> float:
        """Forward passes per token."""
        return sum(t.forward_passes for t in self.tallies) / sum(t.tokens for t in self.tallies)


def functions() -> Iterator[Edit]:
    """Functions of held-out packages in an order by hash, each with one line changed."""
    found = []
    for name, path in files(PACKAGES):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key = hashlib.sha256(f"{name}:{node.lineno}".encode()).hexdigest()
                found.append((key, text, node.lineno - 1, node.end_lineno or node.lineno))
    for key, text, begin, end in sorted(found):
        lines = text.splitlines(keepends=True)
        body = "".join(lines[begin:end]).rstrip("\n")
        indent = body[: len(body) - len(body.lstrip())]
        changed = change(body[len(indent) :], Random(key))
        if changed is not None:
            prefix, suffix = "".join(lines[:begin]) + indent, "\n" + "".join(lines[end:])
            yield Edit(prefix, changed, body[len(indent) :], suffix)


def change(body: str, rng: Random) -> str | None:
    """`body` with a bug in one line below its first; None where no line takes one."""
    lines, names = body.split("\n"), re.findall(r"[A-Za-z_]\w*", body)
    for i in rng.sample(range(1, len(lines)), len(lines) - 1):
        if len(lines[i].strip()) >= 6 and not lines[i].lstrip().startswith(("#", '"', "'")):
            changed = mutate(lines[i], names, rng)
            if changed is not None:
                return "\n".join([*lines[:i], changed, *lines[i + 1 :]])
    return None


def groups(engine: EmbeddedEngine, count: int) -> dict[str, list[Edit]]:
    """`count` edits by the length of what is rewritten."""
    found: dict[str, list[Edit]] = {"one line": []}
    for hole in holes(4 * count):
        if (changed := bug(hole)) is not None and len(found["one line"]) < count:
            found["one line"].append(Edit(hole.prefix, changed, hole.middle, hole.suffix))
    ranges = {f"{a}-{b - 1}": range(a, b) for a, b in zip(BUCKETS, BUCKETS[1:], strict=False)}
    found |= {name: [] for name in ranges}
    for edit in functions():
        size = len(engine.tok.encode(edit.original))
        name = next((name for name, sizes in ranges.items() if size in sizes), None)
        if name is not None and len(found[name]) < count:
            found[name].append(edit)
        if all(len(edits) == count for edits in found.values()):
            break
    return found


@dataclass(frozen=True)
class Replayed(Sampling):
    """Greedy sampling whose clean rows choose `truth` [tokens], whatever the model says.

    It is told of every pass as a forward hook, and so knows which rows of the logits are clean.
    """

    truth: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    cache: Cache | None = None
    context: int = 0
    clean: list[int] = field(default_factory=lambda: [1])
    """Clean rows of the last pass; of the context, the last."""

    def watch(self, _model: torch.nn.Module, _given: object, made: tuple[Tensor, Tensor]) -> None:
        """The forward hook."""
        self.clean[0] = made[0].shape[1]

    def probabilities(self, logits: Tensor) -> Tensor:
        probs = super().probabilities(logits)
        assert self.cache is not None
        count = self.clean[0]
        first = self.cache.length - self.context + 1 - count
        places = torch.arange(first, first + count).clamp(max=len(self.truth) - 1)
        rows = probs if probs.dim() > 1 else probs[None]
        rows[torch.arange(count), self.truth[places]] = 2.0  # above any other's
        return probs


def replay(engine: EmbeddedEngine, edit: Edit, mode: str) -> tuple[Generated, Tally, float, float]:
    """Decodes the true text; also the CPU and the wall time after the prefill, in seconds."""
    tok, prompt, model = engine.tok, engine.prompt, engine.model
    original = tok.encode(edit.original)
    truth = torch.tensor([*tok.encode(edit.text), prompt.eom])
    limit = len(truth) + SPARE
    context = prompt.context(edit.prefix, edit.suffix, edit.original, (), limit + 1)
    limits, tally = Limits(limit, frozenset({prompt.eom, prompt.pad})), Tally()
    start, _ = engine.prefix.start(context, limits, Tally())
    forced = Replayed(0.0, 1.0, engine.ban_clean, truth, start.cache, len(context))
    hook = model.register_forward_hook(forced.watch)
    cpu, wall = time.process_time(), time.perf_counter()
    if mode == "ar":
        out = autoregressive.decode(model, start, limits, forced, tally)
    else:
        lookup = Lookup([*original, prompt.eom], context)
        out = speculative.decode(
            model, start, limits, forced, tally, block_size=BLOCK, lookup=lookup,
            ride=not engine.plain or model.config.block_shift > 0,
        )  # fmt: skip
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    hook.remove()
    if [*out.tokens, prompt.eom] != truth.tolist():
        raise AssertionError("the replayed text is not the true one")
    return out, tally, cpu, wall


def by_model(engine: EmbeddedEngine, edit: Edit, mode: str) -> tuple[str, Tally, float, float]:
    """The engine's answer; also the CPU and the wall time of the request, in seconds."""
    line = "\n" not in edit.original
    size = len(engine.tok.encode(edit.original))
    request = InfillRequest(
        edit.prefix, edit.suffix, original=edit.original, max_tokens=size + SPARE,
        stop=("\n",) if line else (), mode="ar" if mode == "ar" else "speculative",
        block_size=BLOCK,
    )  # fmt: skip
    cpu, wall = time.process_time(), time.perf_counter()
    result = engine.infill(request)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    stats = result.stats
    return result.choices[0].text, Tally(stats.forward_passes, stats.tokens), cpu, wall


@torch.inference_mode()
def run(engine: EmbeddedEngine, edits: list[Edit]) -> tuple[dict[str, Row], dict[str, Row]]:
    """Rows of "ar" and "speculative": by the model, and replayed."""
    model, replayed = ({mode: Row() for mode in ("ar", "speculative")} for _ in range(2))
    for i, edit in enumerate(edits):
        by_model(engine, edit, "speculative")  # the prefix is warm from here on
        modes = ("ar", "speculative") if i % 2 else ("speculative", "ar")
        texts = {}
        for mode in modes:
            texts[mode], *figures = by_model(engine, edit, mode)
            count(model[mode], *figures)
            model[mode].exact += texts[mode].rstrip() == edit.text.rstrip()
            count(replayed[mode], *replay(engine, edit, mode)[1:])
        model["speculative"].same += texts["ar"] == texts["speculative"]
    return model, replayed


def count(row: Row, tally: Tally, cpu: float, wall: float) -> None:
    row.tallies.append(tally)
    row.cpu.append(cpu)
    row.wall.append(wall)


def gains(rows: dict[str, Row]) -> str:
    """Cells: passes per token, and AR's time divided by speculation's."""
    ar, fast = rows["ar"], rows["speculative"]
    pairs = statistics.median(a / b for a, b in zip(ar.cpu, fast.cpu, strict=True))
    cpu, wall = sum(ar.cpu) / sum(fast.cpu), sum(ar.wall) / sum(fast.wall)
    return f"{fast.passes:.3f} | {cpu:.2f} ({pairs:.2f}) | {wall:.2f}"


@torch.inference_mode()
def row_costs(model: Clover, history: int = 400) -> None:
    """Prints what a row costs in passes of several, in steps of one row."""
    cache = Cache(model.config)
    model(torch.randint(16, model.config.vocab_size - 16, (1, history)), cache=cache)
    runs = {rows: partial(step, model, cache, rows, 0) for rows in (1, *ROWS)}
    found = compare({str(rows): run for rows, run in runs.items()}, 40, time.thread_time)
    cost = {int(rows): statistics.median(times) for rows, times in found.items()}
    print(f"\n| rows of a pass | ms ({history} of history) | steps a row | no gain above |")
    print("|-|-|-|-|")
    for rows, spent in cost.items():
        share = spent / cost[1] / rows
        print(f"| {rows} | {spent:.2f} | {share:.3f} | {1 / share:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--edits", type=int, default=24, help="of each length (default: 24)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    args = parser.parse_args()
    engine = EmbeddedEngine.load(args.checkpoint, args.threads)
    figures = "passes/token | CPU × AR (median pair) | wall × AR |"
    print(f"| tokens | edits | same text | exact | {figures} replayed: {figures}")
    print("|-" * 10 + "|")
    for name, edits in groups(engine, args.edits).items():
        model, replayed = run(engine, edits)
        same, exact = (
            100 * part / len(edits) for part in (model["speculative"].same, model["ar"].exact)
        )
        print(f"| {name} | {len(edits)} | {same:.0f} % | {exact:.0f} % | {gains(model)} "
              f"| {gains(replayed)} |", flush=True)  # fmt: skip
    row_costs(engine.model)


if __name__ == "__main__":
    main()
