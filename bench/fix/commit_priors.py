"""Priors of the templates' kinds, fitted on the small fixes of public projects' histories.

    python -m bench.fix.commit_priors gather --dir WORK --out edits.jsonl [--most 30]
    python -m bench.fix.commit_priors fit edits.jsonl
    python -m bench.fix.commit_priors misses edits.jsonl

`gather` takes every commit that reads like a fix with a test and changes one place of a source
file, makes the candidates of the changed lines and of two others of the same function, and looks
for the one that does what the commit did; no test is run. `fit` counts the kinds of those edits in
one half of the projects, prints priors for `clover_patcher/propose/templates.py`, and compares how
early the edits of the other half come with them. `misses` prints the edits that no template makes.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import math
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fix import commit_cases as cases
from bench.fix.commit_cases import PROJECTS
from bench.fix.commit_search import small_fixes
from bench.fix.commits import same_code

from clover_patcher.propose.pool import CandidatePool
from clover_patcher.propose.templates import PRIORS
from clover_patcher.propose.weakening import LAST
from clover_patcher.types import Candidate, Location

_MOST_REMOVED, _MOST_ADDED, _MOST_LINES = 4, 6, 10
_BESIDE, _MOST_CANDIDATES = 2, 1200
_SEED = 5
_SPACE = re.compile(rb"[\s,()]+")


@dataclass(frozen=True, slots=True)
class Change:
    """One place of one file, before and after."""

    name: str
    path: str
    before: bytes
    after: bytes
    first: int
    """The first changed line, and how many lines go."""
    removed: int
    added: int


# --- gather -----------------------------------------------------------------------------------


def run_gather(args: argparse.Namespace) -> int:
    done = {entry["name"] for entry in read(args.out)} if args.out.exists() else set()
    for project in args.projects.split(",") if args.projects else PROJECTS:
        history = cases.mirror(project, args.mirrors or args.dir / "mirrors")
        for number, change in enumerate(changes(project, history)):
            if number == args.most:
                break
            if change.name not in done:
                entry = {"name": change.name, "project": project, **look(change)}
                with args.out.open("a") as out:
                    out.write(json.dumps(entry) + "\n")
        print(project, flush=True)
    return 0


def changes(project: str, history: Path) -> Iterator[Change]:
    """Commits that change one place of one source file; newest first."""
    for case in small_fixes(project, history, _MOST_LINES):
        if len(case.sources) != 1:
            continue
        try:
            before, after = (
                cases.git(history, "show", f"{commit}:{case.sources[0]}")
                for commit in (case.parent, case.commit)
            )
            ast.parse(before)
        except (subprocess.CalledProcessError, SyntaxError, ValueError):
            continue
        if same_code(before, after):
            continue
        old, new = before.splitlines(), after.splitlines()
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        changed = [block for block in blocks if block[0] != "equal"]
        if len(changed) != 1:
            continue
        _, a, b, c, d = changed[0]
        if b - a <= _MOST_REMOVED and d - c <= _MOST_ADDED:
            yield Change(case.name, case.sources[0], before, after, a + 1, b - a, d - c)


def look(change: Change) -> dict[str, Any]:
    """All candidates as (kind, log share), best first, and which of them are the commit's edit."""
    lines = _lines(change)
    places = [Location(change.path, line, 1.0) for line in lines]
    pool = CandidatePool({change.path: change.before}, places)
    while pool.bound is not None:
        pool.open_line()
    found: list[tuple[str, float]] = []
    right: list[int] = []
    while len(found) < _MOST_CANDIDATES and (candidate := pool.take()) is not None:
        if _does(candidate, change):
            right.append(len(found))
        found.append((candidate.kind, _log_share(candidate)))
    old, new = change.before.splitlines(), change.after.splitlines()
    at = change.first - 1
    return {
        "kinds": [kind for kind, _ in found],
        "shares": [round(share, 3) for _, share in found],
        "right": right,
        "old": [line.decode(errors="replace") for line in old[at : at + change.removed]],
        "new": [line.decode(errors="replace") for line in new[at : at + change.added]],
    }


def _does(candidate: Candidate, change: Change) -> bool:
    """Whether the candidate has the commit's outcome, seen through a window around the place."""
    lines = change.before.splitlines(keepends=True)
    low, high = max(0, change.first - 3), change.first + change.removed + 2
    start, end = (len(b"".join(lines[:at])) for at in (low, high))
    edit = candidate.edits[0]
    if not (start <= edit.start and edit.end <= end):
        return False
    made = change.before[start : edit.start] + edit.new + change.before[edit.end : end]
    goal = change.after[start : len(change.after) - (len(change.before) - end)]
    return _plain(made) == _plain(goal)


def _plain(code: bytes) -> bytes:
    """Without spaces, brackets and commas: good enough to tell edits of one place apart."""
    return _SPACE.sub(b"", code.replace(b'"', b"'"))


def _log_share(candidate: Candidate) -> float:
    """The log of its share among its kind on the line; what weakens keeps its own prior."""
    if candidate.priority <= LAST:
        return LAST
    return candidate.priority - math.log(PRIORS[candidate.kind])


def _lines(change: Change) -> list[int]:
    """The changed lines, or those around an insertion, and some others of the same function."""
    first, last = change.first, change.first + change.removed - 1
    own = list(range(first, last + 1)) if change.removed else [max(1, first - 1), first]
    tree = ast.parse(change.before)
    around: list[ast.AST] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= first <= (node.end_lineno or 0)
    ]
    inside = ast.walk(around[-1] if around else tree)
    others = {node.lineno for node in inside if isinstance(node, ast.stmt)} - set(own)
    rng = random.Random(change.name)
    return own + rng.sample(sorted(others), min(len(others), _BESIDE))


# --- fit --------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def run_fit(args: argparse.Namespace) -> int:
    """Prints priors, and what they do for the half that they were not fitted on."""
    entries = [entry for entry in read(args.edits) if entry["right"]]
    everything = len(read(args.edits))
    print(f"{everything} changes, {len(entries)} of them are among the candidates")
    projects = sorted({entry["project"] for entry in entries})
    random.Random(_SEED).shuffle(projects)
    halves = [set(projects[::2]), set(projects[1::2])]
    for fitted, held in (halves, halves[::-1]):
        priors = fit([e for e in entries if e["project"] in fitted], args.trust)
        rest = [e for e in entries if e["project"] in held]
        print(f"\nheld out ({len(rest)}): {', '.join(sorted(held))}")
        _compare(rest, priors)
    print("\non all:")
    final = fit(entries, args.trust)
    counts = Counter(_kind(entry) for entry in entries)
    for kind, prior in sorted(final.items(), key=lambda item: -item[1]):
        print(f'    "{kind}": {prior:.3f},  # {counts[kind]}, was {PRIORS[kind]}')
    return 0


def _kind(entry: Mapping[str, Any]) -> str:
    return str(entry["kinds"][entry["right"][0]])


def fit(entries: Sequence[Mapping[str, Any]], trust: float) -> dict[str, float]:
    """The posterior mean of a Dirichlet whose mean is the present prior, worth `trust` edits."""
    counts = Counter(_kind(entry) for entry in entries)
    mass = sum(PRIORS.values())
    total = sum(counts.values())
    return {
        kind: mass * (counts[kind] + trust * prior / mass) / (total + trust)
        for kind, prior in PRIORS.items()
    }


def _compare(entries: Sequence[Mapping[str, Any]], priors: Mapping[str, float]) -> None:
    for label, used in (("present", PRIORS), ("fitted", priors)):
        ranks = [rank(entry, used) for entry in entries]
        mean = sum(math.log(r) for r in ranks) / max(1, len(ranks))
        error = (sum((math.log(r) - mean) ** 2 for r in ranks) / max(1, len(ranks)) ** 2) ** 0.5
        tops = "  ".join(f"top {n}: {sum(r <= n for r in ranks)}" for n in (1, 5, 10, 30, 100))
        print(f"  {label:8} mean log rank {mean:.3f} ± {error:.3f}  {tops}")


def rank(entry: Mapping[str, Any], priors: Mapping[str, float]) -> int:
    """How many candidates come before the commit's edit, itself included."""
    scores = [
        LAST if share <= LAST else math.log(priors[kind]) + share
        for kind, share in zip(entry["kinds"], entry["shares"], strict=True)
    ]
    best = max(scores[n] for n in entry["right"])
    return 1 + sum(score > best for score in scores)


def run_misses(args: argparse.Namespace) -> int:
    for entry in read(args.edits):
        if not entry["right"]:
            print(f"\n{entry['name']}")
            print("\n".join([*(f"- {t}" for t in entry["old"]), *(f"+ {t}" for t in entry["new"])]))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; 2 where something that must be supplied is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    gather = commands.add_parser("gather", help="candidates of each small fix")
    gather.add_argument("--dir", type=Path, default=Path(), help="as for bench/fix/commits.py")
    gather.add_argument("--mirrors", type=Path, help="folder with OWNER+NAME/repo")
    gather.add_argument("--out", type=Path, required=True, help="JSON lines; goes on at its end")
    gather.add_argument("--projects", default="", help="only these, separated by commas")
    gather.add_argument("--most", type=int, default=30, help="changes of a project")
    gather.set_defaults(run=run_gather)
    fitting = commands.add_parser("fit", help="priors, and what they do for the other half")
    fitting.add_argument("edits", type=Path)
    fitting.add_argument("--trust", type=float, default=60.0, help="weight of the present priors")
    fitting.set_defaults(run=run_fit)
    misses = commands.add_parser("misses", help="edits that no template makes")
    misses.add_argument("edits", type=Path)
    misses.set_defaults(run=run_misses)
    args: Any = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except OSError as exc:
        print(f"bench/fix/commit_priors.py: {exc}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
