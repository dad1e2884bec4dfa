"""How many real bug-fix commits of public projects `clover-code fix` repairs.

    python -m bench.fix.commits find --dir WORK [--projects dateutil/dateutil] [--wanted 4]
    python -m bench.fix.commits run --dir WORK --log a.jsonl [--engine none] [--budget 60]
    python -m bench.fix.commits judge --dir WORK --log a.jsonl
    python -m bench.fix.commits report [LABEL=]a.jsonl [[LABEL=]b.jsonl ...]

`commits.json` names the commits; WORK gets the projects' histories (`--mirrors DIR` names a folder
that has them) and an environment with what their tests need. Each case is the parent's tree with
the commit's tests, in a repository of one commit; the tool gets the failing tests as its check and
no place. A case counts as fixed when those tests pass in a process that the tool did not start and
nothing but non-test files was changed; as *plausible by the suite* when every test of the project
that passes both before and with the project's own fix passes with the patch too; as *same* when
the sources' syntax trees equal the project's own fix. `find` looks for more commits and writes
`commits.json`; `run` goes on where its log ends; `judge` runs the suites, which can take longer
than all repairs, with the patches that a log has.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.fix import commit_cases as cases
from bench.fix.commit_cases import CASES, PROJECTS, Case, load_cases, save_cases
from bench.fix.commit_search import search
from bench.fix.fix import one_line
from bench.fix.mutants import tool_report

_OVERTIME_S = 90.0
_TESTS_S, _SUITE_S = 120.0, 300.0
Record = dict[str, Any]


# --- find -------------------------------------------------------------------------------------


def run_find(args: argparse.Namespace) -> int:
    """Adds verified cases to the file; a project that has enough is left alone."""
    python = cases.environment(args.dir)
    for project in args.projects.split(",") if args.projects else PROJECTS:
        known = load_cases(args.cases) if args.cases.exists() else []
        if sum(case.project == project for case in known) >= args.wanted:
            continue
        history = cases.mirror(project, args.mirrors or args.dir / "mirrors")
        found = list(search(project, history, python, args.wanted, args.most))
        known = load_cases(args.cases) if args.cases.exists() else []
        save_cases([*(case for case in known if case.project != project), *found], args.cases)
    return 0


# --- run --------------------------------------------------------------------------------------


def run_bench(args: argparse.Namespace) -> int:
    """Repairs each case and appends what happened to the log."""
    python = cases.environment(args.dir)
    done = {record["case"] for record in read_log(args.log)} if args.log.exists() else set()
    chosen = [name for name in args.only.split(",") if name]
    for case in sorted(load_cases(args.cases), key=lambda case: case.commit):  # projects mixed
        if case.name in done or (chosen and case.name not in chosen):
            continue
        history = cases.mirror(case.project, args.mirrors or args.dir / "mirrors")
        with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
            record = repair(case, history, python, Path(folder), args)
        with args.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")
        print(_row(record), flush=True)
    return run_report(argparse.Namespace(logs=[str(args.log)]))


def repair(
    case: Case, history: Path, python: Path, folder: Path, args: argparse.Namespace
) -> Record:
    """Runs the tool on a case, then the tests and the suite on what it left behind."""
    root, fixed_root = folder / "broken", folder / "fixed"
    cases.plant(case, history, root)
    check = cases.check_line(case, root, python)
    command = [str(Path(sys.executable).with_name("clover-code")), "fix", "--json"]
    command += ["--check", check, "--budget", str(args.budget), "--engine", args.engine]
    command += ["--jobs", str(args.jobs)] if args.jobs else []
    command += ["--log", str(args.runs / f"{case.name}.jsonl")] if args.runs else []
    started = time.monotonic()
    report, error = tool_report(command, root, args.budget + _OVERTIME_S)
    seconds = time.monotonic() - started
    changed = _changed(root)
    fixed = bool(changed) and not any(map(cases.is_test, changed)) and _passes(case, root, python)
    same = False
    if fixed:
        cases.plant_fixed(case, history, fixed_root)
        same = _same(root, fixed_root, {*changed, *case.sources})
    provenance = report.get("provenance") or {}
    return {
        "case": case.name, "lines": case.lines, "engine": args.engine, "budget": args.budget,
        "date": time.strftime("%Y-%m-%d"), "status": report.get("status", "error"),
        "fixed": fixed, "same": same, "broken": [] if same else None, "seconds": round(seconds, 1),
        "tried": int(report.get("candidates_tried") or 0), "rank": report.get("rank"),
        "passing": int(report.get("candidates_passing") or 0),
        "proposer": _proposer(provenance),
        "kind": provenance.get("kind"), "changed": changed,
        "change": one_line(report.get("patch") or ""), "patch": report.get("patch") or "",
        "notes": report.get("notes"), "usage": report.get("engine") or {},
        "error": error or str(report.get("error") or ""),
    }  # fmt: skip


def run_judge(args: argparse.Namespace) -> int:
    """Says of each patch which tests of the project's suite it breaks; the log is rewritten."""
    python = cases.environment(args.dir)
    known = {case.name: case for case in load_cases(args.cases)}
    records = read_log(args.log)
    for record in records:
        if not record["fixed"] or record["broken"] is not None:
            continue
        case = known[record["case"]]
        history = cases.mirror(case.project, args.mirrors or args.dir / "mirrors")
        with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
            root, fixed_root = Path(folder) / "patched", Path(folder) / "fixed"
            cases.plant(case, history, root)
            cases.plant_fixed(case, history, fixed_root)
            patch = record["patch"].encode()
            subprocess.run(["git", "apply"], cwd=root, input=patch, check=True)
            record["broken"] = broken_tests(
                case, history, python, root, fixed_root, args.dir, args.suite_limit
            )
        print(_row(record), flush=True)
        args.log.write_text("".join(json.dumps(each) + "\n" for each in records))
    return run_report(argparse.Namespace(logs=[str(args.log)]))


def _proposer(provenance: Record) -> str:
    """Who found the patch: templates, or the model by filling a line or rewriting functions."""
    if provenance.get("proposed_by") != "model":
        return "templates"
    return "rewrite" if provenance.get("kind") == "rewrite" else "fill"


def _changed(root: Path) -> list[str]:
    listing = cases.git(root, "status", "--porcelain", "--untracked-files=all", "-z").decode()
    return [entry[3:] for entry in listing.split("\0") if entry]


def _passes(case: Case, root: Path, python: Path) -> bool:
    tested = cases.run_tests(python, root, case.tests, _TESTS_S)
    return bool(tested and tested.passed and not tested.messages and not tested.broken)


def broken_tests(
    case: Case,
    history: Path,
    python: Path,
    root: Path,
    fixed_root: Path,
    work: Path,
    limit_s: float = _SUITE_S,
) -> list[str] | None:
    """Tests of the suite that the patch breaks; None where the suite cannot be run in time."""
    held = _held(case, history, python, fixed_root, work, limit_s)
    if held is None:
        return None
    after = cases.run_tests(python, root, cases.suite(case, root), limit_s)
    if after is None:
        return None
    missing = sorted(held - after.passed)
    if not missing or len(missing) > 50:
        return missing[:50]
    again = cases.run_tests(python, root, missing, limit_s)  # some depend on chance
    return sorted(set(missing) - again.passed) if again else missing


def _held(
    case: Case, history: Path, python: Path, fixed_root: Path, work: Path, limit_s: float
) -> frozenset[str] | None:
    """Tests that pass before and with the project's own fix; found once, kept in the folder."""
    store = work / "suites" / f"{case.name}.json"
    if store.exists():
        return frozenset(json.loads(store.read_text()))
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        before = Path(folder) / "before"
        cases.plant(case, history, before)
        one = cases.run_tests(python, before, cases.suite(case, before), limit_s)
    if one is None:
        return None
    two = cases.run_tests(python, fixed_root, cases.suite(case, fixed_root), limit_s)
    if two is None:
        return None
    held = one.passed & two.passed
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(sorted(held)))
    return held


def _same(root: Path, fixed_root: Path, paths: set[str]) -> bool:
    pairs = ((root / path, fixed_root / path) for path in paths)
    return all(
        one.exists() and two.exists() and same_code(one.read_bytes(), two.read_bytes())
        for one, two in pairs
    )


def same_code(first: bytes, second: bytes) -> bool:
    """Whether two files differ in comments, docstrings and layout at most."""
    return _tree(first) == _tree(second)


def _tree(code: bytes) -> str:
    """The syntax tree without docstrings; the text of a file that is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return code.decode(errors="replace")
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


# --- report -----------------------------------------------------------------------------------


def _row(record: Record) -> str:
    numbers = f"{record['seconds']:6.1f} {record['tried']:6}"
    shown = record["change"] if record["fixed"] else record["error"] or record["change"]
    return f"{record['case']:28} {verdict(record):14} {numbers}  {shown[:160]}"


def verdict(record: Record) -> str:
    """SAME, PLAUSIBLE (breaks nothing), BREAKS n, PASSES (not judged), or how the tool ended."""
    if not record["fixed"]:
        return str(record["status"])
    if record["same"]:
        return "SAME"
    if record["broken"] is None:
        return "PASSES"
    return f"BREAKS {len(record['broken'])}" if record["broken"] else "PLAUSIBLE"


def read_log(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def run_report(args: argparse.Namespace) -> int:
    """One row a log, over all its cases; then every case that not all logs tell alike."""
    logs = {}
    for item in args.logs:
        label, _, name = item.rpartition("=")
        logs[label or Path(name).stem] = read_log(Path(name))
    print("\n| | cases | fixed | same as the project's | suite holds | breaks tests | median s "
          "| proposers |")  # fmt: skip
    print("|-|-|-|-|-|-|-|-|")
    for label, records in logs.items():
        fixed = [record for record in records if record["fixed"]]
        same = sum(record["same"] for record in fixed)
        holds = sum(record["broken"] == [] for record in fixed)
        breaks = sum(bool(record["broken"]) for record in fixed)
        seconds = f"{statistics.median(r['seconds'] for r in fixed):.0f}" if fixed else ""
        who = Counter(str(record["proposer"]) for record in fixed)
        shares = ", ".join(f"{name} {count}" for name, count in who.most_common())
        print(f"| {label} | {len(records)} | {len(fixed)} | {same} | {holds} | {breaks} "
              f"| {seconds} | {shares} |")  # fmt: skip
    return 0


# --- arguments --------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; 2 where something that must be supplied is missing or wrong."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (OSError, ValueError, subprocess.CalledProcessError) as exc:
        print(f"bench/fix/commits.py: {exc}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    find = commands.add_parser("find", help="find commits, and write commits.json")
    find.add_argument("--projects", default="", help="only these, separated by commas")
    find.add_argument("--wanted", type=int, default=4, help="cases a project")
    find.add_argument("--most", type=int, default=60, help="commits to try in a project")
    find.set_defaults(run=run_find)
    run = commands.add_parser("run", help="repair the cases")
    run.add_argument("--log", type=Path, required=True, help="JSON lines; goes on where it ends")
    run.add_argument("--engine", choices=["embedded", "none"], default="embedded")
    run.add_argument("--budget", type=float, default=60.0, help="seconds a case")
    run.add_argument("--jobs", type=int, default=0, help="passed on to the tool")
    run.add_argument("--only", default="", help="only these cases, separated by commas")
    run.add_argument("--runs", type=Path, help="keep the tool's own logs in this folder")
    run.set_defaults(run=run_bench)
    judge = commands.add_parser("judge", help="run the suites with the patches of a log")
    judge.add_argument("--log", type=Path, required=True, help="is rewritten")
    judge.add_argument("--suite-limit", type=float, default=_SUITE_S, help="seconds of a suite")
    judge.set_defaults(run=run_judge)
    for command in (find, run, judge):
        command.add_argument("--dir", type=Path, required=True, help="folder for what is needed")
        command.add_argument("--mirrors", type=Path, help="folder with OWNER+NAME/repo")
        command.add_argument("--cases", type=Path, default=CASES)
    report = commands.add_parser("report", help="a table of logs")
    report.add_argument("logs", nargs="+", metavar="[LABEL=]LOG")
    report.set_defaults(run=run_report)
    return parser


if __name__ == "__main__":
    sys.exit(main())
