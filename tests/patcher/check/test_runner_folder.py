"""The check runs in the folder the user stands in; what it says is about the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.errors import UsageError
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.types import Frame

PROGRAM = "def double(x):\n    return x + 2\n"
TESTS = "from prog import double\n\n\ndef test_double():\n    assert double(5) == 10\n"
SCRIPT = "from prog import double\nif double(5) != 10:\n    raise ValueError(double(5))\n"
FILES = {
    "prog.py": "raise SystemExit('the wrong program')\n",
    "services/api/prog.py": PROGRAM,
    "services/api/tests/test_prog.py": TESTS,
    "services/api/run.py": SCRIPT,
    "services/api/check.sh": "#!/bin/sh\ntest -f check.sh && exec python run.py\n",
    "services/other/prog.py": "raise SystemExit('another one')\n",
}


pytestmark = pytest.mark.usefixtures("own_python")


@pytest.fixture
def folder(make_repo) -> Path:
    root = make_repo(FILES)
    (root / "services/api/check.sh").chmod(0o755)
    make_repo.commit(root)
    return root / "services" / "api"


def run(folder: Path, check: str, *paths: str) -> FixResult:
    return fix(FixRequest(root=folder, check=check, paths=paths, jobs=1))


@pytest.mark.parametrize(
    "check",
    [
        "python -m pytest -q",
        "python -m pytest -q tests/test_prog.py::test_double",
        "python run.py",
        "./check.sh",
    ],
)
def test_the_check_runs_where_the_user_stands(make_repo, folder: Path, check: str) -> None:
    paths = ("prog.py",) if check == "./check.sh" else ()
    result = run(folder, check, *paths)
    assert (result.status, result.path, result.line) == ("fixed", "services/api/prog.py", 2)
    assert (folder / "prog.py").read_text() == PROGRAM.replace("+", "*")
    assert result.notes == ()
    changed = make_repo.git(folder, "status", "--porcelain", "--ignored")
    assert changed == " M services/api/prog.py\n"


def test_a_script_named_by_the_check_is_not_patched(folder: Path) -> None:
    (folder / "prog.py").write_text("def double(x):\n    raise TypeError\n")
    assert run(folder, "python run.py").path in (None, "services/api/prog.py")
    assert (folder / "run.py").read_text() == SCRIPT


def test_frames_of_relative_file_names_are_those_of_the_repository(
    make_repo, folder: Path, tmp_path: Path
) -> None:
    """A script's own frames have the name it was started with."""
    check = Check.parse("python run.py", folder)
    with ProgramRunner(check, folder.parent.parent, tmp=tmp_path, cwd="services/api") as runner:
        (failure,) = runner.baseline().failures
        assert (failure.kind, failure.message) == ("ValueError", "7")
        assert failure.frames == (Frame("services/api/run.py", 3, "<module>"),)
        lines = {line for covered in runner.trace() for line in covered.lines}
        assert ("services/api/prog.py", 2) in lines


def test_a_folder_that_the_copy_does_not_have_is_made(make_repo) -> None:
    root = make_repo({"prog.py": PROGRAM, "run.py": SCRIPT})
    (root / "empty").mkdir()
    assert run(root / "empty", "python ../run.py", "../prog.py").status == "fixed"


def test_programs_and_paths_are_looked_up_there(folder: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        run(folder, "python services/api/run.py")
    with pytest.raises(UsageError, match="does not exist"):
        run(folder, "python run.py", "services/api/prog.py")
