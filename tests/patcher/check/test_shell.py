"""Checks as people type them: what is understood without a shell, and what is left to one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.shell import read, shell_command
from clover_patcher.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tests").mkdir()
    for name in ("test_b.py", "test_a.py", "data.txt"):
        (tmp_path / "tests" / name).write_text("")
    monkeypatch.setenv("WHAT", "a b")
    monkeypatch.delenv("NOTHING_AT_ALL", raising=False)
    return tmp_path


SIMPLE = [
    "prog -k 'a and (b or c)' x",
    'prog "$WHAT" $WHAT ${WHAT} $NOTHING_AT_ALL end',
    "prog tests/test_*.py tests/nothing_*.py",
    "prog 'tests/test_*.py' tests/test_\\*.py",
    "prog ~/x a~b",
    r'prog a\ b "c \" d" e\"f',
    "A=1 B='x  y' prog",
    "A=1 env C=2 prog z",
    "cd tests && prog test_?.py",
    "cd tests; A=1 prog",
    "export A=7 && prog",
    "prog x 2>&1",
    "prog x > /dev/null 2>&1",
    "prog x # a remark",
    "prog x;",
    "prog 'x;y' 'a|b' '&&'",
]


@pytest.mark.parametrize("command", SIMPLE)
def test_a_simple_line_is_what_bash_makes_of_it(folder: Path, command: str) -> None:
    """Bash is asked what the program would be given, and where it would run."""
    line = read(command, folder)
    assert not line.shell
    report = folder / "report"
    program = folder / "bin" / "prog"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(report)!r}, 'w').write(repr((sys.argv[1:], os.getcwd(), "
        "os.environ.get('A'), os.environ.get('B'), os.environ.get('C'))))\n"
    )
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=folder, env=env, check=True)
    wanted = eval(report.read_text())
    known = tuple(line.env.get(name) for name in "ABC")
    assert (list(line.words[1:]), str(line.folder), *known) == wanted
    assert line.words[0] == "prog"


@pytest.mark.parametrize(
    "command",
    [
        "pytest && true",
        "pytest || exit 1",
        "pytest | grep passed",
        "pytest $(cat tests/data.txt)",
        "pytest `cat x`",
        "for i in 1 2; do pytest; done",
        "(cd tests && pytest)",
        "pytest tests/{test_a,test_b}.py",
        "pytest > out.txt",
        "pytest & wait",
        "cd tests && pytest && true",
        "! pytest",
    ],
)
def test_what_only_a_shell_understands_is_left_to_one(folder: Path, command: str) -> None:
    check = Check.parse(command, folder, folder)
    assert check.kind == "command"
    assert Path(check.argv[0]).name in ("bash", "sh")
    assert check.script and command.endswith(check.script)
    assert "pytest" in check.words
    assert check.folder == (folder / "tests" if command.startswith("cd") else None)


@pytest.mark.parametrize("command", ["pytest -q | tail -5", "pytest -q 2>&1 | less", "pytest -q;"])
def test_a_pipe_that_only_shows_output_is_left_away(folder: Path, command: str) -> None:
    assert read(command, folder).words == ("pytest", "-q")


def test_a_filtered_check_fails_where_its_first_command_fails(folder: Path) -> None:
    ran = [
        subprocess.run(shell_command(script), cwd=folder, capture_output=True, check=False)
        for script in ("false | tee log", "true | tee log", "yes | head -1", "false | grep x")
    ]
    assert [one.returncode for one in ran] == [1, 0, 0, 1]


def test_activating_an_environment_is_understood(folder: Path) -> None:
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "activate").write_text("")
    tool = scripts / "a-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    check = Check.parse(". .venv/bin/activate && a-tool x", folder, folder)
    assert check.argv == (str(tool), "x")
    assert dict(check.env)["VIRTUAL_ENV"] == str(folder / ".venv")


@pytest.mark.parametrize(
    "command",
    ["uv run {}", "uv run --frozen -- {}", "poetry run {}", "pipenv run {}", "pdm run {}"],
)
def test_launchers_are_the_program_in_the_project_s_environment(folder: Path, command: str) -> None:
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").write_text("")
    (scripts / "python").symlink_to(sys.executable)
    (scripts / "pytest").write_text(f"#!{scripts}/python\n")
    (scripts / "pytest").chmod(0o755)
    check = Check.parse(command.format("pytest -q tests"), folder / "tests", folder)
    assert (check.kind, check.interpreter) == ("pytest", f"{scripts}/python")
    assert check.arguments == ("-q", "tests")
    check = Check.parse(command.format("python -m pytest"), folder, folder)
    assert (check.kind, check.interpreter) == ("pytest", f"{scripts}/python")


def test_leading_out_of_the_repository_is_left_to_a_shell(folder: Path) -> None:
    check = Check.parse("cd .. && pytest", folder / "tests", folder / "tests")
    assert (check.kind, check.folder, check.script) == ("command", None, "cd .. && pytest")


def test_a_script_of_the_project_is_a_python_check(folder: Path) -> None:
    script = folder / "run-it"
    script.write_text(f"#!{sys.executable}\nprint(1)\n")
    script.chmod(0o755)
    check = Check.parse("./run-it --all", folder, folder)
    assert (check.kind, check.arguments) == ("python", ("run-it", "--all"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cd nowhere && pytest", "no folder"),
        ("pytest 'x", "open quote"),
        ("  ", "empty"),
    ],
)
def test_what_cannot_be_run(folder: Path, command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Check.parse(command, folder, folder)
