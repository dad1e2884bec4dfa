"""How many editors a GPU serves, and what 1,000 developers cost: a small simulation.

    python -m bench.serving.capacity                                   # H200, floor and assumptions
    python -m bench.serving.capacity --measured steps.json             # fitted to measured passes
    python -m bench.serving.capacity --plot docs/capacity.png --json capacity.json

Simulated editors type real files again (`typist.py`), ask after the language server's own wait,
cancel when they type on, and sometimes accept. One server batches what they ask for
(`batching.py`). Searched for: the largest number of editors for whom the time from the last key to
the item stays below `--p50` and `--p95`, where a typist pauses for a second or more. Items that
came too late count as late; those that the next key ended at once were not waited for.

How long a pass takes is either measured (`--measured`: a JSON list of objects with `sequences`,
`rows`, `history`, `seconds` of one pass; a line over the floor is fitted to it) or derived: the
larger of bytes read / bandwidth and operations / peak, divided by `--efficiency`, plus a constant.
Everything in `Assumptions` is assumed and can be set; the table repeats what was used.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from bench.editor.typist import CHARS_PER_TOKEN, pause, stretches, tokens, wanted
from bench.serving.batching import Clock, Job, Server, Totals

from clover_engine.capacity.plan import GB, Model, find_model, plan
from clover_engine.capacity.sizes import Precision, pass_bytes, pass_flops
from clover_lsp.suggest.debounce import TRIGGERS, Rhythm, wait_s

CONTEXTS = (1024, 32768, 131072)
BLOCKS = (1, 8, 16, 32)
"""1 is plain decoding, token by token."""
DEBOUNCE_S = 0.15
"""The default of the setting `clover.completion.debounceMs`."""
PATIENCE_S = 1.0
"""Whoever pauses for so long looks at what is suggested."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Not measured, unless --measured replaces `efficiency` and `overhead_ms`."""

    memory_gb: float = 141.0
    bandwidth_tb_s: float = 4.8
    peak_tflops: float = 989.0
    bits: int = 16
    efficiency: float = 0.6
    """Of the larger of both floors; kernels, routing and attention lose the rest."""
    overhead_ms: float = 2.0
    """Scheduling and launches of a pass, whatever its size."""
    acceptance: float = 0.8
    """Probability that a drafted token is verified, given that those before it were."""
    taken: float = 0.3
    """Share of shown items that the typist accepts."""
    typed_through: float = 0.2
    """Share of shown items that are typed letter by letter; nothing is asked meanwhile."""
    network_ms: float = 5.0
    new_tokens: int = 48
    """Prompt tokens that a request adds to what the server has of the same editor."""
    moves: float = 0.02
    """Share of requests from another place or file: the whole context is read again."""
    active: float = 0.2
    """Share of developers who type at the busiest time."""
    price_per_hour: float = 3.5
    """Dollars for one GPU."""
    hours_per_month: float = 730.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the table."""

    model: Model
    block: int
    context: int
    assumed: Assumptions

    @property
    def passes_per_step(self) -> int:
        """A block is denoised in one pass and verified in another."""
        return 1 if self.block == 1 else 2

    def pass_s(self, jobs: int, rows: int) -> float:
        """One pass of `jobs` sequences with `rows` rows each over the whole context."""
        assumed = self.assumed
        seconds = floor_s(self.model, assumed, jobs, rows, self.context)
        return seconds / assumed.efficiency + assumed.overhead_ms / 1000

    def step_s(self, jobs: int, prompt: int) -> float:
        """A step of the batch: reading prompts is bound by operations, the rest as it comes."""
        seconds = self.passes_per_step * self.pass_s(jobs, self.block) if jobs else 0.0
        if prompt:
            operations = pass_flops(self.model.config, 1, prompt, self.context // 2)
            peak = self.assumed.peak_tflops * 1e12 * self.assumed.efficiency
            seconds += operations / peak + self.assumed.overhead_ms / 1000
        return seconds

    def steps(self, count: int, choose: Random) -> int:
        """Steps until `count` tokens are there."""
        if self.block == 1:
            return count
        steps = 0
        while count > 0:
            accepted = 0
            while accepted < self.block and choose.random() < self.assumed.acceptance:
                accepted += 1
            count -= accepted + 1  # the verifying pass gives one token of its own
            steps += 1
        return steps


def floor_s(model: Model, assumed: Assumptions, jobs: int, rows: int, history: int) -> float:
    """The least time of a pass: bytes at full bandwidth, or operations at the peak."""
    precision = Precision(assumed.bits)  # type: ignore[arg-type]
    read = pass_bytes(model.config, precision, jobs, rows, history)
    operations = pass_flops(model.config, jobs, rows, history)
    return max(read / (assumed.bandwidth_tb_s * 1e12), operations / (assumed.peak_tflops * 1e12))


def fitted(assumed: Assumptions, model: Model, measured: Sequence[dict[str, Any]]) -> Assumptions:
    """Efficiency and overhead of the line seconds = overhead + floor / efficiency."""
    floors = [floor_s(model, assumed, m["sequences"], m["rows"], m["history"]) for m in measured]
    seconds = [float(m["seconds"]) for m in measured]
    slope, intercept = statistics.linear_regression(floors, seconds)
    if slope <= 0:
        raise SystemExit("capacity: measured passes do not get slower with their size")
    return replace(assumed, efficiency=1 / slope, overhead_ms=max(0.0, 1000 * intercept))


class Office:
    """The editors, the server, and what the editors' users saw."""

    def __init__(self, setting: Setting, editors: int, seed: int = 1) -> None:
        self.setting, self.clock = setting, Clock()
        assumed = setting.assumed
        room = plan(
            setting.model,
            Precision(assumed.bits),  # type: ignore[arg-type]
            int(assumed.memory_gb * GB),
            context=setting.context,
            block_size=setting.block,
        )
        self.most = room.sequences(setting.context)
        held = setting.context * room.kv_per_token + room.state_per_sequence
        self.contexts = max(1, int(room.cache_bytes // held))
        self.server = Server(self.clock, setting.step_s, max(1, self.most))
        self.cached: OrderedDict[int, None] = OrderedDict()
        self.latencies: list[float] = []
        self.asked = self.read_again = 0
        self.measuring = False
        self.editors = [
            Editor(self, number, Random(f"{seed}/{number}")) for number in range(editors)
        ]

    def prompt(self, number: int, choose: Random) -> int:
        """Tokens that the server must read for a request of this editor."""
        held = number in self.cached
        self.cached[number] = None
        self.cached.move_to_end(number)
        while len(self.cached) > self.contexts:
            self.cached.popitem(last=False)
        if held and choose.random() >= self.setting.assumed.moves:
            return self.setting.assumed.new_tokens
        self.read_again += self.measuring
        return self.setting.context

    def saw(self, seconds: float) -> None:
        """Someone who paused got an item after `seconds`, or none before going on."""
        if self.measuring:
            self.latencies.append(seconds)

    def run(self, seconds: float, warm_up: float) -> None:
        """Warms up with full caches, then measures."""
        self.cached.update(dict.fromkeys(range(min(self.contexts, len(self.editors)))))
        for editor in self.editors:
            editor.begin()
        self.clock.run(warm_up)
        self.server.totals = Totals()
        self.measuring = True
        self.clock.run(warm_up + seconds)


class Editor:
    """One typist: a key after a pause, a request where the pause is long enough."""

    def __init__(self, office: Office, number: int, choose: Random) -> None:
        self.office, self.number, self.choose = office, number, choose
        self.places = stretches(choose)
        self.place = next(self.places)
        self.at = self.place.start
        self.key = self.known_until = 0
        self.intervals: deque[float] = deque(maxlen=16)
        self.waited: deque[float] = deque([0.2], maxlen=16)
        self.job: Job | None = None
        self.waits = False

    def begin(self) -> None:
        self.office.clock.after(self.choose.uniform(0, 3), self.typed)

    def typed(self) -> None:
        """A key was typed: what was asked for before is no longer wanted."""
        if self.job is not None:
            self.office.server.cancel(self.job)
            self.job = None
            if self.waits:
                self.office.saw(math.inf)
        self.at += 1
        if self.at >= self.place.end:
            self.place = next(self.places)
            self.at, self.known_until = self.place.start, 0
        self.key += 1
        key, now = self.key, self.office.clock.now
        seconds = pause(self.choose, self.place.text, self.at)
        self.intervals.append(seconds)
        self.office.clock.after(seconds, lambda: self.typed() if key == self.key else None)
        wait = self.wait_s()
        if seconds > wait and self.at >= self.known_until:
            self.office.clock.after(wait, lambda: self.ask(key, now))
            self.waits = seconds >= PATIENCE_S

    def wait_s(self) -> float:
        """The language server's own rule, with its default limit."""
        taken = self.office.setting.assumed.taken
        rhythm = Rhythm(tuple(self.intervals), statistics.median(self.waited), taken)
        line = self.place.text[self.place.text.rfind("\n", 0, self.at) + 1 : self.at]
        immediate = not line.strip() or line.rstrip(" ")[-1] in TRIGGERS
        return min(DEBOUNCE_S, wait_s(rhythm, immediate))

    def ask(self, key: int, begun: float) -> None:
        office, asked = self.office, self.office.clock.now
        text = wanted(self.place.text, self.at)
        office.asked += office.measuring
        steps = office.setting.steps(tokens(text), self.choose)
        prompt = office.prompt(self.number, self.choose)
        self.job = Job(prompt, steps, lambda: self.shown(key, begun, asked, text))
        office.server.submit(self.job)

    def shown(self, key: int, begun: float, asked: float, text: str) -> None:
        """The item arrives; accepting it skips its characters after a moment of reading."""
        self.job = None
        office, assumed = self.office, self.office.setting.assumed
        if key != self.key:
            return
        self.waited.append(office.clock.now - asked)
        if self.waits:
            office.saw(office.clock.now - begun + assumed.network_ms / 1000)
        fate = self.choose.random()
        if assumed.taken <= fate < assumed.taken + assumed.typed_through:
            self.known_until = self.at + len(text)
        if text and fate < assumed.taken:
            self.key += 1
            self.at = min(self.at + len(text), self.place.end) - 1
            office.clock.after(0.2 + 0.02 * len(text) / CHARS_PER_TOKEN, self.typed)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.inf


def simulate(setting: Setting, editors: int, seconds: float, warm_up: float) -> dict[str, Any]:
    """One office for some simulated seconds, longer where few editors type."""
    office = Office(setting, editors)
    seconds = max(seconds, 800 / editors)
    office.run(seconds, warm_up)
    totals = office.server.totals
    return {
        "editors": editors,
        "p50_ms": 1000 * percentile(office.latencies, 0.5),
        "p95_ms": 1000 * percentile(office.latencies, 0.95),
        "requests_per_s": office.asked / seconds,
        "aborted_share": totals.aborted_s / max(1e-9, totals.busy_s),
        "busy": min(1.0, totals.busy_s / seconds),
        "read_again": office.read_again / max(1, office.asked),
        "contexts_held": office.contexts,
        "sequences": office.most,
    }


def largest(setting: Setting, targets_ms: tuple[float, float], seconds: float) -> dict[str, Any]:
    """The largest office that stays below the targets, within 8 %, and what it saw."""
    warm_up = seconds / 4
    alone = simulate(setting, 1, seconds, warm_up)

    def fine(results: dict[str, Any]) -> bool:
        p50, p95 = targets_ms
        return bool(results["p50_ms"] <= p50 and results["p95_ms"] <= p95)

    if not fine(alone):
        return {**alone, "editors": 0}
    best, low, high = alone, 1, 2
    while high <= 8192 and fine(found := simulate(setting, high, seconds, warm_up)):
        best, low, high = found, high, 2 * high
    while high - low > max(1, low // 12):
        middle = (low + high) // 2
        if fine(found := simulate(setting, middle, seconds, warm_up)):
            best, low = found, middle
        else:
            high = middle
    return best


def cost(editors: int, assumed: Assumptions) -> tuple[int, float]:
    """GPUs for 1,000 developers, and dollars a month."""
    if not editors:
        return 0, math.inf
    gpus = math.ceil(1000 * assumed.active / editors)
    return gpus, gpus * assumed.price_per_hour * assumed.hours_per_month


def plot(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for index, block in enumerate(sorted({r["block"] for r in rows})):
        chosen = [r for r in rows if r["block"] == block]
        name = "token by token" if block == 1 else f"blocks of {block}"
        places = [i + 0.2 * index for i in range(len(chosen))]
        axes.bar(places, [r["editors"] for r in chosen], width=0.18, label=name)
    contexts = sorted({r["context"] for r in rows})
    axes.set_xticks([i + 0.3 for i in range(len(contexts))], [f"{c // 1024}k" for c in contexts])
    axes.set(xlabel="context, tokens", ylabel="typing editors a GPU", title=title, yscale="log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="clover-35b-a3b", help="name or folder (%(default)s)")
    parser.add_argument("--p50", type=float, default=300, metavar="MS", help="%(default)s")
    parser.add_argument("--p95", type=float, default=1000, metavar="MS", help="%(default)s")
    parser.add_argument("--seconds", type=float, default=40, help="simulated, for each office")
    parser.add_argument("--measured", type=Path, metavar="FILE")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    for name, value in asdict(Assumptions()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = parser.parse_args()
    model = find_model(args.model)
    assumed = Assumptions(**{name: getattr(args, name) for name in asdict(Assumptions())})
    if args.measured is not None:
        assumed = fitted(assumed, model, json.loads(args.measured.read_text()))
    given = ", ".join(f"{name} {value:g}" for name, value in asdict(assumed).items())
    title = f"{model.name}: p50 below {args.p50:g}, p95 below {args.p95:g} ms"
    print(f"{title}\n{given}\n")
    print("| block | context | pass, one editor | editors | p50/p95 | requests/s | aborted | read "
          "again | busy | GPUs per 1,000 | $ a month |")  # fmt: skip
    print("|-|-|-|-|-|-|-|-|-|-|-|")
    rows = []
    for context in args.contexts:
        for block in args.blocks:
            setting = Setting(model, block, context, assumed)
            found = largest(setting, (args.p50, args.p95), args.seconds)
            gpus, dollars = cost(found["editors"], assumed)
            one = 1000 * setting.pass_s(1, block)
            rows.append({"block": block, "context": context, "pass_ms": one, **found, "gpus": gpus})
            print(
                f"| {block} | {context:,} | {one:.1f} ms | {found['editors']} | "
                f"{found['p50_ms']:.0f}/{found['p95_ms']:.0f} ms | {found['requests_per_s']:.0f} | "
                f"{found['aborted_share']:.0%} | {found['read_again']:.0%} | {found['busy']:.0%} | "
                f"{gpus or 'none'} | {dollars:,.0f} |",
                flush=True,
            )
    if args.json:
        report = {"title": title, "assumed": asdict(assumed)}
        args.json.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    if args.plot:
        plot(rows, args.plot, title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
