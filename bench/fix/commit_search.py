"""Finds small bug-fix commits in a project's history, and shows that their tests tell the bug."""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.fix.commit_cases import Case, git, is_test, plant, plant_fixed, run_tests

_MOST_LINES, _MOST_SOURCES, _MOST_TESTS = 15, 2, 6
_TESTS_S = 60.0
_MENDS = re.compile(
    r"\b(fix|bug|issue|crash|wrong|incorrect|regress|broke|mistake|typo|proper|correct|"
    r"error|should|handle|fail|closes? #|resolves? #)", re.IGNORECASE,
)  # fmt: skip
_ADDS = re.compile(r"^(add|support|implement|new|allow|introduce|refactor|drop)", re.IGNORECASE)
_NO_SOURCE = re.compile(r"(^|/)(docs?|examples?|benchmarks?|bench|ci_tools|tools)/|(^|/)setup\.py$")
_MISSING = re.compile(
    r"unexpected keyword argument|cannot import name|No module named|"
    r"module '[\w.]+' has no attribute|type object '\w+' has no attribute|DID NOT WARN|fixture '"
)
"""What a test of something new says where it does not exist yet."""


def search(project: str, history: Path, python: Path, wanted: int, most: int) -> Iterator[Case]:
    """Verified cases, newest first; at most so many commits are tried."""
    found = 0
    for tried, case in enumerate(small_fixes(project, history)):
        if found == wanted or tried == most:
            return
        verified = verify(case, history, python)
        verdict = f"{len(verified.tests)} failing tests" if verified else "no"
        print(f"{case.name:32} {case.lines:3} lines  {verdict}", flush=True)
        if verified:
            found += 1
            yield verified


def small_fixes(project: str, history: Path, most_lines: int = _MOST_LINES) -> Iterator[Case]:
    """Commits whose message and shape are those of a small fix with a test; not yet run."""
    form = "--format=%x01%H%x00%P%x00%B%x02"
    log = git(history, "log", "--no-merges", "--no-renames", "--numstat", form, "HEAD")
    for entry in log.decode("utf-8", "replace").split("\x01")[1:]:
        head, _, numbers = entry.partition("\x02")
        commit, parents, message = head.split("\0")
        if len(parents.split()) != 1 or not _MENDS.search(message) or _ADDS.match(message):
            continue
        changed = [row.split("\t") for row in numbers.strip().splitlines()]
        tests = tuple(p for _, _, p in changed if p.endswith(".py") and is_test(p))
        sources = [row for row in changed if _is_source(row[2])]
        lines = sum(int(a) + int(d) for a, d, _ in sources if a.isdigit())
        if tests and 1 <= len(sources) <= _MOST_SOURCES and 1 <= lines <= most_lines:
            paths = tuple(path for _, _, path in sources)
            yield Case(project, commit, parents, paths, tests, lines)


def _is_source(path: str) -> bool:
    return path.endswith(".py") and not is_test(path) and not _NO_SOURCE.search(path)


def verify(case: Case, history: Path, python: Path) -> Case | None:
    """The case with the names of its tests, if they fail at the parent and pass at the commit."""
    if not _changes_code(case, history):
        return None
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        plant(case, history, before)
        files = [path for path in case.tests if (before / path).exists()]
        files = [path for path in files if Path(path).name not in ("conftest.py", "__init__.py")]
        if not files or not (failing := run_tests(python, before, files, _TESTS_S)):
            return None
        if failing.broken or not failing.messages:
            return None
        plant_fixed(case, history, after)
        mended = run_tests(python, after, files, _TESTS_S)
        told = [name for name in failing.messages if mended and name in mended.passed]
        if not told or all(_MISSING.search(failing.messages[name]) for name in told):
            return None
        tests = tuple(dict.fromkeys(name.partition("[")[0] for name in told))
        case = Case(case.project, case.commit, case.parent, case.sources, tests, case.lines)
        again = run_tests(python, after, tests, _TESTS_S)
        if len(tests) > _MOST_TESTS or not again or again.messages or again.broken:
            return None
    return case


def _changes_code(case: Case, history: Path) -> bool:
    """Whether every source is a file before and after, and more than comments differ."""
    differs = False
    for path in case.sources:
        try:
            before, after = (
                ast.dump(ast.parse(git(history, "show", f"{commit}:{path}")))
                for commit in (case.parent, case.commit)
            )
        except (SyntaxError, ValueError, subprocess.CalledProcessError):
            return False
        differs |= before != after
    return differs
