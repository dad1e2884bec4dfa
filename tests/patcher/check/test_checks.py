"""Check commands: what kind they are, and clear errors for what cannot be run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.errors import UsageError


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("arguments", "kind", "flags", "rest"),
    [
        ("-m pytest -x tests", "pytest", (), ("-x", "tests")),
        ("-X dev -W error -m pytest", "pytest", ("-X", "dev", "-W", "error"), ()),
        ("-Werror -m pytest a.py", "pytest", ("-Werror",), ("a.py",)),
        ("-m unittest -v", "python", (), ("-m", "unittest", "-v")),
        ("run.py 'a b'", "python", (), ("run.py", "a b")),
        ("-m mypy src", "lint", (), ()),
        ("-m build", "command", (), ()),
        ("-c pass", "command", (), ()),
    ],
)
def test_python_commands(
    tmp_path: Path, arguments: str, kind: str, flags: tuple[str, ...], rest: tuple[str, ...]
) -> None:
    (tmp_path / "run.py").write_text("pass\n")
    check = Check.parse(f"{sys.executable} {arguments}", tmp_path)
    assert (check.kind, check.flags, check.arguments) == (kind, flags, rest)
    assert check.interpreter == (sys.executable if kind in ("pytest", "python") else None)
    assert check.display == f"{sys.executable} {arguments}"


def test_python_is_looked_up_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = _script(tmp_path / "bin" / "python3", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    check = Check.parse("python3 -m pytest", tmp_path)
    assert (check.kind, check.interpreter) == ("pytest", str(python))


def test_a_test_s_name_is_a_pytest_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _script(tmp_path / "bin" / "pytest", f"#!{sys.executable}\nimport pytest\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "test_x.py").write_text("def test_y(): pass\n")
    check = Check.parse("'test_x.py::test_y[a b]' test_x.py::test_z", tmp_path)
    assert (check.kind, check.argv[0]) == ("pytest", str(script))
    assert check.arguments == ("test_x.py::test_y[a b]", "test_x.py::test_z")
    with pytest.raises(UsageError, match="was not found"):
        Check.parse("missing.py::test_y", tmp_path)


def test_an_environment_s_python_is_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    link = tmp_path / "venv" / "python"
    link.symlink_to(sys.executable)
    assert Check.parse("venv/python -m pytest", tmp_path).interpreter == str(link)


def test_pytest_script_tells_its_interpreter(tmp_path: Path) -> None:
    script = _script(tmp_path / "bin" / "pytest", f"#!{sys.executable}\nimport pytest\n")
    check = Check.parse("bin/pytest -q tests", tmp_path)
    assert (check.kind, check.interpreter) == ("pytest", sys.executable)
    assert check.arguments == ("-q", "tests")
    assert check.import_first == str(script.parent)


def test_pytest_script_with_a_long_interpreter_path(tmp_path: Path) -> None:
    text = f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
    _script(tmp_path / "bin" / "pytest", text)
    assert Check.parse("bin/pytest", tmp_path).interpreter == sys.executable


def test_pytest_wrapper_uses_the_python_beside_it(tmp_path: Path) -> None:
    _script(tmp_path / "bin" / "pytest", '#!/usr/bin/env bash\nexec pytest "$@"\n')
    assert Check.parse("bin/pytest", tmp_path).kind == "command"
    python = _script(tmp_path / "bin" / "python", "#!/bin/sh\n")
    check = Check.parse("bin/pytest", tmp_path)
    assert (check.kind, check.interpreter) == ("pytest", str(python))


def test_first_import_folder(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "run.py").write_text("pass\n")

    def first(arguments: str) -> str | None:
        return Check.parse(f"{sys.executable} {arguments}", tmp_path).import_first

    assert first("-m pytest") == ""
    assert first("-I -m pytest") is None
    assert first("-m unittest") == ""
    assert first("tools/run.py") == "tools"
    assert first("-m mypy") is None


def test_other_programs_are_commands(tmp_path: Path) -> None:
    check = Check.parse("sh -c 'exit 1'", tmp_path)
    assert (check.kind, check.argv[1:]) == ("command", ("-c", "exit 1"))
    assert os.path.isabs(check.argv[0])


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("", "give a command"),
        ("   ", "give a command"),
        ("pytest 'tests", "open quote"),
        ("no-such-program-anywhere -x", "install it"),
        ("./missing.sh", "does not exist"),
        ("./plain.txt", "not executable"),
        (f"{sys.executable} missing.py", "does not exist"),
    ],
)
def test_unusable_commands(tmp_path: Path, command: str, hint: str) -> None:
    (tmp_path / "plain.txt").write_text("")
    with pytest.raises(UsageError, match=hint) as caught:
        Check.parse(command, tmp_path)
    assert "\n" not in str(caught.value)
