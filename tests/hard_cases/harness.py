"""What the hard cases share: a tiny broken program, the whole state of a repository, a repair.

`Repairs.fixed` runs the real `fix` and compares every byte, mode and link of the working tree, and
every byte of git's own folder, with what they must be afterwards.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clover_engine.api import Engine
from clover_engine.testing.fakes import FakeEngine
from clover_patcher.fix import FixRequest, FixResult, fix

CHECK = "python check.py"
PROGRAM = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
TESTS = "from program import add\n\nassert add(2, 3) == 5\nassert add('a', 'b') == 'ab'\n"
BROKEN: dict[str, str | bytes] = {"program.py": PROGRAM, "check.py": TESTS}
"""A program with one wrong operator, and the check that says so."""

Entry = tuple[str, int, bytes]
"""Kind, permission bits, content (of a link: where it points)."""
Tree = dict[str, Entry]


HALF = "def double(n):\n    n += n\n"
"""A function whose last line is missing: `RETURN`."""
RETURN = "    return n\n"
HALF_TESTS = "from program import double\n\nassert double(2) == 4\nassert double(3) == 6\n"


def prefers(text: str) -> FakeEngine:
    """A model that finds one content of a line likelier than all others."""
    return FakeEngine(on_score=lambda _, candidate: -0.1 if candidate.strip() == text else -9.0)


def by_path(path: str, call: str = "add(2, 3) == 5 and module.add('a', 'b') == 'ab'") -> str:
    """A check of a module whose file name cannot be imported, or whose folder cannot."""
    return (
        "from importlib.util import module_from_spec, spec_from_file_location\n\n"
        f"spec = spec_from_file_location('module', {path!r})\n"
        "module = module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        f"assert module.{call}\n"
    )


def tree(root: Path, *, skip: str = ".git") -> Tree:
    """Everything below `root`, without git's own folder or file at the top."""
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root and skip in folders + files:
            (folders if skip in folders else files).remove(skip)
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = _entry(path)
    return found


def _entry(path: str) -> Entry:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", 0, os.fsencode(os.readlink(path))
    if stat.S_ISDIR(mode):
        return "folder", stat.S_IMODE(mode), b""
    with open(path, "rb") as file:
        return "file", stat.S_IMODE(mode), file.read()


def git_state(folder: Path) -> Tree:
    """Index, refs, logs, configuration, objects, records of worktrees: all that git has there.

    The records of our own fixes, which git knows nothing of, are left out.
    """
    return tree(folder, skip="clover")


def differences(expected: Tree, found: Tree) -> dict[str, tuple[Entry | None, Entry | None]]:
    """Paths where two trees differ, with what was expected and what was found."""
    paths = sorted(expected | found)
    pairs = {path: (expected.get(path), found.get(path)) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


class Hooked:
    """Progress that does something to the world when a stage begins."""

    def __init__(self, **actions: Callable[[], object]) -> None:
        self.actions = actions
        self.stages: list[str] = []

    def event(self, stage: str, message: str, **numbers: float) -> None:
        """Runs the stage's action the first time that the stage is reported."""
        if stage not in self.stages and stage in self.actions:
            self.actions[stage]()
        self.stages.append(stage)


class Repairs:
    """Runs repairs and checks everything they leave behind."""

    def run(
        self,
        root: Path,
        check: str = CHECK,
        *,
        engine: Engine | None = None,
        hooked: Hooked | None = None,
        **more: Any,
    ) -> FixResult:
        return fix(FixRequest(root, check, **{"jobs": 1, **more}), engine, hooked)

    def fixed(
        self,
        root: Path,
        expected: Mapping[str, str | bytes],
        *,
        common_dir: Path | None = None,
        start: Path | None = None,
        check: str = CHECK,
        **more: Any,
    ) -> FixResult:
        """Repairs, and expects these contents and not a byte of difference elsewhere."""
        before, common = tree(root), common_dir or root / ".git"
        state = git_state(common)
        result = self.run(start or root, check, **more)
        assert (result.status, result.applied) == ("fixed", True), result
        for path, content in expected.items():
            data = content.encode() if isinstance(content, str) else content
            assert before[path][2] != data
            before[path] = (*before[path][:2], data)
        after = tree(root)
        assert not (wrong := differences(before, after)), wrong
        assert not (wrong := differences(state, git_state(common))), wrong
        return result

    def unchanged(self, root: Path, check: str = CHECK, **more: Any) -> FixResult:
        """Runs a repair that must leave the tree and git's folder as they are."""
        before, state = tree(root), git_state(root / ".git")
        try:
            return self.run(root, check, **more)
        finally:
            assert not (wrong := differences(before, tree(root))), wrong
            assert not (wrong := differences(state, git_state(root / ".git"))), wrong

    def status(self, root: Path) -> str:
        """What git says about the tree, with names as they are and each ended by a NUL."""
        command = ["git", "--no-optional-locks", "status", "--porcelain", "-z"]
        return os.fsdecode(subprocess.run(command, cwd=root, check=True, stdout=-1).stdout)


class Canary:
    """A program that repositories name in many places; it leaves a mark when it runs."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "canary-ran"
        self.program = folder / "canary.sh"
        self.program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.mark}'\n")
        self.program.chmod(0o755)

    @property
    def ran(self) -> bool:
        return self.mark.exists()

    def hooks(self, folder: Path, *names: str) -> None:
        """Installs the program as these hooks."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(self.program)
