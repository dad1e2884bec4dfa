"""Repairs that a check confirms: the patcher, on the client's unsaved text, in the background."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clover_engine.api import Engine
from clover_lsp.actions.buffers import overlay, relative_path
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.documents.documents import Documents, Snapshot
from clover_lsp.isolated.outside import Outside
from clover_patcher.errors import PatcherError

if TYPE_CHECKING:  # the server must start fast
    from clover_patcher.fix import FixResult
    from clover_patcher.progress import Stage
    from clover_patcher.types import Diagnostic

_CONFIGURED = (
    ("pytest.ini", ""),
    ("pyproject.toml", "[tool.pytest"),
    ("setup.cfg", "[tool:pytest"),
)
_TEST_FOLDERS = ("tests", "test")
_PYTHON = "Scripts/python.exe" if os.name == "nt" else "bin/python"
_ENVIRONMENTS = (".venv", "venv", "env")


@dataclass(frozen=True, slots=True)
class Job:
    """One repair: where, what has to pass, and the buffers as they were when it was asked for."""

    repository: Path
    """The top of the repository, links resolved."""
    folder: Path
    """Where the check runs."""
    check: str
    buffers: Mapping[str, bytes]
    diagnostics: tuple[Diagnostic, ...]
    budget_s: float


def plan(
    documents: Documents,
    folders: Sequence[str],
    snapshot: Snapshot | None,
    check: str,
    budget_s: float,
    diagnostics: Sequence[tuple[int, str, str, str]] = (),
) -> Job:
    """What is to be done for a document, or for the first folder of the workspace.

    `check` is the user's setting, run at the top of the repository; without one, pytest is
    looked for in the document's folder of the workspace, then at the top. `diagnostics` of the
    document are (line from 1, message, code, source). Raises `ActionRefused`.
    """
    from clover_patcher.repository.git import Repository
    from clover_patcher.types import Diagnostic

    folder = _folder(folders, snapshot)
    try:
        top = Repository.open(folder).root
    except PatcherError as error:
        raise ActionRefused(str(error)) from error
    where, command = top, check
    if not command:
        found = ((place, detect_check(place)) for place in dict.fromkeys((folder, top)))
        where, command = next(((p, c) for p, c in found if c), (top, ""))
    if not command:
        raise ActionRefused("no tests were found: set `clover.fix.check` to a command")
    path = relative_path(snapshot, top) if snapshot is not None else None
    evidence = tuple(Diagnostic(path, *d) for d in diagnostics) if path is not None else ()
    return Job(top, where, command, overlay(documents, top), evidence, budget_s)


def run(job: Job, outside: Outside) -> FixResult:
    """In a helper process: blocks until the repair ends; nothing is written.

    Tells `progress(message, percentage)` and asks `withheld(uri)`: why a document's text must not
    reach the model, "" where it may. Raises `ActionRefused`.
    """
    from clover_engine.privacy.unquoting import unquoting
    from clover_patcher.fix import FixRequest, fix

    def withheld(path: str) -> bool:
        return bool(outside.ask("withheld", (job.repository / path).as_uri()))

    engine: Engine | None = outside.engine
    request = FixRequest(
        root=job.folder,
        check=job.check,
        budget_s=job.budget_s,
        dry_run=True,
        overlay=job.buffers,
        diagnostics=job.diagnostics,
        withheld=withheld,
    )
    try:
        if engine is not None:
            engine = unquoting(engine, job.repository, withheld)
        return fix(request, engine, _Told(outside, job.budget_s), outside.cancel)
    except PatcherError as error:
        raise ActionRefused(str(error)) from error


def detect_check(folder: Path) -> str:
    """A command that runs the folder's tests with pytest; "" where there are none."""
    if not _has_tests(folder):
        return ""
    python = _python_with_pytest(folder)
    return shlex.join([python, "-m", "pytest", "-q"]) if python else "pytest -q"


def _python_with_pytest(folder: Path) -> str | None:
    """The folder's own environment, the one whose pytest is on PATH, or ours; None if unknown."""
    for name in _ENVIRONMENTS:
        python = folder / name / _PYTHON
        if python.is_file() and any((folder / name).glob("[Ll]ib*/**/site-packages/pytest")):
            return str(python)
    if (found := shutil.which("pytest")) is not None:
        beside = Path(found).parent / Path(_PYTHON).name
        return str(beside) if beside.is_file() else None
    return sys.executable if importlib.util.find_spec("pytest") is not None else None


class _Told:
    """The patcher's events as progress: the share of the budget that is spent."""

    def __init__(self, outside: Outside, budget_s: float) -> None:
        self._outside, self._budget_s = outside, budget_s

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        left = numbers.get("left_s", self._budget_s)
        share = 100 * (1 - left / self._budget_s) if self._budget_s else 0
        tried = f" ({numbers['tried']:.0f} tried)" if "tried" in numbers else ""
        percentage = round(min(100, max(0, share)))
        self._outside.tell("progress", f"{stage}: {message}{tried}", percentage)


def _folder(folders: Sequence[str], snapshot: Snapshot | None) -> Path:
    """The workspace folder that the document is in, else the document's own folder."""
    real = [Path(os.path.realpath(folder)) for folder in folders]
    if snapshot is None:
        if not real:
            raise ActionRefused("no folder is open: open the project's folder first")
        return real[0]
    if snapshot.path is None:
        raise ActionRefused("this document is no file: save it in a repository first")
    path = Path(os.path.realpath(snapshot.path))
    around = [folder for folder in real if path.is_relative_to(folder)]
    return max(around, key=lambda folder: len(folder.parts), default=path.parent)


def _has_tests(folder: Path) -> bool:
    for name, mark in _CONFIGURED:
        try:
            if mark in (folder / name).read_text("utf-8", "replace"):
                return True
        except OSError:
            continue
    beside = any(any(folder.glob(pattern)) for pattern in ("test_*.py", "*_test.py"))
    return beside or any(any((folder / name).rglob("test_*.py")) for name in _TEST_FOLDERS)
