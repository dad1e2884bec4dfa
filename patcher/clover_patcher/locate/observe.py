"""What a run of the check showed about its tests, as files of the repository."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from clover_patcher.check.runners import Runner
from clover_patcher.locate.oracle import Observed
from clover_patcher.repository.permission import is_frozen
from clover_patcher.repository.workspace import Workspace
from clover_patcher.task.task import Task
from clover_patcher.types import Outcome, TestCoverage

_FEATURES = (".feature", ".robot")
_SETTINGS = (
    ("pytest", "testpaths"),
    ("tool:pytest", "testpaths"),
    ("nosetests", "where"),
    ("nosetests", "tests"),
    ("unittest", "start-dir"),
)


def observe(
    task: Task,
    workspace: Workspace,
    outcome: Outcome,
    coverage: Sequence[TestCoverage],
    runner: Runner,
) -> Observed:
    """Which files hold tests, which the failing tests ran, and what the check started."""
    programs = tuple(runner.programs())
    ran = (covered.nodeid for covered in coverage if not covered.nodeid.startswith("import:"))
    modules = "--doctest-modules" in task.check.words
    tests: set[str] = set()
    doctests: set[str] = set()
    failed = () if task.check.kind == "lint" else (f.nodeid for f in outcome.failures)
    for name in dict.fromkeys([*failed, *ran]):
        path, is_doctest = _test_file(name, workspace.python_files)
        if modules and path == name and not is_frozen(path):
            is_doctest = True  # a module that cannot be imported
        if path:
            (doctests if is_doctest else tests).add(path)
    if task.check.arguments[:2] == ("-m", "doctest"):
        folder = PurePosixPath(task.cwd)
        doctests |= {str(folder / word) for word in task.check.arguments[2:]}
    for program in programs:
        tests |= program.tests
    failing = [c for c in coverage if c.failed or c.nodeid.startswith("import:")]
    executed = {path for covered in failing for path, _ in covered.lines}
    executed |= {path for program in programs for path in program.loaded}
    return Observed(
        files=workspace.python_files,
        read=workspace.read,
        tests=frozenset(tests),
        doctests=frozenset(doctests),
        executed=frozenset(executed),
        failures=outcome.failures,
        programs=programs,
        settings=frozenset(
            {*_test_paths(task.repository.root, task.cwd), *_feature_folders(workspace.files)}
        ),
    )


def _test_file(name: str, files: Sequence[str]) -> tuple[str, bool]:
    """The file of a test that pytest or unittest names, and whether it is a doctest."""
    path, separator, rest = name.partition("::")
    if separator or path.endswith(".py"):
        parts = rest.split("::")[0].split("[")[0].split(".")
        return _by_end(path, files), PurePosixPath(path).stem in parts
    parts = path.split(" ")[0].split(".")
    for length in range(len(parts), 0, -1):
        if found := _by_end("/".join(parts[:length]) + ".py", files):
            return found, False
    return "", False


def _by_end(path: str, files: Sequence[str]) -> str:
    """The file that the end of a path names, where there is just one."""
    fitting = [name for name in files if name == path or name.endswith(f"/{path}")]
    if path in fitting:
        return path
    return fitting[0] if len(fitting) == 1 else ""


def _feature_folders(files: Iterable[str]) -> set[str]:
    """Folders of feature files, up to the one that is called `features`."""
    found = set()
    for name in files:
        if name.endswith(_FEATURES):
            parts = name.split("/")[:-1]
            if "features" in parts:
                parts = parts[: parts.index("features") + 1]
            found.add("/".join(parts))
    return found


def _test_paths(root: Path, cwd: str) -> set[str]:
    """Folders that settings of pytest, nose and nose2 name, relative to the repository."""
    found = set()
    for folder in dict.fromkeys(["", cwd]):
        for text in _named_paths(root / folder):
            path = (PurePosixPath(folder) / text).as_posix().rstrip("/")
            if path not in ("", ".") and "*" not in path and (root / path).is_dir():
                found.add(path)
    return found


def _named_paths(folder: Path) -> Iterator[str]:
    for name in ("pytest.ini", "tox.ini", "setup.cfg", "unittest.cfg", "nose2.cfg"):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        try:
            parser.read_string((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue
        for section, key in _SETTINGS:
            if parser.has_option(section, key):
                yield from (parser.get(section, key) or "").replace(",", " ").split()
    try:
        settings: Any = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        paths = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    yield from paths.split() if isinstance(paths, str) else map(str, paths)
