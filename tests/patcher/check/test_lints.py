"""Linters and type checkers as checks: real ruff and mypy processes on real repositories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.lintrunner import LintRunner
from clover_patcher.check.lints import check_for, recognise
from clover_patcher.errors import UsageError
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.types import Diagnostic, Edit

UNUSED = "import os\nimport sys\n\n\ndef home():\n    return sys.argv\n"
CONFIG = "[tool.ruff.lint]\nselect = ['E', 'F', 'B']\n"


pytestmark = pytest.mark.usefixtures("own_python")


def run(root: Path, check: str, **more: Any) -> FixResult:
    return fix(FixRequest(root=root, check=check, jobs=1, **more))


def status(make_repo, root: Path) -> str:
    return str(make_repo.git(root, "status", "--porcelain", "--ignored"))


# --- repairs ----------------------------------------------------------------------------------


def test_an_unused_import_is_removed(make_repo) -> None:
    root = make_repo({"prog.py": UNUSED, "pyproject.toml": CONFIG})
    result = run(root, "ruff check")
    assert (result.status, result.path, result.line) == ("fixed", "prog.py", 1)
    assert (root / "prog.py").read_text() == UNUSED.removeprefix("import os\n")
    assert status(make_repo, root) == " M prog.py\n", "no cache of ruff's in the user's tree"


def test_ruff_is_not_allowed_to_repair_by_itself(make_repo) -> None:
    """With its own `--fix` the copy would be rewritten and every candidate would pass."""
    root = make_repo({"prog.py": "def f(x):\n    return x == None\n", "pyproject.toml": CONFIG})
    result = run(root, "ruff check --fix --unsafe-fixes --output-format=concise .")
    assert result.status == "fixed"
    assert (root / "prog.py").read_text() == "def f(x):\n    return x is None\n"


def test_the_tools_own_repair_of_several_diagnostics_comes_first(make_repo) -> None:
    program = "# é\nimport os\nimport sys\n\n\ndef f(x):\n    return 'ü', x == None\n"
    root = make_repo({"prog.py": program, "pyproject.toml": CONFIG})
    result = run(root, "ruff check")
    assert (result.status, result.candidates_tried) == ("fixed", 1)
    wanted = "# é\n\n\ndef f(x):\n    return 'ü', x is None\n"
    assert (root / "prog.py").read_text() == wanted


def test_a_type_error_is_repaired_where_mypy_sees_it(make_repo) -> None:
    program = "def pick(number: int, text: str) -> int:\n    return text\n"
    root = make_repo({"pkg/__init__.py": "", "pkg/code.py": program})
    result = run(root, "mypy pkg")
    assert (result.status, result.path, result.line) == ("fixed", "pkg/code.py", 2)
    assert b"return number" in result.changes[0].after
    assert status(make_repo, root) == " M pkg/code.py\n", "no cache of mypy's in the user's tree"


def test_the_linter_runs_in_the_users_folder_and_names_files_of_the_repository(make_repo) -> None:
    root = make_repo({"a/b/prog.py": UNUSED, "other.py": UNUSED})
    result = run(root / "a", "python -m ruff check b/prog.py")
    assert (result.status, result.path) == ("fixed", "a/b/prog.py")


def test_other_diagnostics_stay_where_only_one_is_asked_for(make_repo) -> None:
    root = make_repo({"prog.py": "import os\n" + UNUSED + "def x():\n    import re\n"})
    assert run(root, "ruff check", dry_run=True).status == "none_found", "three, in two places"
    only = (Diagnostic("prog.py", 8 + 1, "", "F401"),)
    result = run(root, "ruff check", only=only)
    assert (result.status, result.line) == ("fixed", 9)
    after = (root / "prog.py").read_text()
    assert "import re" not in after
    assert after.startswith("import os\nimport os\n")


def test_a_candidate_that_trades_one_diagnostic_for_another_is_not_taken(make_repo) -> None:
    """Without the assignment there is no F841, but a name is undefined then (F821)."""
    program = "def f():\n    value = 1\n    return valeu\n"
    root = make_repo({"prog.py": program})
    result = run(root, "ruff check")
    assert result.status == "fixed"
    assert (root / "prog.py").read_text() == program.replace("valeu", "value")


def test_a_linter_s_test_file_is_not_patched(make_repo) -> None:
    root = make_repo({"test_prog.py": UNUSED, "prog.py": "x = 1\n"})
    result = run(root, "ruff check")
    assert result.status == "none_found"
    assert "test_prog.py may not be patched" in (result.error or "")


def test_an_editor_s_diagnostic_is_its_own_check(make_repo) -> None:
    """What a language server asks for: no command, an unsaved buffer, and a diagnostic of it."""
    root = make_repo({"pkg/prog.py": "x = 1\n"})
    said = Diagnostic("pkg/prog.py", 1, "`os` imported but unused", "F401", "Ruff")
    result = run(root / "pkg", "", only=(said,), overlay={"pkg/prog.py": UNUSED.encode()})
    assert (result.status, result.applied, result.line) == ("fixed", False, 1)
    assert result.changes[0].after == UNUSED.removeprefix("import os\n").encode()
    with pytest.raises(UsageError, match="--check"):
        run(root, "", only=(Diagnostic("pkg/prog.py", 1, "odd", "X1", "somebody"),))


# --- what the runner says ---------------------------------------------------------------------


@pytest.fixture
def lint(tmp_path: Path, temporary_root: Path) -> Iterator[Any]:
    """Starts a linter on a folder of files; closed at the end."""
    started: list[LintRunner] = []
    tmp = tmp_path / "scratch"
    tmp.mkdir()

    def begin(files: dict[str, str], command: str, **more: Any) -> LintRunner:
        tree = tmp_path / "tree"
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        started.append(LintRunner(Check.parse(command, tree), tree, tmp=tmp, **more))
        return started[-1]

    yield begin
    for runner in started:
        runner.close()


def test_diagnostics_are_failures_with_names_and_places(lint: Any) -> None:
    runner = lint({"a b.py": UNUSED, "sub/x.py": "print(y)\n"}, "ruff check")
    outcome = runner.baseline()
    assert [(f.nodeid, f.kind) for f in outcome.failures] == [
        ("a b.py:1:F401", "F401"),
        ("sub/x.py:1:F821", "F821"),
    ]
    assert runner.targets[0] == Diagnostic(
        "a b.py", 1, "`os` imported but unused", "F401", "ruff", 8
    )
    assert runner.baseline().signature == outcome.signature
    assert not list(runner.worktree.rglob("*_cache"))


def test_versions_of_the_same_size_within_a_second_are_told_apart(lint: Any) -> None:
    """mypy's cache knows a file by its size and the second of its last change."""
    runner = lint({"prog.py": "x: int = 'a'\n"}, "mypy prog.py")
    assert runner.baseline().failures[0].nodeid == "prog.py:1:assignment"
    good = Edit("prog.py", 9, 12, b"100")
    bad = Edit("prog.py", 9, 12, b"'b'")
    said = [runner.run([edit]).status for edit in (good, bad, good, bad, good)]
    assert said == ["passed", "failed", "passed", "failed", "passed"]
    assert (runner.worktree / "prog.py").read_text() == "x: int = 'a'\n"


def test_moved_lines_are_not_new_diagnostics(lint: Any) -> None:
    files = {"prog.py": "import os\n\n\ndef f():\n    return undefined\n"}
    runner = lint(files, "ruff check", only=[Diagnostic("prog.py", 1, "", "F401")])
    assert runner.baseline().failures[0].nodeid == "prog.py:1:F401"
    assert runner.run([Edit("prog.py", 0, 10, b"")]).status == "passed"
    assert runner.run([Edit("prog.py", 0, 10, b"import re\n")]).status == "failed"
    assert runner.run([Edit("prog.py", 0, 10, b"undefined\n")]).status == "failed", "one more"


def test_a_file_that_no_longer_parses_does_not_pass(lint: Any) -> None:
    runner = lint({"prog.py": "x: int = 'a'\n", "other.py": "y = 1\n"}, "mypy prog.py other.py")
    runner.baseline()
    assert runner.run([Edit("prog.py", 0, 12, b"x: int = (")]).status != "passed"


@pytest.mark.parametrize("command", ["ruff check --no-such-option", "mypy --no-such-option x.py"])
def test_a_tool_that_cannot_run_is_a_usage_error(lint: Any, command: str) -> None:
    with pytest.raises(UsageError, match="cannot run: .*no-such-option"):
        lint({"x.py": ""}, command).baseline()


def test_lines_that_nobody_complains_about(lint: Any) -> None:
    runner = lint({"prog.py": UNUSED}, "ruff check", only=[Diagnostic("prog.py", 2, "")])
    with pytest.raises(UsageError, match=r"prog\.py:1:F401"):
        runner.baseline()


def test_a_tool_that_prints_sarif(lint: Any) -> None:
    """Any command that says `--output-format=sarif`; here ruff behind a script."""
    files = {
        "lint.sh": '#!/bin/sh\nexec ruff check --no-cache "$@"\n',
        "prog.py": UNUSED,
    }
    (lint({**files}, "ruff check")).worktree.joinpath("lint.sh").chmod(0o755)
    runner = lint({}, "./lint.sh --output-format=sarif")
    outcome = runner.baseline()
    assert [f.nodeid for f in outcome.failures] == ["prog.py:1:F401"]
    assert runner.run([Edit("prog.py", 0, 10, b"")]).status == "passed"
    assert runner.run([Edit("prog.py", 0, 10, b"import re\n")]).status == "failed"


# --- recognising ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name", "form"),
    [
        ("/bin/ruff check src", "ruff", "ruff"),
        ("/usr/bin/python3 -m ruff check", "ruff", "ruff"),
        ("/bin/mypy --strict x.py", "mypy", "mypy"),
        ("/bin/python3.11 -m mypy x.py", "mypy", "mypy"),
        ("/bin/uv run mypy x.py", "mypy", "mypy"),
        ("/bin/poetry run python -m pylint pkg", "pylint", "pylint"),
        ("/bin/flake8", "flake8", "flake8"),
        ("/bin/basedpyright src", "basedpyright", "pyright"),
        ("/bin/bandit -r src -f json", "bandit", "any"),
        ("/bin/semgrep scan --output-format=sarif", "semgrep", "any"),
    ],
)
def test_tools_are_known_by_name_or_by_what_they_print(command: str, name: str, form: str) -> None:
    linter = recognise(command.split())
    assert linter is not None
    assert (linter.name, linter.form) == (name, form)


@pytest.mark.parametrize(
    "command",
    [
        "/bin/ruff format --check",
        "/bin/make lint",
        "/bin/pytest -q",
        "/bin/sh -c mypy",
        "/bin/uv run",
    ],
)
def test_other_commands_are_not_linters(command: str) -> None:
    assert recognise(command.split()) is None


def test_options_of_the_user_s_that_contradict_ours_are_dropped() -> None:
    linter = recognise(
        ["/bin/ruff", "check", "--fix", "--output-format", "concise", "-o", "x", "--select", "F"]
        + ["--", "a"]
    )
    assert linter is not None
    assert linter.argv == (
        *("/bin/ruff", "check", "--select", "F"),
        *("--output-format=json", "--no-fix", "--no-cache", "--", "a"),
    )


@pytest.mark.parametrize(
    ("source", "path", "command"),
    [
        ("Ruff", "pkg/a b.py", "ruff check 'a b.py'"),
        ("dmypy", "pkg/x.py", "mypy x.py"),
        ("Pylance", "-x.py", "pyright ../-x.py"),
        ("Pylint", "pkg/-x.py", "pylint ./-x.py"),
        ("Sourcery", "pkg/x.py", None),
    ],
)
def test_the_command_behind_a_diagnostic(source: str, path: str, command: str | None) -> None:
    assert check_for(Diagnostic(path, 1, "", "", source), "pkg") == command
