"""A repository with a validated patch, and what tests do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clover_patcher.deliver.deliver import Delivered, deliver
from clover_patcher.deliver.message import FixSummary
from clover_patcher.edits import FileChange
from clover_patcher.repository.git import Repository

BEFORE, AFTER = "def double(x):\n    return x + 3\n", "def double(x):\n    return x * 2\n"
FILES = {"pkg/prog.py": BEFORE, "other.py": "a = 1\n", "staged.py": "b = 1\n"}
SUMMARY = FixSummary(
    failing=("tests/test_prog.py::test_double",),
    check="pytest -q tests",
    failure="Failing before: tests/test_prog.py::test_double (AssertionError) of 3 tests",
    place="pkg/prog.py:2",
    change="The change (operator) gives `return x * 2`",
    validation="The whole check passes with it",
    proposer="the model clover-nano",
)


class Patched:
    """The repository; `deliver` writes the patch into it."""

    def __init__(self, make_repo: Any, root: Path) -> None:
        self.root, self._make = root, make_repo
        self.program = root / "pkg/prog.py"

    @property
    def repository(self) -> Repository:
        return Repository.open(self.root)

    def deliver(self, *, commit: bool = False, summary: FixSummary = SUMMARY) -> Delivered:
        before = self.program.read_bytes()
        after = before.replace(b"x + 3", b"x * 2")
        change = FileChange("pkg/prog.py", before, after)
        return deliver(self.repository, [change], summary, commit=commit)

    def git(self, *args: str) -> str:
        return str(self._make.git(self.root, *args))

    def status(self) -> str:
        return self.git("status", "--porcelain")

    def hook(self, name: str, script: str) -> None:
        path = self.root / ".git/hooks" / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
