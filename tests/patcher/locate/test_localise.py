"""Suspicious lines: Ochiai, tracebacks, statements, functions, and ties."""

from __future__ import annotations

from clover_patcher.locate.localise import localise
from clover_patcher.types import Diagnostic, Frame, Location, Outcome, TestCoverage, TestFailure

SOURCE = b'''"""A module."""
LIMIT = 3


def first(values):
    """Docs."""
    total = 0
    for value in values:
        if value > LIMIT:
            total += value
        else:
            total -= value
    return total


def other():
    return 1
'''


def _coverage(nodeid: str, failed: bool, *lines: int, path: str = "a.py") -> TestCoverage:
    return TestCoverage(nodeid, failed, frozenset((path, line) for line in lines))


def _failure(kind: str, *frames: tuple[str, int]) -> TestFailure:
    return TestFailure("t::x", kind, "", tuple(Frame(p, n, "f") for p, n in frames))


def _run(
    *coverage: TestCoverage,
    failures: tuple[TestFailure, ...] = (),
    paths: tuple[str, ...] = (),
    source: bytes | None = SOURCE,
) -> list[Location]:
    outcome = Outcome("failed", 1.0, failures)
    read = None if source is None else lambda _: source
    return localise(outcome, coverage, paths, lambda path: path.startswith("test"), read)


def _scores(found: list[Location]) -> dict[int, float]:
    return {at.line: at.score for at in found}


def test_ochiai_prefers_lines_of_failing_tests_only() -> None:
    found = _run(
        _coverage("t::a", True, 7, 8, 9, 10, 13),
        _coverage("t::b", False, 7, 8, 9, 12, 13),
        _coverage("t::c", False, 7, 8, 9, 12, 13),
    )
    assert found[0] == Location(
        "a.py", 10, 1.0, ("Ochiai 1.00: executed by 1 of 1 failing and 0 of 2 passing tests",)
    )
    scores = _scores(found)
    assert scores[7] == scores[8] == scores[9] == scores[13]
    assert scores[7] < 0.6


def test_a_traceback_beats_equal_coverage() -> None:
    covered = _coverage("t::a", True, 7, 8, 9, 10)
    found = _run(covered, failures=(_failure("TypeError", ("test_a.py", 1), ("a.py", 9)),))
    assert found[0].line == 9
    assert "line of the innermost frame of TypeError" in found[0].reasons
    assert all(at.path == "a.py" for at in found)


def test_outer_frames_and_recursion_count_once() -> None:
    frames = [("a.py", 8), *[("a.py", 9)] * 50]
    scores = _scores(_run(failures=(_failure("RecursionError", *frames),)))
    assert scores[9] == 1.0
    assert 0 < scores[8] < 0.1


def test_an_assertion_s_place_counts_less() -> None:
    covered = (_coverage("t::a", True, 7, 9), _coverage("t::b", False, 7))
    crash = _scores(_run(*covered, failures=(_failure("KeyError", ("a.py", 7)),)))
    assertion = _scores(_run(*covered, failures=(_failure("AssertionError", ("a.py", 7)),)))
    assert crash[7] > crash[9]
    assert assertion[7] < assertion[9]


def test_unreached_statements_of_the_same_function_come_later() -> None:
    found = _run(_coverage("t::a", True, 7, 8, 9, 10, 13))
    scores = _scores(found)
    assert 0 < scores[12] < 0.5 * scores[10]
    assert "same function as line 7" in {at.line: at.reasons[0] for at in found}[12]
    assert 11 not in scores, "else: has no statement of its own"
    assert scores[6] < 0.05, "a docstring does nothing"
    assert 16 not in scores, "no failing test entered the other function"


def test_definitions_run_at_import_matter_little() -> None:
    found = _run(
        _coverage("t::a", True, 7, 8, 13),
        _coverage("import:test_a.py", False, 1, 2, 5, 15),
    )
    scores = _scores(found)
    assert 0.01 < scores[2] < 0.5, "a constant may be wrong"
    assert scores[5] < scores[2]


def test_only_named_files_and_never_tests() -> None:
    found = _run(
        _coverage("t::a", True, 7, path="a.py"),
        _coverage("t::b", True, 7, path="b.py"),
        _coverage("t::c", True, 7, path="test_a.py"),
        paths=("b.py", "test_a.py"),
    )
    assert {at.path for at in found} == {"b.py"}


def test_without_coverage_every_statement_of_the_named_files() -> None:
    found = _run(failures=(_failure("ValueError", ("a.py", 9)),), paths=("a.py",))
    scores = _scores(found)
    assert found[0].line == 9
    assert {2, 7, 8, 10, 12, 13, 16} <= set(scores)
    assert scores[7] > scores[16]


def test_a_failed_import_points_at_its_line() -> None:
    broken = b"def f(:\n    pass\n"
    failure = TestFailure("test_a.py", "SyntaxError", "", (Frame("a.py", 1, "<module>"),))
    found = _run(failures=(failure,), source=broken)
    assert [(at.path, at.line) for at in found] == [("a.py", 1)]


def test_unreadable_files_keep_what_was_measured() -> None:
    found = _run(_coverage("t::a", True, 7, 8), source=None)
    assert [(at.line, at.score) for at in found] == [(7, 1.0), (8, 1.0)]


def test_nothing_known_gives_nothing() -> None:
    assert _run() == []


def test_order_is_best_first_and_scores_are_in_range() -> None:
    found = _run(
        _coverage("t::a", True, 7, 8, 9, 10, 13),
        _coverage("t::b", False, 7, 8, 9, 12, 13),
        failures=(_failure("KeyError", ("a.py", 10)),),
    )
    scores = [at.score for at in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


# --- what is named from outside -----------------------------------------------------------------

CODE = b"def f(x):\n    y = x\n    return y\n"
FAILED = Outcome("failed", 0.0)


def test_diagnosed_lines_come_first_in_their_order() -> None:
    coverage = [TestCoverage("t", True, frozenset({("a.py", 2), ("a.py", 3)}))]
    said = [Diagnostic("a.py", 1, "bad"), Diagnostic("b.py", 3, "worse", "R1", "tool")]
    found = localise(FAILED, coverage, [], lambda _: False, lambda _: CODE, said)
    assert [(at.path, at.line) for at in found[:4]] == [
        ("a.py", 1),
        ("b.py", 3),
        ("a.py", 2),
        ("a.py", 3),
    ]
    assert found[0].reasons[-1] == "a diagnostic says: bad"
    assert found[1].reasons == ("tool R1 says: worse",)


def test_only_named_lines_are_suspected() -> None:
    coverage = [TestCoverage("t", True, frozenset({("a.py", 2), ("a.py", 3)}))]
    only = [Diagnostic("a.py", 3, ""), Diagnostic("test_a.py", 1, "")]
    found = localise(
        FAILED, coverage, [], lambda path: path.startswith("test_"), lambda _: CODE, (), only
    )
    assert [(at.path, at.line, at.score) for at in found] == [("a.py", 3, 1.0)]


def test_a_program_that_runs_in_another_process_is_suspected_as_a_whole() -> None:
    coverage = [TestCoverage("t", True, frozenset({("test_a.py", 1)}))]
    arguments = (FAILED, coverage, ["a.py"], lambda path: path == "test_a.py", lambda _: CODE)
    assert [at.line for at in localise(*arguments)] == [2, 3, 1]
    assert localise(*arguments, elsewhere=False) == []


def test_a_function_that_the_failure_speaks_of_is_suspicious() -> None:
    for message in (
        "first() takes 0 positional arguments but 1 was given",
        "A.first() missing 1 required positional argument: 'values'",
        "module 'a' has no attribute 'frist'",
        "cannot import name 'first_' from 'a'",
    ):
        failure = TestFailure("t::x", "TypeError", message)
        imported = _coverage("import:t", False, 2, 5, 17)
        scores = _scores(_run(imported, failures=(failure,)))
        assert scores[5] == 1.0
        assert 17 not in scores or scores[17] < 0.5
        failure = TestFailure("t::x", "TypeError", message, (Frame("a.py", 10, "f"),))
        assert _scores(_run(imported, failures=(failure,)))[10] == 1.0  # the call itself is wrong


def test_what_runs_while_importing_is_suspected_where_no_test_runs_anything_else() -> None:
    text = "def double(items):\n    for item in items:\n        items += item\n    return items\n"
    files = {"tables.py": f"{text}\n\nTABLE = double([1])\n".encode()}
    failing = TestCoverage("t.py::t", True, frozenset({("t.py", 4)}))
    loaded = TestCoverage(
        "import:tables.py", False, frozenset(("tables.py", n) for n in (1, 2, 3, 4, 7))
    )
    found = localise(
        Outcome("failed", 0.1, (TestFailure("t.py::t", "AssertionError", ""),)),
        [failing, loaded], [], lambda path: path == "t.py", files.__getitem__, elsewhere=False,
    )  # fmt: skip
    assert {at.line for at in found} >= {2, 3, 4, 7}
