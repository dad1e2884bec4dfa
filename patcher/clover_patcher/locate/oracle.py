"""From which files the verdict of a check comes: they are frozen, so that no patch weakens it.

The oracle is made of the files that hold the collected tests, of what lies in folders of tests,
of helpers that compare or raise for them, and of scripts that decide by an assertion or an exit.
A script that crashes by an error of its own, and a file with doctests, are programs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from clover_patcher.types import Frame, Program, TestFailure

_TEST_WORDS = frozenset({"test", "tests", "unittests", "qa", "spec", "specs", "features", "steps"})
_STRONG = frozenset({"fixture", "fixtures", "mocks", "fakes", "stubs", "matchers"})
_WEAK = frozenset(
    {"helper", "helpers", "check", "checks", "checker", "compare", "expect", "expectations"}
    | {"verify", "verifier", "should", "must", "ensure", "same", "equal", "require", "support"}
)
_VERDICTS = frozenset({"AssertionError", "Failed", "SystemExit"})
_OWN_FAULTS = frozenset({"NameError", "UnboundLocalError", "SyntaxError", "IndentationError"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_DECIDES = re.compile(
    rb"^\s*(assert\b|raise\s+(SystemExit|AssertionError)\b)|\b(sys\.exit|_exit|exit)\(|unittest",
    re.MULTILINE,
)
_MOST_SCANNED = 5_000
"""So many files are searched for an import at most."""


@dataclass(frozen=True)
class Observed:
    """What a run of the check showed about the files of a repository. Paths are relative to it."""

    files: Sequence[str]
    """All Python files."""
    read: Callable[[str], bytes]
    tests: frozenset[str]
    """Files that hold collected tests; not those with nothing but doctests."""
    doctests: frozenset[str]
    """Files that hold collected doctests."""
    executed: frozenset[str]
    """Files that failing tests ran, or that the check's programs loaded."""
    failures: tuple[TestFailure, ...]
    programs: tuple[Program, ...]
    """The scripts that the check started, with how they ended."""
    settings: frozenset[str] = frozenset()
    """Folders that settings of test tools name, and such that hold feature files."""

    def oracle(self, free: frozenset[str]) -> dict[str, str]:
        """The files of `free` from which the verdict comes, with the reason in words."""
        frozen: dict[str, str] = {}
        for rule in (_test_files, _test_folders, _scripts, _helpers):
            for path, why in rule(self, free - frozen.keys()):
                if path in free and path not in self.freed:
                    frozen.setdefault(path, why)
        return frozen

    @property
    def involved(self) -> frozenset[str]:
        """Files that took part in the check."""
        mains = {program.main for program in self.programs}
        framed = {frame.path for failure in self.failures for frame in failure.frames}
        return frozenset(self.executed | self.tests | mains | framed)

    @cached_property
    def freed(self) -> frozenset[str]:
        """Files that the check names or starts and that are the program nevertheless."""
        crashed = {p.main for p in self.programs if p.main and self._crashes(p)}
        quiet = {p.main for p in self.programs if p.main and not p.failed} - {
            p.main for p in self.programs if p.failed and not self._crashes(p)
        }
        return frozenset((self.doctests | crashed | quiet) - self.tests)

    def _crashes(self, program: Program) -> bool:
        """Whether a script ended by an error of its own, rather than by a verdict."""
        if not program.failed or program.kind in _VERDICTS or not program.frames:
            return False
        last = program.frames[-1]
        if last.path != program.main:
            return False
        if program.kind in _OWN_FAULTS:
            return True
        try:
            data = self.read(program.main)
        except OSError:
            return False
        return not (_is_raise(data, last.line) or self._decides(program.main, data))

    def _decides(self, path: str, data: bytes) -> bool:
        """Whether a script looks like one that compares, and runs something to compare."""
        return bool(self.executed - {path}) and bool(_DECIDES.search(data))

    def imported_by(self, path: str, others: Iterable[str]) -> Iterator[str]:
        """Files of `others` with an import that names the module of `path`."""
        parts = path.removesuffix(".py").split("/")
        stem = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
        wanted = re.compile(
            rb"^\s*(?:from|import)\b[^#\n]*\b%s\b" % re.escape(stem.encode()), re.MULTILINE
        )
        for other in list(others)[:_MOST_SCANNED]:
            try:
                if wanted.search(self.read(other)):
                    yield other
            except OSError:
                continue


def _test_files(seen: Observed, free: frozenset[str]) -> Iterator[tuple[str, str]]:
    for path in seen.tests & free:
        yield path, "it holds tests of the check"


def _test_folders(seen: Observed, free: frozenset[str]) -> Iterator[tuple[str, str]]:
    """What lies in a folder of tests, at any depth."""
    folders = {folder: f"{folder}/ is a folder of tests" for folder in seen.settings if folder}
    for path in sorted(seen.tests):
        parts = path.split("/")[:-1]
        for depth in range(len(parts), 0, -1):
            folder = "/".join(parts[:depth])
            if folder in folders:
                continue
            if _holds_tests(seen, free, folder, direct=depth == len(parts)):
                folders[folder] = f"{folder}/ is a folder of tests"
    for path in free:
        for folder, why in folders.items():
            if path.startswith(folder + "/"):
                yield path, why


def _holds_tests(seen: Observed, free: frozenset[str], folder: str, *, direct: bool) -> bool:
    """Whether a folder belongs to the tests, rather than to a program with tests beside it."""
    if _words(folder.rpartition("/")[2]) & _TEST_WORDS:
        return True
    inside = {path for path in free if path.startswith(folder + "/")}
    if any(_is_about(test, path) for path in inside for test in seen.tests):
        return False
    known = direct or folder in seen.settings or f"{folder}/conftest.py" in seen.files
    if not known or not (seen.executed & free) - inside:
        return False
    outside = free - inside
    return not any(next(seen.imported_by(path, outside), None) for path in inside)


def _scripts(seen: Observed, free: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Scripts that decide, and what decides for them."""
    for program in seen.programs:
        if not program.failed or seen._crashes(program):
            continue
        if program.main:
            yield program.main, "the check starts it, and it decides"
        if program.kind in _VERDICTS and program.frames:
            last = program.frames[-1]
            if last.path in free and _others(seen, free, last.path, program):
                yield last.path, f"the verdict ({program.kind}) comes from line {last.line} of it"
        if program.main and "/" in program.main:
            yield from _beside(seen, free, program)


def _beside(seen: Observed, free: frozenset[str], program: Program) -> Iterator[tuple[str, str]]:
    """Modules that a deciding script loads from its own folder, where the program is elsewhere."""
    folder = program.main.rpartition("/")[0]
    inside = {path for path in program.loaded if path.startswith(folder + "/")} & free
    inside -= {other.main for other in seen.programs if not other.failed}
    outside = free - {path for path in free if path.startswith(folder + "/")}
    if not inside or not (seen.executed & outside):
        return
    if not any(next(seen.imported_by(path, outside), None) for path in inside):
        for path in inside:
            yield path, f"{program.main} loads it from its own folder on the way to the verdict"


def _others(seen: Observed, free: frozenset[str], path: str, program: Program) -> bool:
    """Whether something else could be at fault."""
    return bool((seen.executed & free) - {path, program.main})


def _helpers(seen: Observed, free: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Modules beside the tests that compare and raise for them."""
    raising: dict[str, Frame] = {}
    for failure in seen.failures:
        if failure.kind in _VERDICTS and failure.frames:
            raising.setdefault(failure.frames[-1].path, failure.frames[-1])
    named = {path for path in seen.executed & free if _is_strong(path)}
    for path in sorted((named | raising.keys()) & free):
        if path in named or _is_weak(path, raising[path]):
            if _is_program(seen, free, path):
                continue
            yield path, "tests compare with it, and no other module uses it"


def _is_program(seen: Observed, free: frozenset[str], path: str) -> bool:
    """Whether a module that looks like a helper of tests is what is tested."""
    if any(_is_about(test, path) for test in seen.tests):
        return True
    folder = path.rpartition("/")[0]
    own = folder + "/" if _words(folder.rpartition("/")[2]) & {"testing", *_TEST_WORDS} else path
    others = {other for other in free if not other.startswith(own)}
    if not seen.executed & others:
        return True
    return next(seen.imported_by(path, (o for o in others if not _is_strong(o))), None) is not None


def _is_strong(path: str) -> bool:
    """Whether a path names what belongs to tests."""
    words = [word for part in path.removesuffix(".py").split("/") for word in _words(part)]
    return any(word.startswith(("test", "assert")) or word in _STRONG for word in words)


def _is_weak(path: str, frame: Frame) -> bool:
    """Whether a module or the function that raised may well be a helper of tests."""
    words = _words(path.rpartition("/")[2].removesuffix(".py")) | _words(frame.function)
    return bool(words & _WEAK) or any(word.startswith("assert") for word in words)


def _is_about(test: str, path: str) -> bool:
    """Whether a file of tests is named after a module or its package."""
    stem = test.rpartition("/")[2].removesuffix(".py").lower()
    subject = re.sub(r"^tests?_|_tests?$", "", stem)
    *folders, name = path.removesuffix(".py").lower().split("/")
    own = folders[-1:] if name == "__init__" or "testing" in folders[-1:] else []
    return subject != stem and subject in {name.strip("_"), *own}


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def _is_raise(data: bytes, line: int) -> bool:
    """Whether the statement at a line is a `raise` or an `assert`."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return any(
        isinstance(node, ast.Raise | ast.Assert)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
    )
