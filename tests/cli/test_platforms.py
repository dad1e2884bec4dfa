"""On systems that lack what repairs need, one line says so, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AS_ON_WINDOWS = """
import os, signal, sys

sys.modules["fcntl"] = sys.modules["resource"] = None
del signal.SIGHUP, os.getuid, os.waitid, os.fork, os.statvfs
from clover_code.main import main

sys.exit(main(sys.argv[1:]))
"""


def run(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_ON_WINDOWS, *args]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_repairs_are_refused_where_files_cannot_be_locked(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    for leftover in (root / ".git/clover/pending/x", temporary_root / "clover-fix-0123abcd"):
        leftover.mkdir(parents=True)
    done = run(root, "fix", "--engine", "none", "--check", "python -c 1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "repairs run on Linux and macOS" in done.stderr and "WSL" in done.stderr
    assert (temporary_root / "clover-fix-0123abcd").exists()


def test_commands_that_need_no_locks_work_there(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    (temporary_root / "clover-fix-0123abcd").mkdir()
    for command in (["--version"], ["stats"], ["undo", "--list"]):
        done = run(root, *command)
        assert "Traceback" not in done.stderr and "unexpected" not in done.stderr, done.stderr
        assert done.returncode in (0, 1)
