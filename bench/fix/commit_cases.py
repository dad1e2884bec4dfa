"""Real bug-fix commits as cases: where they are, how the broken tree is made, how tests are run.

A case names a commit of a public project; nothing of the project is kept here. Its tree is the
parent's, with every file that the commit changed beside the sources (tests, their data, notes)
taken from the commit: what a maintainer has who has written the test and not yet the fix.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

CASES = Path(__file__).with_name("commits.json")
REQUIREMENTS = Path(__file__).with_name("commits-requirements.txt")
PROJECTS: dict[str, str] = {
    "alecthomas/voluptuous": "voluptuous/tests",
    "andialbrecht/sqlparse": "tests",
    "arrow-py/arrow": "tests",
    "astanin/python-tabulate": "test",
    "dateutil/dateutil": "tests dateutil/test",
    "davidhalter/parso": "test",
    "dgilland/pydash": "tests",
    "executablebooks/markdown-it-py": "tests",
    "keleshev/schema": "test_schema.py",
    "lark-parser/lark": "tests",
    "lepture/mistune": "tests",
    "mahmoud/glom": "glom/test",
    "marshmallow-code/marshmallow": "tests",
    "nvbn/thefuck": "tests",
    "pallets/click": "tests",
    "python-attrs/cattrs": "tests",
    "Suor/funcy": "tests",
    "un33k/python-slugify": "test.py",
    "wtforms/wtforms": "tests",
}
"""Pure-Python projects and where their suites are; the first that exists counts."""
_PYTEST = ("-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider")
_TEST_PATH = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|tests?|conftest)\.py$")


@dataclass(frozen=True, slots=True)
class Case:
    """A commit that mends `sources`, and the tests that failed before it."""

    project: str
    commit: str
    parent: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    lines: int
    """Lines that the commit adds to the sources and takes from them."""

    @property
    def name(self) -> str:
        return f"{self.project.split('/')[1]}@{self.commit[:8]}"


def load_cases(path: Path = CASES) -> list[Case]:
    entries = json.loads(path.read_text())
    return [Case(**{k: tuple(v) if isinstance(v, list) else v for k, v in e.items()})
            for e in entries]  # fmt: skip


def save_cases(cases: Sequence[Case], path: Path = CASES) -> None:
    entries = [asdict(case) for case in sorted(cases, key=lambda c: (c.project, c.commit))]
    path.write_text(json.dumps(entries, indent=1) + "\n")


# --- places -----------------------------------------------------------------------------------


def mirror(project: str, folder: Path) -> Path:
    """The project's history, a bare repository `OWNER+NAME/repo`; cloned at the first use."""
    target = folder / project.replace("/", "+") / "repo"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        url = f"https://github.com/{project}"
        subprocess.run(["git", "clone", "-q", "--bare", url, str(target)], check=True)
    return target


def environment(folder: Path) -> Path:
    """A Python that has what the projects' tests need, and none of the projects."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run(["python3.11", "-m", "venv", str(folder / "venv")], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True)
    return python


# --- trees ------------------------------------------------------------------------------------


def git(repository: Path, *args: str, index: Path | None = None) -> bytes:
    environ = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index else {})}
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "core.autocrlf=false"]
    command = ["git", *who, *args]
    return subprocess.run(
        command, cwd=repository, env=environ, check=True, capture_output=True
    ).stdout


def check_out(history: Path, commit: str, target: Path, paths: Sequence[str] = ()) -> None:
    """Writes a commit's files, or some of them, below `target`."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        git(history, "read-tree", commit, index=index)
        where = ["--work-tree", str(target.resolve())]
        which = ["--", *paths] if paths else ["-a"]
        git(history, *where, "checkout-index", "-q", "-f", *which, index=index)


def plant(case: Case, history: Path, target: Path) -> None:
    """The broken tree as a repository of one commit, so that nothing tells of the fix."""
    target.mkdir(parents=True)
    check_out(history, case.parent, target)
    listed = git(history, "diff", "--no-renames", "--name-status", "-z", case.parent, case.commit)
    words = listed.decode().split("\0")[:-1]
    beside = [(s, p) for s, p in zip(words[::2], words[1::2], strict=True) if p not in case.sources]
    if taken := [path for status, path in beside if status != "D"]:
        check_out(history, case.commit, target, taken)
    for status, path in beside:
        if status == "D":
            (target / path).unlink(missing_ok=True)
    git(target, "init", "-q")
    (target / ".git" / "info" / "exclude").write_text("__pycache__/\n.hypothesis/\n")
    git(target, "add", "-A", "-f")
    git(target, "commit", "-q", "-m", "Add a failing test")


def plant_fixed(case: Case, history: Path, target: Path) -> None:
    """The same with the commit's sources."""
    plant(case, history, target)
    check_out(history, case.commit, target, case.sources)


# --- tests ------------------------------------------------------------------------------------


def is_test(path: str) -> bool:
    return bool(_TEST_PATH.search(path))


def suite(case: Case, root: Path) -> list[str]:
    """What to hand to pytest for the whole suite."""
    places = PROJECTS[case.project].split()
    return next(([place] for place in places if (root / place).exists()), [])


def import_path(root: Path) -> str:
    return "src" if (root / "src").is_dir() else "."


def check_line(case: Case, root: Path, python: Path) -> str:
    """The failing tests as a shell line, as a person would type it for one environment."""
    words = [str(python), "-m", "pytest", *_PYTEST, *case.tests]
    return f"PYTHONPATH={import_path(root)} {shlex.join(words)}"


@dataclass(frozen=True, slots=True)
class Tested:
    """What a run of pytest said of each test. `messages` has the failing ones' last words."""

    passed: frozenset[str]
    messages: dict[str, str]
    broken: bool
    """Whether a test file could not even be imported."""


def run_tests(python: Path, root: Path, tests: Sequence[str], limit_s: float) -> Tested | None:
    """Runs tests; None where they do not end or cannot be run."""
    options = ["-q", "--tb=no", "-rpfE"]
    command = [str(python), "-m", "pytest", *_PYTEST, *options, *tests]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": import_path(root),
               "COLUMNS": "400", "PYTHONHASHSEED": "0"}  # fmt: skip
    try:
        run = subprocess.run(
            command, cwd=root, env=environ, capture_output=True, text=True, errors="replace",
            timeout=limit_s, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    passed, messages, broken = set(), {}, run.returncode not in (0, 1)
    for line in run.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "PASSED":
            passed.add(rest)
        elif word in ("FAILED", "ERROR"):
            name, _, message = rest.partition(" - ")
            messages[name] = message
            broken |= word == "ERROR"
    return Tested(frozenset(passed), messages, broken)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
