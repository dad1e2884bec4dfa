"""How many one-line mutants of real libraries `clover-code fix` repairs, and at what cost.

    python -m bench.fix.mutants run --dir WORK --log a.jsonl [--sample 40] [--engine none]
    python -m bench.fix.mutants report [LABEL=]a.jsonl [[LABEL=]b.jsonl ...]
    python -m bench.fix.mutants plot OUT.png [LABEL=]a.jsonl ...

The libraries (`mutant_libraries.py`) are installed with their tests from source distributions,
mutated with the operators of the literature (`mutant_operators.py`), and kept where at least one
test fails. The tool gets the library's whole test suite as its check, a budget, and no place.
A mutant counts as fixed when the suite passes on the patched tree in a process that the tool did
not start and nothing but the mutated file was changed; as exact when the file's syntax tree is
the original's again (`a > b` and `b < a` count as one). `run` goes on where its log ends.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.fix.fix import one_line
from bench.fix.mutant_libraries import LIBRARIES, Library, commit, prepare, source_files
from bench.fix.mutant_operators import Mutation, mutations, spread

STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_TEST_S = 60.0
_OVERTIME_S = 60.0
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation that a test kills."""

    library: Library
    number: int
    mutation: Mutation

    @property
    def name(self) -> str:
        return f"{self.library.name}/{self.number}"

    def plant(self, original: Path, target: Path) -> bytes:
        """A repository whose last commit has the mutation; returns the file's original bytes."""
        shutil.copytree(original, target)
        path = target / self.mutation.path
        source = path.read_bytes()
        path.write_bytes(self.mutation.apply(source))
        commit(target, "Change a line")
        return source


# --- mutants ----------------------------------------------------------------------------------


def load_mutants(folder: Path, per_library: int, seed: int, names: Sequence[str]) -> list[Mutant]:
    """Killed mutants in random order, the libraries in turn; found once, kept in the folder."""
    known = {library.name: library for library in LIBRARIES}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise OSError(f"{', '.join(unknown)}: not in bench/fix/mutant_libraries.py")
    groups = []
    for library in LIBRARIES:
        if not names or library.name in names:
            root = prepare(library, folder)
            group = _killed(library, root, folder, per_library, seed)
            groups.append(random.Random(f"{seed}:{library.name}").sample(group, len(group)))
    return [m for turn in zip_longest(*groups) for m in turn if m is not None]


def _killed(library: Library, root: Path, folder: Path, wanted: int, seed: int) -> list[Mutant]:
    store = folder / "mutants" / f"{library.name}-{seed}-{wanted}.json"
    if store.exists():
        found = [Mutation(**entry) for entry in json.loads(store.read_text())]
    else:
        if run_tests(library, root) is not True:
            raise OSError(f"the tests of {library.archive} fail before anything was changed")
        rng = random.Random(f"{seed}:{library.archive}")
        found = []
        for mutation in spread(_all_mutations(library, root, rng), rng):
            if len(found) == wanted:
                break
            if _kills(library, root, mutation):
                found.append(mutation)
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps([asdict(mutation) for mutation in found], indent=1) + "\n")
    return [Mutant(library, number, mutation) for number, mutation in enumerate(found)]


def _all_mutations(library: Library, root: Path, rng: random.Random) -> dict[str, list[Mutation]]:
    groups: dict[str, list[Mutation]] = defaultdict(list)
    for path in source_files(library, root):
        name = path.relative_to(root).as_posix()
        for operator, group in mutations(name, path.read_bytes(), rng).items():
            groups[operator] += group
    return groups


def _kills(library: Library, root: Path, mutation: Mutation) -> bool:
    """Whether a test fails; one that hangs does not count."""
    with tempfile.TemporaryDirectory(prefix="bench-mutant-") as folder:
        target = Path(folder) / library.name
        shutil.copytree(root, target, ignore=shutil.ignore_patterns(".git"))
        path = target / mutation.path
        path.write_bytes(mutation.apply(path.read_bytes()))
        return run_tests(library, target) is False


def run_tests(library: Library, root: Path) -> bool | None:
    """Whether all tests pass; None where they hang or cannot be run."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *library.tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, timeout=_TEST_S
        )
    except subprocess.TimeoutExpired:
        return None
    return {0: True, 1: False, 2: False}.get(run.returncode)


# --- run --------------------------------------------------------------------------------------


def run_bench(args: argparse.Namespace) -> int:
    """Repairs each mutant and appends what happened to the log."""
    names = [name for name in args.libraries.split(",") if name]
    mutants = load_mutants(args.dir, args.per_library, args.seed, names)
    if args.half:
        mutants = [m for m in mutants if m.library.half == args.half]
    done = {record["mutant"] for record in read_log(args.log)} if args.log.exists() else set()
    for mutant in mutants[: args.sample or None]:
        if mutant.name in done:
            continue
        record = repair(mutant, args)
        with args.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")
        verdict = "EXACT" if record["exact"] else "FIXED" if record["fixed"] else record["status"]
        numbers = f"{record['seconds']:6.1f} {record['tried']:6}"
        row = f"{mutant.name:16} {mutant.mutation.operator:14} {verdict:16} {numbers}"
        print(f"{row}  {record['change']}", flush=True)
    return run_report(argparse.Namespace(logs=[str(args.log)]))


def repair(mutant: Mutant, args: argparse.Namespace) -> Record:
    """Runs the tool on the mutant in a repository of its own."""
    library, mutation = mutant.library, mutant.mutation
    with tempfile.TemporaryDirectory(prefix="bench-mutant-") as folder:
        repository = Path(folder) / library.name
        original = mutant.plant(args.dir / "repositories" / library.name, repository)
        command = [str(Path(sys.executable).with_name("clover-code")), "fix", "--json"]
        command += ["--check", library.check(sys.executable)]
        command += ["--budget", str(args.budget), "--engine", args.engine]
        started = time.monotonic()
        report, error = tool_report(command, repository, args.budget + _OVERTIME_S)
        seconds = time.monotonic() - started
        patched = (repository / mutation.path).read_bytes()
        fixed = _only_changed(repository, mutation.path) and run_tests(library, repository) is True
    line = original.splitlines()[mutation.line - 1].decode().strip()
    broken = mutation.apply(original).splitlines()[mutation.line - 1 : mutation.line]
    return {
        "mutant": mutant.name, "half": library.half, "operator": mutation.operator,
        "path": mutation.path, "line": mutation.line, "original": line,
        "broken": b"".join(broken).decode().strip(), "engine": args.engine,
        "budget": args.budget, "date": time.strftime("%Y-%m-%d"),
        "status": report.get("status", "error"), "fixed": fixed,
        "exact": fixed and _same_tree(patched, original), "seconds": round(seconds, 2),
        "tried": int(report.get("candidates_tried") or 0), "rank": report.get("rank"),
        "passing": int(report.get("candidates_passing") or 0),
        "change": one_line(report.get("patch") or ""), "usage": report.get("engine") or {},
        "error": error or str(report.get("error") or ""),
    }  # fmt: skip


def tool_report(command: Sequence[str], cwd: Path, limit: float) -> tuple[Record, str]:
    """The tool's JSON report, and what went wrong where there is none."""
    try:
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=limit)
        report: Record = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return {"status": "overtime"}, f"did not end within {limit:.0f} s"
    except ValueError:
        return {}, "".join((run.stderr or run.stdout).strip().splitlines()[-1:])
    return report, ""


def _only_changed(repository: Path, source: str) -> bool:
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    listing = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return [line[3:] for line in listing.stdout.splitlines()] == [source]


class _Mirrored(ast.NodeTransformer):
    """`b < a` for `a > b`: the same comparison, written the other way round."""

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        mirrored = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}.get(type(node.ops[0]))
        if mirrored is None or len(node.ops) > 1:
            return node
        return ast.Compare(node.comparators[0], [mirrored()], [node.left])


def _same_tree(first: bytes, second: bytes) -> bool:
    try:
        before, after = (ast.dump(_Mirrored().visit(ast.parse(text))) for text in (first, second))
    except SyntaxError:
        return False
    return before == after


# --- report -----------------------------------------------------------------------------------


def read_log(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _labelled(items: Iterable[str]) -> Iterator[tuple[str, list[Record]]]:
    for item in items:
        label, _, name = item.rpartition("=")
        yield label or Path(name).stem, read_log(Path(name))


def run_report(args: argparse.Namespace) -> int:
    """Tables by library, by operator and by half, and the curve over validations."""
    columns = dict(_labelled(args.logs))
    for label, records in columns.items():
        print(f"\n{label}: {len(records)} mutants")
        _table(records, "half", lambda r: str(r["half"]))
        _table(records, "library", lambda r: str(r["mutant"]).split("/")[0])
        _table(records, "operator", lambda r: str(r["operator"]))
    shared = _shared(columns)
    print(f"\nFixed after N validations, {len(min(shared.values(), key=len))} mutants:")
    print(f"{'validations':>12}  " + "  ".join(f"{label:>12}" for label in columns))
    for step in STEPS:
        counts = [curve(records, step) for records in shared.values()]
        print(f"{step:>12}  " + "  ".join(f"{count:>12}" for count in counts))
    return 0


def _shared(columns: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Of each log the mutants that are in all of them."""
    shared = set.intersection(*({r["mutant"] for r in records} for records in columns.values()))
    return {
        label: [r for r in records if r["mutant"] in shared] for label, records in columns.items()
    }


def _table(records: Sequence[Record], title: str, key: Any) -> None:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    print(
        f"\n| {title} | mutants | fixed | exact | plausible only | median s | median validations |"
    )
    print("|-|-|-|-|-|-|-|")
    rows = [*sorted(groups.items()), ("all", list(records))] if len(groups) > 1 else groups.items()
    for name, group in rows:
        fixed = [r for r in group if r["fixed"]]
        exact = sum(r["exact"] for r in fixed)
        share = f"{len(fixed)} ({len(fixed) / len(group):.0%})"
        seconds = f"{statistics.median(r['seconds'] for r in fixed):.1f}" if fixed else ""
        ranks = f"{statistics.median(r['rank'] or r['tried'] for r in fixed):.0f}" if fixed else ""
        print(f"| {name} | {len(group)} | {share} | {exact} | {len(fixed) - exact} "
              f"| {seconds} | {ranks} |")  # fmt: skip


def curve(records: Iterable[Record], step: int) -> int:
    """How many were fixed by one of the first `step` validations."""
    return sum(r["fixed"] and (r["rank"] or r["tried"]) <= step for r in records)


def run_plot(args: argparse.Namespace) -> int:
    """The share fixed after N validations of the mutants that are in all logs, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), dpi=110)
    for label, records in _shared(dict(_labelled(args.logs))).items():
        ranks = sorted(r["rank"] or r["tried"] for r in records if r["fixed"])
        shares = [100 * (i + 1) / len(records) for i in range(len(ranks))]
        axes.step([1, *ranks, 3000], [0, *shares, shares[-1]], where="post", label=label)
    axes.set(xscale="log", xlim=(1, 3000), ylim=(0, 100), xlabel="validations", ylabel="% fixed")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="repair mutants")
    run.add_argument("--dir", type=Path, required=True, help="folder for downloads and mutants")
    run.add_argument("--log", type=Path, required=True, help="JSON lines; goes on where it ends")
    run.add_argument("--engine", choices=["embedded", "none"], default="embedded")
    run.add_argument("--budget", type=float, default=60.0, help="seconds per mutant")
    run.add_argument("--sample", type=int, default=0, help="only so many mutants, 0 for all")
    run.add_argument("--per-library", type=int, default=16)
    run.add_argument("--libraries", default="", help="only these, separated by commas")
    run.add_argument("--half", choices=["fit", "report"], help="only this half of the libraries")
    run.add_argument("--seed", type=int, default=1)
    run.set_defaults(run=run_bench)
    report = commands.add_parser("report", help="tables from logs")
    report.add_argument("logs", nargs="+", metavar="[LABEL=]LOG")
    report.set_defaults(run=run_report)
    plot = commands.add_parser("plot", help="fixed after N validations, as a picture")
    plot.add_argument("out", type=Path)
    plot.add_argument("logs", nargs="+", metavar="[LABEL=]LOG")
    plot.set_defaults(run=run_plot)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; 2 where something that must be supplied is missing or wrong."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (OSError, subprocess.CalledProcessError) as exc:
        print(f"bench/fix/mutants.py: {exc}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
