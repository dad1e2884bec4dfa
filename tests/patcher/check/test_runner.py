"""The pre-forked runner: what it reports, what it restores, and what a candidate costs."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.errors import UsageError
from clover_patcher.types import Edit, Frame, Outcome

CALC = """\
def add(a, b):
    total = a - b
    return total


def twice(a):
    return a * 2
"""
TESTS = """\
from calc import add, twice


def test_twice():
    assert twice(3) == 6


def test_add():
    assert add(2, 3) == 5


def test_zero():
    assert add(0, 0) == 0
"""
Start = Callable[..., ProgramRunner]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Writes files into a tree and starts a runner there; all are closed at the end."""
    tree, tmp = tmp_path / "tree", tmp_path / "tmp"
    tmp.mkdir()
    runners: list[ProgramRunner] = []

    def begin(
        files: dict[str, str], arguments: str = "-m pytest -q", **more: object
    ) -> ProgramRunner:
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        check = Check.parse(f"{sys.executable} {arguments}", tree)
        runners.append(ProgramRunner(check, tree, tmp=tmp, **more))  # type: ignore[arg-type]
        return runners[-1]

    yield begin
    for runner in runners:
        runner.close()


def _replace(runner: ProgramRunner, path: str, old: str, new: str) -> Edit:
    data = (runner.worktree / path).read_bytes()
    at = data.index(old.encode())
    return Edit(path, at, at + len(old.encode()), new.encode())


def _kinds(outcome: Outcome) -> dict[str, str]:
    return {failure.nodeid: failure.kind for failure in outcome.failures}


def test_baseline_names_the_failing_test(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    outcome = runner.baseline()
    assert (outcome.status, outcome.passed) == ("failed", 2)
    (failure,) = outcome.failures
    assert (failure.nodeid, failure.kind) == ("test_calc.py::test_add", "AssertionError")
    assert "assert -1 == 5" in failure.message
    assert failure.frames == (Frame("test_calc.py", 9, "test_add"),)
    assert "test_add" in outcome.output
    assert runner.failing == ("test_calc.py::test_add",)
    assert runner.baseline().signature == outcome.signature


def test_candidates_pass_fail_and_break_other_tests(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    runner.baseline()
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
    wrong = runner.run([_replace(runner, "calc.py", "a - b", "a * b")])
    assert _kinds(wrong) == {"test_calc.py::test_add": "AssertionError"}
    cheat = runner.run([_replace(runner, "calc.py", "a - b", "5")])
    assert _kinds(cheat) == {"test_calc.py::test_zero": "AssertionError"}
    both = [
        _replace(runner, "calc.py", "a - b", "a + b"),
        _replace(runner, "calc.py", "a * 2", "a * 3"),
    ]
    assert _kinds(runner.run(both)) == {"test_calc.py::test_twice": "AssertionError"}


def test_unparsable_and_crashing_candidates(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    runner.baseline()
    broken = runner.run([Edit("calc.py", 0, 0, b"def (\n")])
    assert _kinds(broken) == {"test_calc.py": "SyntaxError"}
    assert broken.failures[0].frames[-1] == Frame("calc.py", 1, "<module>")
    named = runner.run([Edit("calc.py", 0, 0, b"nothing\n")])
    assert _kinds(named) == {"test_calc.py": "NameError"}
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"


@pytest.mark.parametrize("data", [b"x = 1\r\ny = 2\r\n", b"\xef\xbb\xbfx = 1\n", b"x = 1  # \xff"])
def test_bytes_come_back_exactly(start: Start, data: bytes) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    (runner.worktree / "other.py").write_bytes(data)
    (runner.worktree / "other.py").chmod(0o755)
    runner.baseline()
    runner.run([Edit("other.py", 0, 5, b"z = 3"), _replace(runner, "calc.py", "a - b", "a + b")])
    with pytest.raises(ValueError, match="overlaps"):
        runner.run([Edit("other.py", 0, 3, b""), Edit("other.py", 2, 4, b"")])
    assert (runner.worktree / "other.py").read_bytes() == data
    assert (runner.worktree / "other.py").stat().st_mode & 0o777 == 0o755
    assert (runner.worktree / "calc.py").read_text() == CALC


def test_edits_outside_the_tree_are_refused(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    with pytest.raises(UsageError):
        runner.run([Edit("../other.py", 0, 0, b"")])


def test_same_size_edits_within_a_second_are_all_seen(start: Start) -> None:
    """The compiled form of a file must never outlive it."""
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    runner.baseline()
    for _ in range(8):
        assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
        assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"


def test_a_candidate_is_much_cheaper_than_a_process(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    runner.baseline()
    warm, cold = [], []
    for _ in range(5):
        started = time.perf_counter()
        assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
        warm.append(time.perf_counter() - started)
        started = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        subprocess.run(command, cwd=runner.worktree, stdout=subprocess.DEVNULL)
        cold.append(time.perf_counter() - started)
    assert statistics.median(warm) < 0.35 * statistics.median(cold)


def test_exit_first_does_not_hide_failing_tests(start: Start) -> None:
    files = {"test_a.py": "def test_a():\n    assert 0\n\n\ndef test_b():\n    1 / 0\n"}
    runner = start(files, "-m pytest -x -q test_a.py")
    outcome = runner.baseline()
    assert _kinds(outcome) == {
        "test_a.py::test_a": "AssertionError",
        "test_a.py::test_b": "ZeroDivisionError",
    }


def test_conftest_that_imports_the_program(start: Start) -> None:
    """Candidates for files that conftest has loaded start from an earlier stage."""
    files = {
        "calc.py": CALC,
        "other.py": "VALUE = 1\n",
        "conftest.py": (
            "import pytest\nimport calc\n\n\n@pytest.fixture\ndef c():\n    return calc\n"
        ),
        "test_calc.py": (
            "def test_add(c):\n    import other\n    assert c.add(2, 3) == 4 + other.VALUE\n"
        ),
    }
    runner = start(files)
    runner.baseline()
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
    assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
    assert runner.run([_replace(runner, "other.py", "1", "-5")]).status == "passed"
    patched = "calc.add = lambda a, b: 5; return calc"
    assert runner.run([_replace(runner, "conftest.py", "return calc", patched)]).status == "passed"


def test_an_edited_file_that_the_framework_itself_loads(start: Start) -> None:
    import iniconfig

    source = Path(iniconfig.__file__).parent
    tests = "import iniconfig\n\n\ndef test_it():\n    assert iniconfig.ANSWER == 2\n"
    runner = start({"test_it.py": tests})
    runner.close()
    shutil.copytree(source, runner.worktree / "iniconfig", ignore=lambda *_: ["__pycache__"])
    init = runner.worktree / "iniconfig" / "__init__.py"
    init.write_text(init.read_text() + "\nANSWER = 1\n")
    runner = start({})
    assert runner.baseline().status == "failed"
    edit = _replace(runner, "iniconfig/__init__.py", "ANSWER = 1", "ANSWER = 2")
    assert runner.run([edit]).status == "passed"
    assert runner.run([]).status == "failed"


def test_broken_conftest_and_no_tests(start: Start) -> None:
    runner = start({"conftest.py": "import missing_thing\n", "test_a.py": "def test(): pass\n"})
    outcome = runner.baseline()
    assert outcome.status == "error"
    assert outcome.failures[0].kind == "ModuleNotFoundError"
    assert outcome.failures[0].frames[-1].path == "conftest.py"
    fixed = runner.run([_replace(runner, "conftest.py", "missing_thing", "sys")])
    assert fixed.status == "passed"


def test_wrong_options_and_no_tests(start: Start) -> None:
    assert _kinds(start({"a.py": ""}, "-m pytest --no-such-option").baseline()) == {"": "exit 4"}
    assert _kinds(start({"a.py": ""}).baseline()) == {"": "exit 5"}


def test_a_module_that_fails_to_import(start: Start) -> None:
    files = {
        "calc.py": "LIMIT = int('x')\n",
        "test_a.py": "def test_a():\n    pass\n",
        "test_calc.py": "import calc\n\n\ndef test_it():\n    assert calc.LIMIT == 1\n",
    }
    runner = start(files)
    outcome = runner.baseline()
    assert _kinds(outcome) == {"test_calc.py": "ValueError"}
    assert outcome.failures[0].frames[-1] == Frame("calc.py", 1, "<module>")
    assert outcome.passed == 1
    assert runner.run([_replace(runner, "calc.py", "'x'", "'2'")]).status == "failed"
    assert runner.run([_replace(runner, "calc.py", "'x'", "'1'")]).status == "passed"


def test_a_candidate_that_makes_a_test_skip_is_no_repair(start: Start) -> None:
    files = {
        "flags.py": "READY = True\nVALUE = 1\n",
        "test_a.py": (
            "import flags\nimport pytest\n\n\n@pytest.mark.skipif(not flags.READY, reason='')\n"
            "def test_a():\n    assert flags.VALUE == 2\n"
        ),
    }
    runner = start(files)
    runner.baseline()
    outcome = runner.run([_replace(runner, "flags.py", "True", "False")])
    assert _kinds(outcome) == {"test_a.py::test_a": "missing"}


def test_tests_that_need_each_other_run_together(start: Start) -> None:
    files = {
        "calc.py": CALC,
        "test_a.py": (
            "import calc\n\nseen = []\n\n\ndef test_a():\n    seen.append(1)\n\n\n"
            "def test_b():\n    assert seen[0] == calc.add(3, 2) - 4\n"
        ),
    }
    runner = start(files)
    assert _kinds(runner.baseline()) == {"test_a.py::test_b": "AssertionError"}
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"


def test_adopted_knowledge_replaces_a_baseline(start: Start, tmp_path: Path) -> None:
    first = start({"calc.py": CALC, "test_calc.py": TESTS})
    first.baseline()
    tree = tmp_path / "second"
    shutil.copytree(first.worktree, tree)
    with ProgramRunner(first.check, tree, tmp=tmp_path / "tmp") as second:
        second.adopt(first)
        assert second.failing == first.failing
        assert second.run([_replace(second, "calc.py", "a - b", "a + b")]).status == "passed"
        assert second.run([_replace(second, "calc.py", "a - b", "a * b")]).status == "failed"


def test_preloading_that_changes_the_outcome_is_undone(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that reads the environment when imported must see what the tests set first."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "envlib.py").write_text("import os\nVALUE = os.environ.get('ENVLIB')\n")
    monkeypatch.setenv("PYTHONPATH", str(library))
    files = {
        "test_a.py": (
            "import os\nos.environ['ENVLIB'] = '1'\nimport envlib\n\n\n"
            "def test_value():\n    assert envlib.VALUE == '1'\n\n\ndef test_b():\n    assert 0\n"
        )
    }
    runner = start(files)
    assert _kinds(runner.baseline()) == {"test_a.py::test_b": "AssertionError"}
    assert _kinds(runner.baseline()) == {"test_a.py::test_b": "AssertionError"}


def test_coverage_per_test(start: Start) -> None:
    runner = start({"calc.py": CALC, "test_calc.py": TESTS})
    runner.baseline()
    found = {c.nodeid: c for c in runner.trace()}
    assert found["test_calc.py::test_add"].failed
    assert not found["test_calc.py::test_twice"].failed
    in_calc = {n: {line for path, line in c.lines if path == "calc.py"} for n, c in found.items()}
    assert in_calc["test_calc.py::test_add"] == {2, 3}
    assert in_calc["test_calc.py::test_twice"] == {7}
    assert in_calc["import:test_calc.py"] == {1, 6}


def test_unittest_checks(start: Start) -> None:
    files = {
        "calc.py": CALC,
        "test_calc.py": (
            "import unittest\nimport calc\n\n\nclass CalcTest(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(calc.add(2, 3), 5)\n\n"
            "    def test_twice(self):\n        self.assertEqual(calc.twice(2), 4)\n\n\n"
            "if __name__ == '__main__':\n    unittest.main()\n"
        ),
    }
    for arguments, prefix in (("-m unittest", "test_calc"), ("test_calc.py", "__main__")):
        runner = start(files, arguments)
        outcome = runner.baseline()
        name = f"{prefix}.CalcTest.test_add"
        assert (_kinds(outcome), outcome.passed) == ({name: "AssertionError"}, 1)
        assert runner.baseline().signature == outcome.signature
        assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
        assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
        found = {c.nodeid: c for c in runner.trace()}
        assert ("calc.py", 2) in found[name].lines
        assert ("calc.py", 2) not in found[f"{prefix}.CalcTest.test_twice"].lines


def test_script_checks(start: Start) -> None:
    files = {"calc.py": CALC, "run.py": "import sys, calc\nsys.exit(calc.add(2, 3) != 5)\n"}
    runner = start(files, "run.py")
    assert _kinds(runner.baseline()) == {"": "exit 1"}
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
    assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
    (whole,) = [c for c in runner.trace() if not c.nodeid.startswith("import:")]
    assert whole.failed
    assert {("calc.py", 2), ("run.py", 2)} <= whole.lines


def test_script_that_raises(start: Start) -> None:
    files = {"calc.py": CALC, "tools/run.py": "import json\nprint(json.loads('{'))\n"}
    outcome = start(files, "tools/run.py").baseline()
    assert _kinds(outcome) == {"": "JSONDecodeError"}
    assert outcome.failures[0].frames == (Frame("tools/run.py", 2, "<module>"),)


def test_command_checks(start: Start, tmp_path: Path) -> None:
    runner = start({"calc.py": CALC})
    check = Check.parse("sh -c 'grep -q \"a + b\" calc.py'", runner.worktree)
    with ProgramRunner(check, runner.worktree, tmp=tmp_path / "tmp") as command:
        assert _kinds(command.baseline()) == {"": "exit 1"}
        assert command.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
        assert command.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
        assert command.trace() == []


def test_an_interpreter_without_pytest(start: Start) -> None:
    with pytest.raises(UsageError, match="cannot import the test framework") as caught:
        start({"a.py": ""}, "-I -S -m pytest")
    assert "pytest" in str(caught.value)


def test_a_command_that_prints_is_alive(start: Start, tmp_path: Path) -> None:
    runner = start({"calc.py": CALC})
    loop = "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done; exit 3"
    check = Check.parse(f"sh -c '{loop}'", runner.worktree)
    with ProgramRunner(check, runner.worktree, tmp=tmp_path / "tmp", timeout_s=1.2) as command:
        assert _kinds(command.baseline()) == {"": "exit 3"}
    check = Check.parse("sh -c 'sleep 30 & sleep 30'", runner.worktree)
    with ProgramRunner(check, runner.worktree, tmp=tmp_path / "tmp", timeout_s=0.5) as command:
        started = time.perf_counter()
        assert _kinds(command.baseline()) == {"": "timeout"}
        assert time.perf_counter() - started < 10


def test_other_files_of_a_folder_are_not_collected_for_candidates(start: Start) -> None:
    slow = "import time\ntime.sleep(0.5)\n\n\ndef test_slow():\n    pass\n"
    files = {
        "calc.py": CALC,
        "tests/conftest.py": "import sys, os\nsys.path.insert(0, os.getcwd())\n",
        "tests/test_calc.py": TESTS,
        "tests/test_slow.py": slow,
        "tests/deep/test_slow_too.py": slow,
    }
    runner = start(files, "-m pytest -q tests")
    assert runner.baseline().passed == 4
    started = time.perf_counter()
    assert runner.run([_replace(runner, "calc.py", "a - b", "a * b")]).status == "failed"
    assert time.perf_counter() - started < 0.5
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"


def test_parallel_checks_run_in_one_process(start: Start) -> None:
    pytest.importorskip("xdist")
    files = {"calc.py": CALC, "test_calc.py": TESTS, "pytest.ini": "[pytest]\naddopts = -n 2\n"}
    runner = start(files)
    outcome = runner.baseline()
    assert _kinds(outcome) == {"test_calc.py::test_add": "AssertionError"}
    assert outcome.failures[0].frames == (Frame("test_calc.py", 9, "test_add"),)
    assert runner.run([_replace(runner, "calc.py", "a - b", "a + b")]).status == "passed"
    without = start({}, "-m pytest -q -o addopts= -p no:xdist -p no:cacheprovider --strict-config")
    assert _kinds(without.baseline()) == {"test_calc.py::test_add": "AssertionError"}
