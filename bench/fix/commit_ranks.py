"""Where the lines of a real fix are among the suspicious ones, and its edit among the candidates.

    python -m bench.fix.commit_ranks --dir WORK [--only CASE,…] [--check-only] [--limit 2000]

For each case of `commits.json` the failing tests are traced as `clover-code fix` does it; then
candidates are made in the order in which they would be tried, and none is tried.
"""

from __future__ import annotations

import argparse
import difflib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.fix import commit_cases as cases
from bench.fix.commit_cases import CASES, Case, load_cases
from bench.fix.commits import same_code

from clover_engine.api import CancelToken
from clover_patcher.edits import apply_edits
from clover_patcher.errors import PatcherError
from clover_patcher.fix import FixRequest, Repair
from clover_patcher.locate.evidence import Evidence, NothingSuspicious
from clover_patcher.propose.clues import clues_in
from clover_patcher.propose.source import CandidateSource, Options
from clover_patcher.task.task import Task

_CANDIDATES_S = 90.0


class Look(Repair):
    """A run that ends once the evidence is there."""

    seen: Evidence | None = None

    def _gather(self, *args: object) -> Evidence:
        self.seen = super()._gather(*args)  # type: ignore[arg-type]
        raise NothingSuspicious("seen")


def evidence_of(root: Path, check: str, *, check_only: bool) -> Evidence | None:
    request = FixRequest(root, check, dry_run=True, jobs=1, check_only=check_only)
    look = Look(Task.of(request, None, CancelToken()), None)
    try:
        look.run()
    except PatcherError as exc:
        print(exc, file=sys.stderr)
    return look.seen


def changed_lines(before: str, after: str) -> list[int]:
    """Lines of the one that go or change, or that stand around what comes."""
    old, new = before.splitlines(), after.splitlines()
    found: list[int] = []
    for tag, a, b, _, _ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "insert":
            found += [a, a + 1]
        elif tag != "equal":
            found += range(a + 1, b + 1)
    return found


def look_at(case: Case, args: argparse.Namespace, python: Path) -> dict[str, object]:
    history = cases.mirror(case.project, args.mirrors or args.dir / "mirrors")
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        root, fixed = Path(folder) / "broken", Path(folder) / "fixed"
        cases.plant(case, history, root)
        cases.plant_fixed(case, history, fixed)
        check = cases.check_line(case, root, python)
        evidence = evidence_of(root, check, check_only=args.check_only)
        if evidence is None:
            return {"case": case.name, "lines": None, "line": None, "edit": None, "kind": ""}
        wanted = {
            (path, line)
            for path in case.sources
            for line in changed_lines((root / path).read_text(), (fixed / path).read_text())
        }
        scores = {(at.path, at.line): at.score for at in evidence.locations}
        best = max((scores[at] for at in wanted if at in scores), default=None)
        line = sum(s >= best for s in scores.values()) if best is not None else None
        edit, kind = _edit(evidence, case, root, fixed, args.limit) if args.limit else (None, "")
    return {"case": case.name, "lines": len(scores), "line": line, "edit": edit, "kind": kind}


def _edit(
    evidence: Evidence, case: Case, root: Path, fixed: Path, limit: int
) -> tuple[int | None, str]:
    """The place of the project's own edit among the candidates, and its kind."""
    if len(case.sources) > 1:
        return None, ""
    path = case.sources[0]
    before, goal = (root / path).read_bytes(), (fixed / path).read_bytes()
    source = CandidateSource(
        evidence.sources, evidence.locations, None, options=Options(first_wait_s=0, wait_s=0),
        clues=clues_in(evidence),
    )  # fmt: skip
    number, size = 0, len(goal.split())
    for batch in source.batches(time.monotonic() + _CANDIDATES_S):
        for candidate in batch:
            number += 1
            if candidate.paths == (path,):
                after = apply_edits(before, candidate.edits)
                if abs(len(after.split()) - size) < 30 and same_code(after, goal):
                    return number, candidate.kind
        if number >= limit:
            break
    return None, ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dir", type=Path, required=True, help="as for bench/fix/commits.py")
    parser.add_argument("--mirrors", type=Path, help="folder with OWNER+NAME/repo")
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--only", default="", help="only these cases, separated by commas")
    parser.add_argument("--check-only", action="store_true", help="trace no tests around")
    parser.add_argument("--limit", type=int, default=1500, help="candidates looked at; 0 for none")
    args = parser.parse_args(argv)
    python = cases.environment(args.dir)
    lines: list[float] = []
    for case in load_cases(args.cases):
        if args.only and case.name not in args.only.split(","):
            continue
        seen = look_at(case, args, python)
        line = seen["line"]
        lines.append(float(line) if isinstance(line, int) else float("inf"))
        print(f"{case.name:28} line {seen['line']} of {seen['lines']}, edit {seen['edit']} "
              f"{seen['kind']}", flush=True)  # fmt: skip
    tops = "  ".join(f"top {n}: {sum(x <= n for x in lines)}" for n in (1, 5, 10, 30, 100))
    print(f"{len(lines)} cases; line: median {statistics.median(lines):.0f}, {tops}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
