"""Where the original line of a mutant is among the candidates, without running them.

    python -m bench.fix.mutant_ranks locate --dir WORK --out locations.jsonl
    python -m bench.fix.mutant_ranks rank --dir WORK [--places locations.jsonl] [--half report]
    python -m bench.fix.mutant_ranks fit --dir WORK

`locate` runs each mutant's tests and keeps the suspicious lines. `rank` makes the candidates of
these lines, in the order in which they would be tried, and looks for the edit that restores the
original: how often there is one, and how many would have been tried before it. Without `--places`
it takes the changed line and four others of the same function, all equally suspicious, which says
how good the candidates are apart from the localisation. `fit` counts the
kinds of the restoring edits on the half of the libraries that may be used for tuning, and prints
priors for `clover_patcher/propose/templates.py`.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.fix.mutant_operators import Mutation
from bench.fix.mutants import Mutant, load_mutants

from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.edits import apply_edits
from clover_patcher.locate.localise import localise
from clover_patcher.propose.source import CandidateSource, Options
from clover_patcher.propose.templates import PRIORS
from clover_patcher.repository.git import Repository
from clover_patcher.repository.permission import Permission
from clover_patcher.repository.workspace import Workspace
from clover_patcher.types import Candidate, Location

_MOST_LINES = 500
_FURTHER_S = 60.0
Places = dict[str, list[Location]]


# --- locate -----------------------------------------------------------------------------------


def run_locate(args: argparse.Namespace) -> int:
    mutants = _mutants(args)
    known = read_places(args.out) if args.out.exists() else {}
    for mutant in mutants:
        if mutant.name in known:
            continue
        started = time.monotonic()
        places = locate(mutant, args.dir)
        entry = {
            "mutant": mutant.name,
            "seconds": round(time.monotonic() - started, 2),
            "places": [[at.path, at.line, round(at.score, 5)] for at in places[:_MOST_LINES]],
        }
        with args.out.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        print(f"{mutant.name:16} {len(places):6} lines, the changed one is number "
              f"{place_of(mutant, places)}, {entry['seconds']} s", flush=True)  # fmt: skip
    return 0


def locate(mutant: Mutant, folder: Path) -> list[Location]:
    """The suspicious lines, as `clover_patcher.fix` finds them."""
    with tempfile.TemporaryDirectory(prefix="bench-mutant-") as name:
        root = Path(name) / mutant.library.name
        mutant.plant(folder / "repositories" / mutant.library.name, root)
        repository = Repository.open(root)
        check = Check.parse(mutant.library.check(sys.executable), repository.root)
        with Workspace(repository, trees=1) as workspace:
            allowed = Permission.of(workspace.python_files, (), check.argv).free
            scratch = workspace.scratch / "runner"
            scratch.mkdir()
            with ProgramRunner(
                check, workspace.trees[0], tmp=scratch, original_root=repository.root
            ) as runner:
                baseline, coverage = runner.baseline(), runner.trace()
            everything = () if coverage else sorted(allowed)
            return localise(
                baseline, coverage, everything, lambda path: path not in allowed, workspace.read
            )


def read_places(path: Path) -> Places:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return {e["mutant"]: [Location(p, line, s) for p, line, s in e["places"]] for e in entries}


def place_of(mutant: Mutant, places: Sequence[Location]) -> int | None:
    """How many lines are at least as suspicious as the changed one, itself included."""
    mutation = mutant.mutation
    for at in places:
        if at.path == mutation.path and at.line in _changed(mutation):
            return sum(other.score >= at.score for other in places)
    return None


def _changed(mutation: Mutation) -> tuple[int, ...]:
    """The line, or where it is gone those around it."""
    gone = mutation.operator == "line lost" and not mutation.new
    return (mutation.line - 1, mutation.line) if gone else (mutation.line,)


def _mutants(args: argparse.Namespace) -> list[Mutant]:
    names = [name for name in args.libraries.split(",") if name]
    return load_mutants(args.dir, args.per_library, args.seed, names)


# --- rank -------------------------------------------------------------------------------------


def run_rank(args: argparse.Namespace) -> int:
    rows = []
    started = time.monotonic()
    for mutant, places in _pairs(args):
        found = restoring(mutant, places, args)
        rank, candidate = found if found else (None, None)
        rows.append((mutant, place_of(mutant, places), rank))
        if args.misses and (rank is None or rank > args.late):
            source = _original(mutant, args.dir).splitlines()
            broken = mutant.mutation.apply(_original(mutant, args.dir)).splitlines()
            at = mutant.mutation.line - 1
            kind = candidate.kind if candidate else ""
            print(f"{mutant.name} {mutant.mutation.operator}: rank {rank} {kind}, line "
                  f"{rows[-1][1]}\n  - {broken[at].decode().strip()}\n"
                  f"  + {source[at].decode().strip()}", flush=True)  # fmt: skip
    _print_ranks(rows)
    print(f"{time.monotonic() - started:.0f} s")
    return 0


def _pairs(args: argparse.Namespace) -> list[tuple[Mutant, list[Location]]]:
    mutants = [m for m in _mutants(args) if args.half in ("", m.library.half)]
    if args.places is None:
        return [(mutant, _equal_lines(mutant, args)) for mutant in mutants]
    places = read_places(args.places)
    return [(mutant, places[mutant.name]) for mutant in mutants if mutant.name in places]


def _equal_lines(mutant: Mutant, args: argparse.Namespace) -> list[Location]:
    """The changed line and others of the same function (or, outside functions, of the file)."""
    mutation, original = mutant.mutation, _original(mutant, args.dir)
    broken = ast.parse(mutation.apply(original))
    changed = list(_changed(mutation)[:1])
    around: list[ast.AST] = [
        node
        for node in ast.walk(broken)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= changed[0] <= (node.end_lineno or 0)
    ]
    inside = ast.walk(around[-1] if around else broken)
    lines = {node.lineno for node in inside if isinstance(node, ast.stmt)} - set(changed)
    rng = random.Random(mutant.name)
    lines_there = changed + rng.sample(sorted(lines), min(len(lines), args.lines - 1))
    return [Location(mutation.path, line, 1.0) for line in lines_there]


def restoring(
    mutant: Mutant, places: Sequence[Location], args: argparse.Namespace
) -> tuple[int, Candidate] | None:
    """The place among all candidates of the first one that restores the syntax tree, and it."""
    root = args.dir / "repositories" / mutant.library.name
    files = {at.path: (root / at.path).read_bytes() for at in places}
    original = _original(mutant, args.dir)
    goal = b"".join(original.split())
    tree = ast.dump(ast.parse(original))
    files[mutant.mutation.path] = broken = mutant.mutation.apply(original)
    source = CandidateSource(files, places, None, options=Options(first_wait_s=0, wait_s=0))
    number = 0
    for batch in source.batches(time.monotonic() + _FURTHER_S):
        for candidate in batch:
            number += 1
            if candidate.path == mutant.mutation.path and _near(mutant, candidate):
                after = apply_edits(broken, candidate.edits)
                if b"".join(after.split()) == goal or _dump(after) == tree:
                    return number, candidate
        if number >= args.limit:
            return None
    return None


def _near(mutant: Mutant, candidate: Candidate) -> bool:
    return abs(candidate.line - mutant.mutation.line) <= 2


def _dump(content: bytes) -> str:
    try:
        return ast.dump(ast.parse(content))
    except (SyntaxError, ValueError):
        return ""


def _original(mutant: Mutant, folder: Path) -> bytes:
    root: Path = folder / "repositories" / mutant.library.name
    return (root / mutant.mutation.path).read_bytes()


def _print_ranks(rows: Sequence[tuple[Mutant, int | None, int | None]]) -> None:
    groups: dict[str, list[tuple[Mutant, int | None, int | None]]] = defaultdict(list)
    for row in rows:
        groups[row[0].mutation.operator].append(row)
    print("| operator | mutants | line: median | among candidates | top 10 | top 100 | top 500 "
          "| median |\n|-|-|-|-|-|-|-|-|")  # fmt: skip
    for name, group in [*sorted(groups.items()), ("all", list(rows))]:
        lines = [line if line is not None else math.inf for _, line, _ in group]
        ranks = [rank if rank is not None else math.inf for _, _, rank in group]
        cells = [sum(rank <= top for rank in ranks) for top in (10**9, 10, 100, 500)]
        found, *tops = (f"{cell / len(group):.0%}" for cell in cells)
        print(f"| {name} | {len(group)} | {statistics.median(lines):.0f} | {found} | "
              + " | ".join(tops) + f" | {statistics.median(ranks):.0f} |")  # fmt: skip


# --- fit --------------------------------------------------------------------------------------


def run_fit(args: argparse.Namespace) -> int:
    """Prints each kind's count among restoring edits of the half for tuning, and a prior.

    The prior is the posterior mean of a Dirichlet whose mean is the present prior and that is
    worth as much as `--trust` mutants.
    """
    args.half = "fit"
    kinds: Counter[str] = Counter()
    for mutant, places in _pairs(args):
        if found := restoring(mutant, places, args):
            kinds[found[1].kind] += 1
    total, mass = sum(kinds.values()), sum(PRIORS.values()) - PRIORS["syntax"]
    for kind, prior in sorted(PRIORS.items(), key=lambda item: -kinds[item[0]]):
        new = (kinds[kind] + args.trust * prior / mass) / (total + args.trust)
        print(f'    "{kind}": {mass * new:.3f},  # {kinds[kind]} of {total}, was {prior}')
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.set_defaults(seed=1, half="")
    commands = parser.add_subparsers(required=True)
    found = commands.add_parser("locate", help="suspicious lines of every mutant")
    found.add_argument("--out", type=Path, required=True, help="JSON lines; goes on at its end")
    found.set_defaults(run=run_locate)
    rank = commands.add_parser("rank", help="where the original is among the candidates")
    rank.add_argument("--half", choices=["", "fit", "report"], default="")
    rank.add_argument("--misses", action="store_true", help="print originals found late or never")
    rank.add_argument("--late", type=int, default=500, help="what is late")
    rank.set_defaults(run=run_rank)
    fit = commands.add_parser("fit", help="priors from the half for tuning")
    fit.add_argument("--trust", type=float, default=60.0, help="weight of the present priors")
    fit.set_defaults(run=run_fit)
    for command in (found, rank, fit):
        command.add_argument("--dir", type=Path, required=True, help="as for bench/fix/mutants.py")
        command.add_argument("--per-library", type=int, default=16)
        command.add_argument("--libraries", default="", help="only these, separated by commas")
    for command in (rank, fit):
        command.add_argument("--places", type=Path, help="suspicious lines, from locate")
        command.add_argument("--lines", type=int, default=5, help="so many without --places")
        command.add_argument("--limit", type=int, default=3000, help="candidates looked at")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; 2 where something that must be supplied is missing or wrong."""
    args: Any = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except OSError as exc:
        print(f"bench/fix/mutant_ranks.py: {exc}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
