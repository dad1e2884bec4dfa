"""How many real bugs `clover-code fix` repairs, how fast, and after how many validations.

    python -m bench.fix.fix quixbugs --dir QuixBugs [--programs gcd,wrap] [--json result.json]
    python -m bench.fix.fix curve ranked=result.json plain=result-none.json

QuixBugs (https://github.com/jkoppel/QuixBugs, MIT) is not part of this repository: clone it and
name the clone with --dir. Each program becomes a git repository of its own, with the buggy
program, its test and the test's data, and nothing of the corrected programs. A program counts as
fixed when its test passes in a process that the tool did not start, and nothing but the program
was changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_LIST = REPOSITORY.parent / "shared" / "eval" / "quixbugs-dev.txt"
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_VERIFY_S = 60.0
_OVERTIME_S = 60.0


@dataclass
class Result:
    """One program's run. `fixed` is this script's own verdict, not the tool's."""

    program: str
    status: str
    fixed: bool
    seconds: float
    tried: int = 0
    rank: int | None = None
    """How many candidates had been validated when the winner passed, itself included."""
    passing: int = 0
    proposer: str = ""
    """Who found the patch: "template", or "model", and the kind of edit (a model's whole functions
    are "rewrite")."""
    change: str = ""
    patch: str = ""
    correct: bool | None = None
    """Whether the patch also agrees with a reference; None where none was asked."""
    error: str = ""
    engine: dict[str, Any] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; 2 where something that must be supplied is missing."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except FileNotFoundError as exc:
        print(f"bench/fix/fix.py: {exc}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    quixbugs = commands.add_parser("quixbugs", help="repair QuixBugs programs")
    quixbugs.add_argument("--dir", type=Path, default=Path("QuixBugs"), help="clone of QuixBugs")
    quixbugs.add_argument("--list", type=Path, default=DEFAULT_LIST, help="file of program names")
    quixbugs.add_argument("--programs", default="", help="only these, separated by commas")
    quixbugs.add_argument("--budget", type=float, default=120.0, help="seconds per program")
    quixbugs.add_argument("--engine", choices=["embedded", "none"], default="embedded")
    quixbugs.add_argument("--jobs", type=int, default=0, help="passed on to the tool")
    quixbugs.add_argument("--json", type=Path, help="write the results to this file")
    quixbugs.set_defaults(run=run_quixbugs)
    curve = commands.add_parser("curve", help="fixed after N validations, side by side")
    curve.add_argument("results", nargs="+", metavar="[LABEL=]FILE", help="from --json")
    curve.set_defaults(run=run_curve)
    return parser


# --- quixbugs ---------------------------------------------------------------------------------


def run_quixbugs(args: argparse.Namespace) -> int:
    programs = _programs(args)
    results: list[Result] = []
    print(_row("program", "status", "seconds", "tried", "rank", "patch"))
    for program in programs:
        with tempfile.TemporaryDirectory(prefix="bench-fix-") as folder:
            repository = Path(folder) / program
            make_repository(args.dir, program, repository)
            result = repair(program, repository, args)
        results.append(result)
        shown = result.change if result.fixed else result.error or result.change
        rank = "" if result.rank is None else str(result.rank)
        status = "FIXED" if result.fixed else result.status
        seconds = f"{result.seconds:.1f}"
        print(_row(program, status, seconds, str(result.tried), rank, shown), flush=True)
    _print_totals(results)
    if args.json:
        report = {
            "benchmark": "quixbugs",
            "engine": args.engine,
            "budget": args.budget,
            "cores": os.cpu_count(),
            "date": time.strftime("%Y-%m-%d"),
            "results": [asdict(result) for result in results],
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _programs(args: argparse.Namespace) -> list[str]:
    if not (args.dir / "python_programs").is_dir():
        raise FileNotFoundError(
            f"{args.dir} is no clone of QuixBugs: clone it and name the folder with --dir"
        )
    if not args.list.is_file():
        raise FileNotFoundError(f"{args.list} does not exist: name a file with --list")
    lines = [line.strip() for line in args.list.read_text().splitlines()]
    listed = [line for line in lines if line and not line.startswith("#")]
    chosen = [name for name in args.programs.split(",") if name] or listed
    unknown = sorted(set(chosen) - set(listed))
    if unknown:
        raise FileNotFoundError(f"{', '.join(unknown)}: not in {args.list}")
    return chosen


def make_repository(quixbugs: Path, program: str, target: Path) -> None:
    """A git repository with one buggy program, its test and what the test reads."""
    names = [
        f"python_programs/{program}.py",
        f"python_testcases/test_{program}.py",
        "python_testcases/load_testdata.py",
        "python_testcases/node.py",
        "conftest.py",
    ]
    if re.search(r"^(from|import) .*\bnode\b", (quixbugs / names[0]).read_text(), re.MULTILINE):
        names.append("python_programs/node.py")
    if (quixbugs / f"json_testcases/{program}.json").exists():
        names.append(f"json_testcases/{program}.json")
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(quixbugs / name, target / name)
    (target / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "Buggy program"]):
        subprocess.run(["git", *command], cwd=target, check=True, stdout=subprocess.DEVNULL)


def repair(program: str, repository: Path, args: argparse.Namespace) -> Result:
    """Runs the tool, then the test on what it left behind."""
    source = f"python_programs/{program}.py"
    test = f"python_testcases/test_{program}.py"
    command = [
        str(Path(sys.executable).with_name("clover-code")),
        *("fix", "--check", f"{sys.executable} -m pytest -x -q {test}", source),
        *("--json", "--budget", str(args.budget), "--engine", args.engine),
        *(["--jobs", str(args.jobs)] if args.jobs else []),
    ]
    started = time.monotonic()
    try:
        run = subprocess.run(
            command,
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=args.budget + _OVERTIME_S,
        )
    except subprocess.TimeoutExpired:
        return Result(program, "overtime", False, time.monotonic() - started)
    seconds = time.monotonic() - started
    try:
        report = json.loads(run.stdout)
    except ValueError:
        error = (run.stderr or run.stdout).strip().splitlines()[-1:]
        return Result(program, f"exit {run.returncode}", False, seconds, error="".join(error))
    made = report.get("provenance") or {}
    return Result(
        program,
        proposer=" ".join(str(made[key]) for key in ("proposed_by", "kind") if made.get(key)),
        status=str(report.get("status")),
        fixed=_only_changed(repository, source) and _passes(repository, test),
        seconds=seconds,
        tried=int(report.get("candidates_tried") or 0),
        rank=report.get("rank"),
        passing=int(report.get("candidates_passing") or 0),
        change=one_line(report.get("patch") or ""),
        patch=report.get("patch") or "",
        error=str(report.get("error") or ""),
        engine=report.get("engine") or {},
    )


def _only_changed(repository: Path, source: str) -> bool:
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    listing = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return [line[3:] for line in listing.stdout.splitlines()] == [source]


def _passes(repository: Path, test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=repository, env=environment, capture_output=True, timeout=_VERIFY_S
        )
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def one_line(patch: str) -> str:
    """A unified diff's changed lines: `old → new`."""
    removed: list[str] = []
    added: list[str] = []
    for text in patch.splitlines():
        if text.startswith("-") and not text.startswith("---"):
            removed.append(text[1:].strip())
        elif text.startswith("+") and not text.startswith("+++"):
            added.append(text[1:].strip())
    if not removed and not added:
        return ""
    return f"{' / '.join(removed) or '(nothing)'} → {' / '.join(added) or '(nothing)'}"


def _row(program: str, status: str, seconds: str, tried: str, rank: str, patch: str) -> str:
    return f"{program:24} {status:12} {seconds:>7} {tried:>6} {rank:>5}  {patch}"


def _print_totals(results: Sequence[Result]) -> None:
    fixed = [result for result in results if result.fixed]
    seconds = sum(result.seconds for result in results)
    tried = sum(result.tried for result in results)
    print(f"\nfixed {len(fixed)} of {len(results)} in {seconds:.0f} s, {tried} validations")
    who = Counter(
        result.proposer if result.proposer.startswith("model") else "templates" for result in fixed
    )
    print("found by " + ", ".join(f"{name} {count}" for name, count in who.most_common()))
    wrong = [result.program for result in fixed if result.correct is False]
    if wrong:
        print(f"merely plausible: {len(wrong)} ({', '.join(wrong)})")
    claimed = [r.program for r in results if r.status == "fixed" and not r.fixed]
    if claimed:
        print(f"said to be fixed, but the test fails: {', '.join(claimed)}")


# --- curve ------------------------------------------------------------------------------------


def run_curve(args: argparse.Namespace) -> int:
    columns: dict[str, list[int]] = {}
    for item in args.results:
        label, _, name = item.rpartition("=")
        report = json.loads(Path(name).read_text())
        ranks = [_rank(result) for result in report["results"] if result["fixed"]]
        columns[label or f"{Path(name).stem} ({report['engine']})"] = ranks
    width = max(12, *(len(label) for label in columns))
    print(f"{'validations':>12}  " + "  ".join(f"{label:>{width}}" for label in columns))
    for step in STEPS:
        counts = [sum(rank <= step for rank in ranks) for ranks in columns.values()]
        print(f"{step:>12}  " + "  ".join(f"{count:>{width}}" for count in counts))
    print(f"{'all':>12}  " + "  ".join(f"{len(ranks):>{width}}" for ranks in columns.values()))
    return 0


def _rank(result: dict[str, Any]) -> int:
    """Validations until the winner; all of the run's where the tool did not say."""
    return int(result["rank"] if result["rank"] is not None else result["tried"])


if __name__ == "__main__":
    sys.exit(main())
