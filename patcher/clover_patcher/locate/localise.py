"""Where the fault may be: lines ranked by diagnostic, traceback, Ochiai over coverage, structure.

Ochiai's score of a line is ef / sqrt(F * (ef + ep)): ef of F failing tests and ep passing ones
executed it. Most failures of small programs are assertions in the tests, so that coverage says
more than the traceback; where an exception came out of the program itself, its line gets a bonus.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import sqrt

from clover_patcher.locate.functions import functions, grammar_of
from clover_patcher.repository.treecopy import is_other_source
from clover_patcher.types import Diagnostic, Frame, Location, Outcome, TestCoverage, TestFailure

_DIAGNOSED = 2.0
"""What a diagnostic adds to its line: more than all other evidence together."""
_INNERMOST, _OUTER = 0.5, 0.15
_VAGUE = 0.3
"""The place of an assertion or a hang says less than that of an exception: factor."""
_SAME_FUNCTION = 0.15
_IMPORTED = 0.1
_CALLED = 0.6
_ANYWHERE = 0.02
_LOWEST = 0.001

_PRIOR: Mapping[type[ast.stmt], float] = {
    ast.FunctionDef: 0.1,
    ast.AsyncFunctionDef: 0.1,
    ast.ClassDef: 0.1,
    ast.Import: 0.3,
    ast.ImportFrom: 0.3,
    ast.Pass: 0.5,
    ast.Break: 0.7,
    ast.Continue: 0.7,
    ast.Global: 0.3,
    ast.Nonlocal: 0.3,
    ast.Try: 0.2,
}
_DOCSTRING, _DEFAULT = 0.05, 1.0
_PLAIN_LINE = 0.9
"""A line of a statement that began further up."""


_NAMES = re.compile(
    r"(\w+)\(\) (?:takes|missing|got)|(?:has no attribute|cannot import name) '(\w+)'"
)
_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is known about a file's lines without running it."""

    prior: dict[int, float]
    """First lines of statements, with how often statements of that kind are at fault."""
    function: dict[int, str]
    """The innermost function around a line, with the line it starts at."""


@dataclass(slots=True)
class _Suspiciousness:
    score: float = 0.0
    reasons: list[str] = field(default_factory=list)

    def add(self, score: float, reason: str) -> None:
        self.score += score
        if reason not in self.reasons:
            self.reasons.append(reason)


Lines = dict[tuple[str, int], _Suspiciousness]


def localise(
    baseline: Outcome,
    coverage: Sequence[TestCoverage],
    paths: Sequence[str],
    is_test: Callable[[str], bool],
    read: Callable[[str], bytes] | None = None,
    diagnostics: Sequence[Diagnostic] = (),
    only: Sequence[Diagnostic] = (),
    *,
    elsewhere: bool = True,
) -> list[Location]:
    """Suspicious lines, best first; the best has score 1.

    `paths` are the files that may be at fault (none: every file that was executed, is in a
    traceback or has a diagnostic). `read` gives a file's bytes; without it nothing is known about
    lines that no test executed. Tests are left out, whatever they did. Where `only` names lines,
    no others are suspected. `elsewhere`: where no line is found, the program may have run in
    another process, so that all of `paths` are suspected.
    """
    allowed = set(paths)

    def wanted(path: str) -> bool:
        return not is_test(path) and (not allowed or path in allowed)

    suspicions: Lines = {}
    _add_coverage(suspicions, [c for c in coverage if not c.nodeid.startswith("import:")], wanted)
    _add_frames(suspicions, baseline.failures, wanted)
    named = [d for d in (*only, *diagnostics) if wanted(d.path)]
    files = {path for path, _ in suspicions} | {path for path in allowed if not is_test(path)}
    files |= {d.path for d in named}
    called = _named(baseline.failures, wanted)
    if called or not suspicions:
        files |= {path for c in coverage for path, _ in c.lines if wanted(path)}
    shapes = {path: _shape(read, path) for path in sorted(files)}
    _apply_prior(suspicions, shapes)
    _add_imported(suspicions, coverage, wanted, shapes)
    _add_called(suspicions, called, shapes)
    _add_diagnostics(suspicions, named)
    _add_neighbours(suspicions, shapes)
    if not coverage or (elsewhere and not suspicions):
        _add_everything(suspicions, shapes)
    lines = {(d.path, d.line) for d in only}
    return _ranked({at: s for at, s in suspicions.items() if at in lines or not only})


def _add_coverage(
    suspicions: Lines, coverage: Sequence[TestCoverage], wanted: Callable[[str], bool]
) -> None:
    failing = [c for c in coverage if c.failed]
    passing = [c for c in coverage if not c.failed]
    failed = Counter(line for c in failing for line in c.lines if wanted(line[0]))
    passed = Counter(line for c in passing for line in c.lines)
    for line, ef in failed.items():
        score = ef / sqrt(len(failing) * (ef + passed[line]))
        suspicions.setdefault(line, _Suspiciousness()).add(
            score,
            f"Ochiai {score:.2f}: executed by {ef} of {len(failing)} failing and "
            f"{passed[line]} of {len(passing)} passing tests",
        )


def _add_frames(
    suspicions: Lines, failures: Iterable[TestFailure], wanted: Callable[[str], bool]
) -> None:
    """The program's frames of each failure; a line counts once per place in the stack."""
    best: dict[tuple[str, int], tuple[float, str]] = {}
    for failure in failures:
        factor = _VAGUE if failure.kind in ("AssertionError", "timeout") else 1.0
        frames = [frame for frame in failure.frames if wanted(frame.path)]
        for depth, frame in enumerate(reversed(frames)):
            bonus = factor * (_INNERMOST if depth == 0 else _OUTER / depth)
            line = (frame.path, frame.line)
            if bonus > best.get(line, (0.0, ""))[0]:
                best[line] = (bonus, _frame_reason(failure, frame, depth))
    for line, (bonus, reason) in best.items():
        suspicions.setdefault(line, _Suspiciousness()).add(bonus, reason)


def _frame_reason(failure: TestFailure, frame: Frame, depth: int) -> str:
    if failure.kind == "timeout":
        return "where a test was when its time ran out" if depth == 0 else "on the way there"
    place = "line of the innermost frame of" if depth == 0 else "in the traceback of"
    return f"{place} {failure.kind}"


def _shape(read: Callable[[str], bytes] | None, path: str) -> _Shape:
    """Statements and functions of a file; empty where it cannot be read or parsed."""
    shape = _Shape({}, {})
    if read is None:
        return shape
    if is_other_source(path):
        return _other_shape(read, path)
    try:
        tree = ast.parse(read(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return shape
    for node in ast.walk(tree):  # outer functions come before inner ones
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                shape.function[line] = f"{node.name}:{node.lineno}"
        if isinstance(node, ast.stmt):
            prior = _PRIOR.get(type(node), _DEFAULT)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                prior = _DOCSTRING
            shape.prior[node.lineno] = max(prior, shape.prior.get(node.lineno, 0.0))
    return shape


def _other_shape(read: Callable[[str], bytes], path: str) -> _Shape:
    """Lines of the functions of a file in another language, by its grammar."""
    shape = _Shape({}, {})
    with suppress(OSError):
        code = read(path)
        for found in functions(grammar_of(path) or "", code) if grammar_of(path) else ():
            if not found.is_class:
                first = code.count(b"\n", 0, found.start) + 1
                last = code.count(b"\n", 0, found.end) + 1
                lines = range(first, last + 1)
                shape.function.update(dict.fromkeys(lines, f"{found.name}:{first}"))
                shape.prior.setdefault(first, _DEFAULT)
    return shape


def _apply_prior(suspicions: Lines, shapes: Mapping[str, _Shape]) -> None:
    for (path, line), suspicion in suspicions.items():
        shape = shapes[path]
        if shape.prior:
            suspicion.score *= shape.prior.get(line, _PLAIN_LINE)


def _add_imported(
    suspicions: Lines,
    coverage: Sequence[TestCoverage],
    wanted: Callable[[str], bool],
    shapes: Mapping[str, _Shape],
) -> None:
    """Statements outside functions run once, for all tests: constants and tables.

    So do functions that make those; they are suspected where no test runs anything else.
    """
    blind = not suspicions
    lines = {line for c in coverage if c.nodeid.startswith("import:") for line in c.lines}
    for path, line in sorted(lines - suspicions.keys()):
        inside = path in shapes and line in shapes[path].function
        if path in shapes and wanted(path) and (blind or not inside):
            prior = shapes[path].prior.get(line, _PLAIN_LINE)
            suspicions[path, line] = _Suspiciousness(
                _IMPORTED * prior, ["executed while importing"]
            )


def _named(failures: Iterable[TestFailure], wanted: Callable[[str], bool]) -> list[str]:
    """Functions that a test calls with arguments that do not fit, and names that it looks for."""
    by_tests = (f for f in failures if not any(wanted(frame.path) for frame in f.frames))
    return [m[1] or m[2] for f in by_tests for m in _NAMES.finditer(f.message)]


def _add_called(suspicions: Lines, called: Sequence[str], shapes: Mapping[str, _Shape]) -> None:
    """First lines of functions that are named so, or nearly so."""
    for path, shape in shapes.items():
        for name, _, line in sorted({t.partition(":") for t in shape.function.values()}):
            if difflib.get_close_matches(name, called, 1, _ALIKE):
                suspicion = suspicions.setdefault((path, int(line)), _Suspiciousness())
                suspicion.add(_CALLED, f"the failure speaks of `{name}` or of a name like it")


def _add_diagnostics(suspicions: Lines, diagnostics: Iterable[Diagnostic]) -> None:
    """Diagnosed lines come first, in the order in which they are given."""
    for number, said in enumerate(dict.fromkeys(diagnostics)):
        suspicion = suspicions.setdefault((said.path, max(said.line, 1)), _Suspiciousness())
        suspicion.add(_DIAGNOSED / (1 + number / 100), _diagnosis(said))


def _diagnosis(diagnostic: Diagnostic) -> str:
    who = " ".join(word for word in (diagnostic.source, diagnostic.code) if word) or "a diagnostic"
    return f"{who} says: {diagnostic.message}" if diagnostic.message else f"named by {who}"


def _add_neighbours(suspicions: Lines, shapes: Mapping[str, _Shape]) -> None:
    """Statements that no failing test reached, in functions that one of them entered."""
    for path, shape in shapes.items():
        best: dict[str, tuple[float, int]] = {}
        for (where, line), suspicion in suspicions.items():
            name = shape.function.get(line) if where == path else None
            if name is not None:
                best[name] = max(best.get(name, (0.0, 0)), (suspicion.score, -line))
        for line, prior in shape.prior.items():
            name = shape.function.get(line)
            if name in best and (path, line) not in suspicions:
                score, first = best[name]
                reason = f"same function as line {-first}, not reached by a failing test"
                suspicions[path, line] = _Suspiciousness(_SAME_FUNCTION * prior * score, [reason])


def _add_everything(suspicions: Lines, shapes: Mapping[str, _Shape]) -> None:
    for path, shape in shapes.items():
        for line, prior in shape.prior.items():
            if (path, line) not in suspicions:
                suspicions[path, line] = _Suspiciousness(
                    _ANYWHERE * prior, ["statement of a named file"]
                )


def _ranked(suspicions: Lines) -> list[Location]:
    top = max((s.score for s in suspicions.values()), default=1.0) or 1.0
    order = sorted(suspicions.items(), key=lambda item: (-item[1].score, item[0]))
    return [
        Location(path, line, max(s.score / top, _LOWEST), tuple(s.reasons))
        for (path, line), s in order
    ]
