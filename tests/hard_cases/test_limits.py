"""Full disks and missing rights: one clear line, and the tree as it was."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_patcher.errors import PatcherError

from .harness import BROKEN, CHECK, FIXED, Hooked, Repairs, differences, tree

CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24
COMMAND = [sys.executable, "-m", "clover_code.main", "fix", "--engine", "none", "--check", CHECK]


def limit_files(size: int) -> None:
    """From now on no file of this process grows beyond `size` bytes, as on a full disk."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else hard, hard))


@pytest.mark.parametrize("stage", ["snapshot", "search", "confirm", "apply"])
def test_a_full_disk_changes_nothing(make_repo, repairs: Repairs, stage: str) -> None:
    root = make_repo(BROKEN)
    before, index = tree(root), (root / ".git/index").read_bytes()
    try:
        result = repairs.run(root, hooked=Hooked(**{stage: lambda: limit_files(8)}))
        said, code = str(result.error), result.exit_code
    except PatcherError as exc:
        said, code = str(exc), exc.exit_code
    finally:
        limit_files(-1)
    assert code in (2, 4)
    assert "File too large" in said
    assert said.count("\n") == 0
    assert not differences(before, tree(root))
    assert (root / ".git/index").read_bytes() == index
    repairs.fixed(root, {"program.py": FIXED})


def without_privileges() -> None:
    """Makes root's processes obey permission bits, from their next program on."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def run_as_anybody(root: Path) -> subprocess.CompletedProcess[str]:
    drop: Callable[[], None] | None = without_privileges if os.getuid() == 0 else None
    return subprocess.run(COMMAND, cwd=root, capture_output=True, text=True, preexec_fn=drop)


def test_a_folder_that_may_not_be_written(make_repo, repairs: Repairs) -> None:
    """The file could be, but only in place: a kill in the middle would leave half of it."""
    root = make_repo({"pkg/program.py": BROKEN["program.py"], "check.py": "import pkg.program\n"})
    check = str(BROKEN["check.py"]).replace("from program", "from pkg.program")
    make_repo.write(root, {"check.py": check})
    before = tree(root)
    (root / "pkg").chmod(0o555)
    try:
        done = run_as_anybody(root)
    finally:
        (root / "pkg").chmod(0o755)
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("\n") == 1
    assert "pkg/program.py" in done.stderr
    assert "Permission denied" in done.stderr
    assert "+    return a + b" in done.stdout
    assert not differences(before, tree(root))


def test_a_git_folder_that_may_not_be_written(make_repo, repairs: Repairs) -> None:
    root = make_repo(BROKEN)
    before = tree(root)
    folders = [root / ".git", *(path for path in (root / ".git").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        done = run_as_anybody(root)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "ermission denied" in done.stderr
    assert not differences(before, tree(root))
