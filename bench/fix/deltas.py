"""What the model and the token counts say about the repair of a broken line, against what stands.

    python -m bench.fix.deltas gather --out rows.jsonl [--set fitted|measured] [--cases 60]
    python -m bench.fix.deltas fit fitted.jsonl            # weights of propose/rank.py
    python -m bench.fix.deltas report measured.jsonl [--fit fitted.jsonl]

A line of a package's function is mutated (`mutant_operators.py`), and it and `--lines` - 1 others
of the function are equally suspicious. The first `--limit` candidates in the order of the templates
are looked at: each has its log prior, the model's log p(candidate) − log p(what stands there), and
the same by the counts of file and repository, with the lines in question counted out. The repair
is the candidate that restores the syntax tree. `report` prints the mean natural logarithm of its
rank for several ways to weigh these, over the cases that have it among the candidates. No test is
run, so a mutant need not be killed; packages for fitting and for measuring are those of
``bench/suggest/packages.py``. `gather` goes on where its file ends.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.fix.mutant_operators import Mutation, mutations
from bench.suggest.packages import FITTED, MEASURED, sources

from clover_engine.api import Engine, ScoreRequest
from clover_engine.statistics.cutter import cutter
from clover_engine.statistics.edits import FileStatistics
from clover_engine.statistics.grams import Grams
from clover_patcher.edits import apply_edits
from clover_patcher.propose.changes import LineChange, line_change
from clover_patcher.propose.source import CandidateSource, Options
from clover_patcher.types import Candidate, Location

CLIP = 8.0
_NEAR = 20_000
WAYS = {
    "templates": ("prior",),
    "+ model delta": ("prior", "model"),
    "+ cache delta": ("prior", "cache"),
    "+ model and cache delta": ("prior", "model", "cache"),
}


@dataclass(frozen=True)
class Row:
    """One candidate. Deltas in nats; None where the model was not asked."""

    line: int
    prior: float
    model: float | None
    cache: float
    goal: bool


@dataclass(frozen=True)
class Case:
    name: str
    operator: str
    line: int
    rows: tuple[Row, ...]


def planned(packages: Sequence[str], count: int) -> Iterator[tuple[str, str, Mutation]]:
    """(package, file, mutation): packages in turn, files and operators at random."""
    texts = {p: [s for s in sources(p) if 1500 < len(s[1]) < 40_000] for p in packages}
    for number in range(count):
        package = packages[number % len(packages)]
        rng = random.Random(f"{package}:{number}")
        while True:
            name, text = rng.choice(texts[package])
            try:
                groups = mutations(name, text.encode(), rng)
            except (SyntaxError, ValueError):
                continue
            inside = [m for g in sorted(groups) for m in groups[g] if _function(text, m.line)]
            kinds = sorted({m.operator for m in inside})
            if kinds:
                kind = rng.choice(kinds)
                yield package, text, rng.choice([m for m in inside if m.operator == kind])
                break


def _function(text: str, line: int) -> ast.AST | None:
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno < line <= (node.end_lineno or 0)
    ]
    return around[-1] if around else None


def case(
    number: int, package: str, text: str, mutation: Mutation, engine: Engine | None,
    repository: Grams, args: argparse.Namespace,
) -> Case:  # fmt: skip
    broken = mutation.apply(text.encode())
    found = _candidates(broken, _suspects(broken.decode(), mutation, args.lines), args.limit)
    changes = [_change(broken, c) for c in found]
    model = _model_deltas(engine, [c for c, _, _ in changes]) if engine else [None] * len(found)
    counts = FileStatistics(broken.decode(), cutter(), repository, text)
    cache = [counts.delta(*span, new) for _, span, new in changes]
    tree = ast.dump(ast.parse(text))
    rows = tuple(
        Row(c.line, c.priority, m, s, _restores(broken, c, mutation.line, tree))
        for c, m, s in zip(found, model, cache, strict=True)
    )
    return Case(f"{number} {mutation.path}:{mutation.line}", mutation.operator, mutation.line, rows)


def _suspects(broken: str, mutation: Mutation, count: int) -> list[Location]:
    """The changed line (the one before it, where it is lost) and others of the function."""
    gone = mutation.operator == "line lost" and not mutation.new
    line = mutation.line - 1 if gone else mutation.line
    node = _function(broken, mutation.line) or ast.parse(broken)
    lines = {n.lineno for n in ast.walk(node) if isinstance(n, ast.stmt)} - {line}
    rng = random.Random(f"{mutation.path}:{line}")
    picked = rng.sample(sorted(lines), min(len(lines), count - 1))
    return [Location(mutation.path, at, 1.0) for at in (line, *picked)]


def _candidates(broken: bytes, places: list[Location], limit: int) -> list[Candidate]:
    files = {places[0].path: broken}
    source = CandidateSource(files, places, None, options=Options(first_wait_s=0, wait_s=0))
    found: list[Candidate] = []
    for batch in source.batches(time.monotonic() + 600):
        found += batch
        if len(found) >= limit:
            break
    return found[:limit]


def _change(broken: bytes, candidate: Candidate) -> tuple[LineChange, tuple[int, int], str]:
    (edit,) = candidate.edits
    start = len(broken[: edit.start].decode())
    end = start + len(broken[edit.start : edit.end].decode())
    new = edit.new.decode() if isinstance(edit.new, bytes) else edit.new
    return line_change(broken.decode(), start, end, new), (start, end), new


def _model_deltas(engine: Engine, changes: Sequence[LineChange]) -> list[float | None]:
    holes: dict[tuple[str, str, str], list[int]] = {}
    for number, change in enumerate(changes):
        holes.setdefault((change.prefix, change.old, change.suffix), []).append(number)
    deltas: list[float | None] = [None] * len(changes)
    for (prefix, old, suffix), numbers in holes.items():
        texts = tuple(dict.fromkeys([old, *(changes[n].new for n in numbers)]))
        request = ScoreRequest(prefix[-_NEAR:], suffix[:_NEAR], texts, old)
        scores = dict(zip(texts, engine.score(request).logprobs, strict=True))
        for number in numbers:
            score, stands = scores[changes[number].new], scores[old]
            if score is not None and stands is not None:
                deltas[number] = score - stands
    return deltas


def _restores(broken: bytes, candidate: Candidate, line: int, tree: str) -> bool:
    near = abs(candidate.line - line) <= 2
    return near and _tree(apply_edits(broken, candidate.edits)) == tree


def _tree(content: bytes) -> str:
    try:
        return ast.dump(ast.parse(content))
    except (SyntaxError, ValueError):
        return ""


# --- weights ----------------------------------------------------------------------------------


def matrix(one: Case, names: Sequence[str]) -> tuple[Any, int]:
    """Features [candidates, names] and the repair's number."""
    clip = lambda x: 0.0 if x is None else max(-CLIP, min(CLIP, x))  # noqa: E731
    table = {
        "prior": [r.prior for r in one.rows],
        "model": [clip(r.model) for r in one.rows],
        "cache": [clip(r.cache) for r in one.rows],
    }
    goal = next(i for i, r in enumerate(one.rows) if r.goal)
    return np.array([table[name] for name in names]).T, goal


def fitted(cases: Sequence[Case], names: Sequence[str]) -> Any:
    """Weights that make the repairs most probable (conditional logit), by gradient descent."""
    data = [matrix(one, names) for one in cases]
    weights = np.array([1.0] + [0.2] * (len(names) - 1))
    for _ in range(1500):
        gradient = 0.01 * weights
        for x, goal in data:
            s = x @ weights
            p = np.exp(s - s.max())
            p /= p.sum()
            gradient = gradient + (p @ x - x[goal]) / len(data)
        weights = weights - 0.03 * gradient
    return weights


def rank(one: Case, names: Sequence[str], weights: Any) -> float:
    x, goal = matrix(one, names)
    s = x @ weights
    return 1 + float((s > s[goal]).sum()) + 0.5 * float((s == s[goal]).sum() - 1)


def line_found(one: Case, feature: str) -> bool:
    """Whether the best delta of all candidates is one of the broken line's."""
    rows = [r for r in one.rows if getattr(r, feature) is not None]
    best = max(rows, key=lambda r: getattr(r, feature), default=None)
    return best is not None and abs(best.line - one.line) <= 0


def read(path: Path) -> list[Case]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [Case(**{**e, "rows": tuple(Row(**r) for r in e["rows"])}) for e in entries]


def run_gather(args: argparse.Namespace) -> None:
    from clover_engine.worker.local import LocalEngine, checkpoint_path

    engine = None if args.engine == "none" else LocalEngine(args.checkpoint or checkpoint_path(), 1)
    packages = FITTED if args.set == "fitted" else MEASURED
    known = len(args.out.read_text().splitlines()) if args.out.exists() else 0
    grams: dict[str, Grams] = {}
    for number, (package, text, mutation) in enumerate(planned(packages, args.cases)):
        if number < known:
            continue
        if package not in grams:
            grams[package] = Grams.of(cutter().cut(t) for _, t in sources(package))
        started = time.monotonic()
        one = case(number, package, text, mutation, engine, grams[package], args)
        with args.out.open("a") as out:
            out.write(json.dumps(asdict(one)) + "\n")
        print(one.name, one.operator, len(one.rows), any(r.goal for r in one.rows),
              f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip


def run_fit(args: argparse.Namespace) -> None:
    cases = [c for c in read(args.rows) if any(r.goal for r in c.rows)]
    for way, names in WAYS.items():
        weights = fitted(cases, names)
        print(way, {n: round(float(w), 3) for n, w in zip(names, weights, strict=True)})


def run_report(args: argparse.Namespace) -> None:
    every = read(args.rows)
    cases = [c for c in every if any(r.goal for r in c.rows)]
    base = [c for c in read(args.fit) if any(r.goal for r in c.rows)]
    print(f"{len(every)} mutants, {len(cases)} with the repair among the candidates; weights from "
          f"{len(base)} others\n| | mean log rank | MRR | first |\n|-|-|-|-|")  # fmt: skip
    for way, names in WAYS.items():
        weights = fitted(base, names)
        ranks = [rank(c, names, weights) for c in cases]
        logs = [math.log(r) for r in ranks]
        error = float(np.std(logs)) / math.sqrt(len(logs))
        mrr = np.mean([1 / r for r in ranks])
        print(f"| {way} | {np.mean(logs):.3f} ± {error:.3f} | {mrr:.3f} | "
              f"{sum(r == 1 for r in ranks) / len(ranks):.0%} |")  # fmt: skip
    for feature in ("model", "cache"):
        share = sum(line_found(c, feature) for c in every) / len(every)
        print(f"the best {feature} delta is on the broken line: {share:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    gather = commands.add_parser("gather")
    gather.add_argument("--out", type=Path, required=True)
    gather.add_argument("--set", choices=["fitted", "measured"], default="fitted")
    gather.add_argument("--cases", type=int, default=60)
    gather.add_argument("--lines", type=int, default=5)
    gather.add_argument("--limit", type=int, default=300)
    gather.add_argument("--engine", choices=["none", "local"], default="local")
    gather.add_argument("--checkpoint", type=Path, help="another model than the shipped one")
    gather.set_defaults(run=run_gather)
    fit = commands.add_parser("fit")
    fit.set_defaults(run=run_fit)
    report = commands.add_parser("report")
    report.add_argument("--fit", type=Path, required=True, help="rows that weights are fitted on")
    report.set_defaults(run=run_report)
    for command in (fit, report):
        command.add_argument("rows", type=Path)
    args: Any = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
