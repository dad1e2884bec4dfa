"""`clover-code fix` with places, linters and pasted tracebacks, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import os\n\n\ndef put(d, k, v):\n    d[k] = k\n    return d\n"
TEST = "from prog import put\n\n\ndef test_put():\n    assert put({}, 1, 2) == {1: 2}\n"
PASTED = (
    'Traceback (most recent call last):\n  File "/other/machine/prog.py", line 5, in put\n'
    "    d[k] = k\nAssertionError\n"
)


@pytest.fixture
def root(make_repo) -> Path:
    found: Path = make_repo({"prog.py": PROGRAM, "test_prog.py": TEST})
    return found


def fix(root: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clover_code", "fix", "--engine", "none", "--jobs", "1"]
    return subprocess.run(
        [*command, *arguments], cwd=root, input=text, capture_output=True, text=True
    )


def test_one_place_of_a_linter(root: Path) -> None:
    done = fix(root, "--check", "ruff check", "--only", "prog.py:1:F401")
    assert done.returncode == 0, done.stderr
    assert (root / "prog.py").read_text() == PROGRAM.removeprefix("import os\n")
    assert "fixed prog.py:1" in done.stderr


def test_a_pasted_traceback_with_its_tests(root: Path) -> None:
    text = PASTED + "FAILED test_prog.py::test_put - AssertionError\n"
    done = fix(root, "--traceback", "-", "--dry-run", text=text)
    assert done.returncode == 0, done.stderr
    assert "+    d[k] = v\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        ((), "", "give the failing command as --check"),
        (("--traceback", "-"), PASTED, "does not say how to run the program"),
        (("--traceback", "-"), " \n", "is empty"),
        (("--traceback", "-"), "hello\n", "no traceback was found"),
        (("--traceback", "missing.txt"), "", "cannot read the traceback missing.txt"),
        (("--check", "ruff check", "--only", "prog.py"), "", "not FILE:LINE"),
        (("--check", "ruff check", "--only", "prog.py:2"), "", "says nothing about the lines"),
    ],
)
def test_requests_that_cannot_be_tried(
    root: Path, arguments: tuple[str, ...], text: str, words: str
) -> None:
    done = fix(root, *arguments, text=text)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert (root / "prog.py").read_text() == PROGRAM
