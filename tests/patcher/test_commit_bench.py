"""The bench of real commits: which commits are cases, and what the tool gets to see of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.fix.commit_cases import check_line, plant, plant_fixed
from bench.fix.commit_search import small_fixes, verify
from bench.fix.commits import broken_tests, same_code

BROKEN = "def last(items):\n    return items[1]\n"
FIXED = "def last(items):\n    # from the end\n    return items[-1]\n"
OLD_TEST = "from prog import last\n\n\ndef test_two():\n    assert last([1, 2]) == 2\n"
NEW_TEST = OLD_TEST + "\n\ndef test_three():\n    assert last([1, 2, 3]) == 3\n"


def commit(root: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["add", "-A"], [*who, "commit", "-qm", message]):
        subprocess.run(["git", *command], cwd=root, check=True)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    root = tmp_path / "history"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    commit(root, "Start", prog_py=BROKEN, tests__test_last_py=OLD_TEST)
    commit(root, "Fix a comment", prog_py=BROKEN + "# end\n", tests__test_last_py=OLD_TEST + "\n")
    commit(root, "Fix last of three (#7)", prog_py=FIXED, tests__test_last_py=NEW_TEST)
    commit(root, "Add more", prog_py=FIXED + "MORE = 1\n", tests__test_last_py=NEW_TEST + "\n")
    commit(root, "Fix nothing but a test", tests__test_last_py=NEW_TEST)
    return root


def test_a_small_fix_with_a_test_is_found_and_shown_to_fail_before(history: Path) -> None:
    found = list(small_fixes("a/b", history))
    assert [case.sources for case in found] == [("prog.py",)] * 2
    verified = [verify(case, history, Path(sys.executable)) for case in found]
    assert [case.tests for case in verified if case] == [("tests/test_last.py::test_three",)]


def test_the_tool_sees_the_test_and_nothing_of_the_fix(history: Path, tmp_path: Path) -> None:
    found = next(small_fixes("a/b", history))
    case = verify(found, history, Path(sys.executable))
    assert case is not None
    before, after = tmp_path / "before", tmp_path / "after"
    plant(case, history, before)
    plant_fixed(case, history, after)
    assert (before / "prog.py").read_text() == BROKEN + "# end\n"
    assert (before / "tests/test_last.py").read_text() == NEW_TEST
    log = subprocess.run(["git", "log", "--format=%s"], cwd=before, capture_output=True, text=True)
    assert log.stdout == "Add a failing test\n"
    assert (after / "prog.py").read_text() == FIXED
    check = check_line(case, before, Path(sys.executable))
    runs = [subprocess.run(check, shell=True, cwd=root, capture_output=True) for root in
            (before, after)]  # fmt: skip
    assert [run.returncode for run in runs] == [1, 0]


def test_a_patch_that_breaks_another_test_is_told(history: Path, tmp_path: Path) -> None:
    case = verify(next(small_fixes("a/b", history)), history, Path(sys.executable))
    assert case is not None
    case = replace(case, project="wtforms/wtforms")  # its suite is in tests/, too
    patched, fixed = tmp_path / "patched", tmp_path / "fixed"
    plant_fixed(case, history, fixed)
    plant(case, history, patched)
    (patched / "prog.py").write_text("def last(items):\n    return items[2]\n")
    broken = broken_tests(case, history, Path(sys.executable), patched, fixed, tmp_path)
    assert broken == ["tests/test_last.py::test_two"]
    assert same_code(FIXED.encode(), b'def last(items):\n    "Doc."\n    return items[-1]\n')
    assert not same_code(FIXED.encode(), BROKEN.encode())
