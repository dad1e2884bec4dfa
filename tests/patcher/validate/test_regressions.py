"""A patch that passes the check and breaks other tests that passed is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clover_patcher import fix as fix_module
from clover_patcher.check.command import Check
from clover_patcher.check.wider import wider_checks
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.locate.evidence import Evidence
from clover_patcher.types import Candidate, Edit, Validation

PROGRAM = "def kind(value):\n    return 'text' if value else 'number'\n"
WRONG, RIGHT = "return 'none'", "return 'none' if value is None else 'text' if value else 'number'"
TESTS = {
    "test_kind.py": "from prog import kind\n\n\ndef test_none():\n    assert kind(None) == 'none'\n"
    "\n\ndef test_number():\n    assert kind(0) == 'number'\n",
    "other/test_more.py": "from prog import kind\n\n\n"
    "def test_text():\n    assert kind('x') == 'text'\n"
    "\n\ndef test_that_fails_anyway():\n    assert kind(1) == 'one'\n",
}
INI = {"pytest.ini": "[pytest]\npythonpath = .\n"}
UNIT = (
    "import unittest\nfrom prog import kind\n\n\nclass Kinds(unittest.TestCase):\n"
    "    def test_none(self):\n        self.assertEqual(kind(None), 'none')\n\n"
    "    def test_number(self):\n        self.assertEqual(kind(0), 'number')\n"
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the wrong line, which passes the named test, then the right one."""

    class Fixed:
        name = "fixed"
        is_slow = False
        is_awaited = False
        notes: Sequence[str] = ()

        def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
            data = evidence.read("prog.py")
            at = data.index(b"return")
            for number, text in enumerate((WRONG, RIGHT)):
                edit = Edit("prog.py", at, len(data) - 1, text.encode())
                yield [Candidate((edit,), 2, "line", text, None, -float(number))]

        def learn(self, validation: Validation) -> None: ...

    monkeypatch.setattr(fix_module, "proposers_for", lambda *_: [Fixed()])


def run(root: Path, check: str, **more: bool) -> FixResult:
    return fix(FixRequest(root, check, jobs=1, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "check", ["python -m pytest -q test_kind.py::test_none", "python -m pytest -q -k test_none"]
)
def test_the_rest_of_the_file_and_the_suite_are_run(make_repo, proposed, check: str) -> None:
    root = make_repo({"prog.py": PROGRAM, **TESTS, **INI})
    result = run(root, check)
    assert (result.status, result.applied) == ("fixed", True), result.error
    assert RIGHT in (root / "prog.py").read_text()
    assert result.explanation is not None
    assert "2 tests that passed before still pass" in result.explanation.validation
    assert [change.after for (change,) in result.alternatives] == [
        PROGRAM.replace("return 'text' if value else 'number'", WRONG).encode()
    ]


def test_a_file_as_check_is_held_against_the_suite(make_repo, proposed) -> None:
    """The wrong line passes the whole file here, and breaks a test in another one."""
    tests = TESTS | {"test_kind.py": TESTS["test_kind.py"].partition("def test_number")[0]}
    root = make_repo({"prog.py": PROGRAM, **tests, **INI})
    assert run(root, "python -m pytest -q test_kind.py").status == "fixed"
    assert RIGHT in (root / "prog.py").read_text()


def test_one_test_of_unittest(make_repo, proposed) -> None:
    root = make_repo({"prog.py": PROGRAM, "test_unit.py": UNIT})
    assert run(root, "python -m unittest test_unit.Kinds.test_none").status == "fixed"
    assert RIGHT in (root / "prog.py").read_text()


def test_check_only_looks_at_the_check_alone_and_says_so(make_repo, proposed) -> None:
    root = make_repo({"prog.py": PROGRAM, **TESTS, **INI})
    result = run(root, "python -m pytest -q test_kind.py::test_none", check_only=True)
    assert result.status == "fixed" and WRONG in (root / "prog.py").read_text()
    assert any("--check-only" in note for note in result.notes)


def test_where_every_patch_breaks_something_nothing_is_written(
    make_repo, proposed, monkeypatch
) -> None:
    tests = TESTS["test_kind.py"] + "\n\ndef test_lines():\n    text = open('prog.py').read()\n"
    tests += "    assert len(text.splitlines()[1]) == 40\n"
    root = make_repo({"prog.py": PROGRAM, "test_kind.py": tests, **INI})
    result = run(root, "python -m pytest -q test_kind.py::test_none")
    assert (result.status, result.exit_code) == ("none_found", 1)
    assert result.error is not None and "broke other tests (test_kind.py::test_" in result.error
    assert (root / "prog.py").read_text() == PROGRAM


def test_a_command_has_nothing_around_it_and_says_so(make_repo, proposed) -> None:
    check = "from prog import kind\nassert kind(None) == 'none'\n"
    root = make_repo({"prog.py": PROGRAM, "verify.py": check})
    result = run(root, f"{sys.executable} verify.py")
    assert result.explanation is not None
    assert "the check has no wider set of tests" in result.explanation.validation


@pytest.mark.parametrize(
    ("command", "wider"),
    [
        ("pytest", []),
        ("pytest -q -x", []),
        ("pytest tests", [()]),
        ("pytest -q tests/test_a.py", [("-q",)]),
        ("pytest tests/test_a.py::test_x -x", [("tests/test_a.py",), ()]),
        ("pytest -k one tests", [("tests",), ()]),
        ("pytest -kone", [()]),
        ("pytest -p no:x --maxfail=1 -m slow", [("-p", "no:x")]),
        ("python -m unittest", []),
        ("python -m unittest discover -s tests", []),
        (
            "python -m unittest -v tests.test_a.Case.test_x",
            [("-m", "unittest", "-v", "tests.test_a"), ("-m", "unittest", "discover", "-v")],
        ),
        ("python tests/test_a.py", []),
        ("true", []),
    ],
)
def test_what_is_wider(tmp_path: Path, command: str, wider: list[tuple[str, ...]]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").touch()
    found = [check.arguments for _, check in wider_checks(Check.parse(command, tmp_path), tmp_path)]
    assert found == wider


def test_tests_around_the_check_say_which_lines_they_do_not_need(make_repo) -> None:
    """The named test runs all of these lines; those beside it run all but the wrong one."""
    program = (
        "def size(word):\n    word = word.strip()\n    count = len(word)\n"
        "    if word.endswith('!'):\n        return count - 2\n    return count\n"
    )
    tests = (
        "from prog import size\n\n\ndef test_loud():\n    assert size('hey!') == 3\n"
        "\n\ndef test_plain():\n    assert size(' hey') == 3\n"
        "\n\ndef test_empty():\n    assert size('') == 0\n"
    )
    root = make_repo({"prog.py": program, "test_size.py": tests, **INI})
    result = run(root, "python -m pytest -q test_size.py::test_loud")
    assert result.explanation is not None
    first, second = result.explanation.suspects[:2]
    assert first.line == 5 and first.score > 1.5 * second.score
    assert "0 of 2 passing tests" in first.reasons[0]
