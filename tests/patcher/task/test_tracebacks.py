"""Pasted tracebacks: real ones of Python and pytest, and samples from other machines and tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clover_patcher.errors import UsageError
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.task.tracebacks import PathFinder, located, named_tests, read_traceback

CORE = """\
def ratio(a, b):
    return (a /
            b)


def report(x):
    try:
        return ratio(1, x)
    except ZeroDivisionError as error:
        raise KeyError("no") from error


def lookup(x):
    try:
        return ratio(1, x)
    except ZeroDivisionError:
        return {}["k"]


def several():
    found = []
    for f in (lambda: ratio(1, 0), lambda: report(0)):
        try:
            f()
        except Exception as error:
            found.append(error)
    raise ExceptionGroup("several", found)
"""
TESTS = """\
from pkg.core import report


def test_report():
    assert report(0) == 1


class TestMore:
    def test_sum(self):
        value = 3
        assert 1 + 1 == value
"""
FILES = {"pkg/__init__.py": "", "pkg/core.py": CORE, "tests/test_core.py": TESTS}
Places = list[tuple[str, list[tuple[str, int]]]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def python(root: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.stdout + done.stderr


def places(text: str, files: dict[str, str] = FILES) -> Places:
    """Exceptions with the places of their frames in the project."""
    found = located(read_traceback(text), list(files), lambda path: files[path].encode())
    return [(one.kind, [(frame.path, frame.line) for frame in one.frames]) for one in found]


# --- Python's own -----------------------------------------------------------------------------

CAUSE = ("ZeroDivisionError", [("pkg/core.py", 8), ("pkg/core.py", 2)])


def test_a_chain_is_read_from_its_cause_on(project: Path) -> None:
    text = python(project, "-c", "from pkg.core import report; report(0)")
    assert places(text) == [CAUSE, ("KeyError", [("pkg/core.py", 10)])]
    text = python(project, "-c", "from pkg.core import lookup; lookup(0)")
    assert "During handling" in text
    assert [kind for kind, _ in places(text)] == ["ZeroDivisionError", "KeyError"]


def test_exception_groups(project: Path) -> None:
    text = python(project, "-c", "from pkg.core import several; several()")
    assert places(text) == [
        ("ExceptionGroup", [("pkg/core.py", 27)]),
        ("ZeroDivisionError", [("pkg/core.py", 24), ("pkg/core.py", 22), ("pkg/core.py", 2)]),
        CAUSE,
        ("KeyError", [("pkg/core.py", 24), ("pkg/core.py", 22), ("pkg/core.py", 10)]),
    ]


def test_a_syntax_error_has_a_place_too(project: Path) -> None:
    files = {**FILES, "pkg/bad.py": "x = 1\ny = = 2\n"}
    (project / "pkg" / "bad.py").write_text(files["pkg/bad.py"])
    text = python(project, "-c", "import pkg.bad")
    assert places(text, files) == [("SyntaxError", [("pkg/bad.py", 2)])]


@pytest.mark.parametrize("prefix", ["> ", "2026-01-02 ERROR worker: ", "    | ", "\t"])
def test_quoted_and_logged(project: Path, prefix: str) -> None:
    text = python(project, "-c", "from pkg.core import report; report(0)")
    quoted = "\r\n".join(prefix + line for line in text.splitlines())
    assert [frames for _, frames in places(quoted)] == [
        CAUSE[1],
        [("pkg/core.py", 10)],
    ]


# --- pytest -----------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["long", "short", "native", "auto"])
@pytest.mark.parametrize("colour", ["yes", "no"])
def test_pytest_styles(project: Path, style: str, colour: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", f"--color={colour}", f"--tb={style}")
    text = python(project, "-m", "pytest", *options, "tests")
    assert ("\x1b[" in text) == (colour == "yes")
    assert places(text) == [
        CAUSE,
        ("KeyError", [("tests/test_core.py", 5), ("pkg/core.py", 10)]),
        ("AssertionError", [("tests/test_core.py", 11)]),
    ]
    assert named_tests(text) == [
        "pytest",
        "tests/test_core.py::test_report",
        "tests/test_core.py::TestMore::test_sum",
    ]


def test_pytest_one_line_each(project: Path) -> None:
    text = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "tests")
    assert ("KeyError", [("pkg/core.py", 10)]) in places(text)


def test_unittest_names_its_tests() -> None:
    text = (
        "FAIL: test_a (tests.test_x.Case)\nERROR: test_b (tests.test_x.Case.test_b) (i=3)\n"
        "FAIL: test_a (tests.test_x.Case)\n"
    )
    names = ["tests.test_x.Case.test_a", "tests.test_x.Case.test_b"]
    assert named_tests(text) == ["python", "-m", "unittest", *names]


# --- other machines and tools -----------------------------------------------------------------


def test_windows_paths() -> None:
    text = (
        "Traceback (most recent call last):\r\n"
        '  File "C:\\Users\\me\\work\\pkg\\core.py", line 2, in ratio\r\n'
        "    return (a /\r\n            ~~^\r\n"
        "ZeroDivisionError: division by zero\r\n"
    )
    assert places(text) == [("ZeroDivisionError", [("pkg/core.py", 2)])]


def test_ipython_and_rich() -> None:
    ipython = (
        "ZeroDivisionError                         Traceback (most recent call last)\n"
        "Cell In[3], line 1\n----> 1 report(0)\n\n"
        "File ~/work/pkg/core.py:8, in report(x)\n      6 def report(x):\n"
        "File ~/work/pkg/core.py:2, in ratio(a, b)\n      1 def ratio(a, b):\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert places(ipython) == [CAUSE]
    rich = (
        "╭────────── Traceback (most recent call last) ──────────╮\n"
        "│ /home/me/pkg/core.py:8 in report                      │\n"
        "│ ❱ 8         return ratio(1, x)                        │\n"
        "│ /home/me/pkg/core.py:2 in ratio                       │\n"
        "╰───────────────────────────────────────────────────────╯\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert places(rich) == [CAUSE]


def test_lines_that_have_moved_are_found_by_their_source() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/app/pkg/core.py", line 108, in report\n'
        "    raise KeyError(\"no\") from error\nKeyError: 'no'\n"
        '  File "/app/pkg/core.py", line 3, in gone\n    nowhere_to_be_found()\nE: x\n'
    )
    assert places(text)[0] == ("KeyError", [("pkg/core.py", 10), ("pkg/core.py", 3)])


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/home/ci/build/src/app/models.py", "src/app/models.py"),
        ("app/models.py", "src/app/models.py"),
        ("/srv/other-layout/app/models.py", "src/app/models.py"),
        ("/venv/lib/python3.11/site-packages/app/models.py", "src/app/models.py"),
        ("D:\\a\\b\\src\\app\\models.py", "src/app/models.py"),
        ("../work/./src/app/models.py", "src/app/models.py"),
        ("/app/cli.py", "cli.py"),
        ("/usr/lib/python3.11/json/decoder.py", None),
        ("/venv/lib/python3.11/site-packages/decoder.py", None),
        ("/venv/lib/python3.11/site-packages/other/models.py", None),
        ("models.py", None),
        ("/x/y/unknown.py", None),
        ("<string>", None),
        ("<frozen importlib._bootstrap>", None),
    ],
)
def test_paths_are_matched_by_their_ends(path: str, file: str | None) -> None:
    files = ["src/app/models.py", "src/shop/models.py", "cli.py", "decoder.py"]
    assert PathFinder(files)(path) == file


@pytest.mark.parametrize("text", ["", "all is well", "Traceback (most recent call last):\n", "E"])
def test_no_traceback(text: str) -> None:
    with pytest.raises(UsageError, match="no traceback was found"):
        read_traceback(text)


# --- repairs ----------------------------------------------------------------------------------

PROGRAM = "def get(d, k):\n    return d[k]\n\n\ndef put(d, k, v):\n    d[k] = k\n    return d\n"
CHECK = "import prog\nif prog.put({}, 1, 2) != {1: 2}:\n    raise SystemExit(1)\n"
PASTED = (
    'Traceback (most recent call last):\n  File "/elsewhere/prog.py", line 6, in put\n'
    "    d[k] = k\nTypeError: unhashable type\n"
)


def run(make_repo, monkeypatch: pytest.MonkeyPatch, check: str, traceback: str) -> FixResult:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    root = make_repo({"prog.py": PROGRAM, "check.py": CHECK, "test_prog.py": TEST})
    return fix(FixRequest(root=root, check=check, traceback=traceback, jobs=1, dry_run=True))


TEST = "from prog import put\n\ndef test_put():\n    assert put({}, 1, 2) == {1: 2}\n"


def test_the_traceback_says_where_to_look(make_repo, monkeypatch, temporary_root) -> None:
    found = run(make_repo, monkeypatch, "python check.py", PASTED)
    assert (found.status, found.line) == ("fixed", 6)
    assert found.explanation is not None
    assert found.explanation.place_rank == 1
    assert "innermost frame of TypeError" in found.explanation.place


def test_a_traceback_of_another_program_is_noted(make_repo, monkeypatch, temporary_root) -> None:
    other = PASTED.replace("prog.py", "unknown.py")
    found = run(make_repo, monkeypatch, "python check.py", other)
    assert found.status == "fixed"
    assert any("no frame of the traceback" in note for note in found.notes)


def test_the_tests_it_names_are_the_check(make_repo, monkeypatch, temporary_root) -> None:
    text = PASTED + "FAILED test_prog.py::test_put - TypeError: unhashable type\n"
    assert run(make_repo, monkeypatch, "", text).line == 6


def test_without_a_command_nothing_can_be_validated(make_repo, monkeypatch, temporary_root) -> None:
    with pytest.raises(UsageError, match="does not say how to run the program.*--check"):
        run(make_repo, monkeypatch, "", PASTED)
