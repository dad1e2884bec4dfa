"""Unsaved buffers, editor diagnostics, and stopping a run: what a language server needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_engine.api import CancelToken
from clover_engine.errors import RequestCancelled
from clover_patcher.errors import UsageError
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.types import Diagnostic

GOOD = "def double(x):\n    return x * 2\n\n\ndef half(x):\n    return 1\n"
BAD = GOOD.replace("x * 2", "x + 2")
TEST = "from prog import double, half\nassert double(5) == 10\n"
CHECK = "python test_prog.py"


pytestmark = pytest.mark.usefixtures("own_python")


def run(root: Path, cancel: CancelToken | None = None, **more: Any) -> FixResult:
    return fix(FixRequest(root=root, check=CHECK, jobs=1, **more), cancel=cancel)


# --- unsaved buffers --------------------------------------------------------------------------


def test_the_patch_is_one_of_the_buffer_and_the_disk_is_left_alone(make_repo) -> None:
    root = make_repo({"prog.py": GOOD, "test_prog.py": TEST})
    buffer = b"# typed just now: \xc3\xa9\r\n" + BAD.encode()
    result = run(root, overlay={"prog.py": buffer})
    assert (result.status, result.applied, result.path, result.line) == (
        "fixed",
        False,
        "prog.py",
        3,
    )
    assert result.changes[0].before == buffer
    assert result.changes[0].after.startswith(b"# typed just now: \xc3\xa9\r\n")
    assert (root / "prog.py").read_text() == GOOD
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""


def test_without_the_buffer_the_check_passes(make_repo) -> None:
    """The other side of the test above: only the buffer makes the check fail."""
    result = run(make_repo({"prog.py": GOOD, "test_prog.py": TEST}))
    assert result.status == "not_reproducible"


def test_buffers_of_new_files_and_of_tests_count(make_repo) -> None:
    root = make_repo({"prog.py": GOOD, "test_prog.py": TEST})
    overlay = {
        "pkg/deep/new.py": b"def last(n):\n    return n + 1\n",
        "test_prog.py": b"from pkg.deep import new\nassert new.last(9) == 8\n",
    }
    result = run(root, overlay=overlay)
    assert (result.status, result.path) == ("fixed", "pkg/deep/new.py")
    assert result.changes[0].after == b"def last(n):\n    return n - 1\n"
    assert not (root / "pkg").exists()


def test_a_buffer_of_a_read_only_file(make_repo) -> None:
    root = make_repo({"prog.py": GOOD, "test_prog.py": TEST})
    (root / "prog.py").chmod(0o444)
    assert run(root, overlay={"prog.py": BAD.encode()}).status == "fixed"


def test_saving_the_buffer_meanwhile_does_not_matter(make_repo) -> None:
    root = make_repo({"prog.py": GOOD, "test_prog.py": TEST})

    class Saving:
        def event(self, stage: str, message: str, **numbers: float) -> None:
            if stage == "search":
                (root / "prog.py").write_text(BAD)

    request = FixRequest(root=root, check=CHECK, jobs=1, overlay={"prog.py": BAD.encode()})
    assert fix(request, None, Saving()).status == "fixed"
    assert (root / "prog.py").read_text() == BAD


@pytest.mark.parametrize(
    "path,words",
    [
        ("../outside.py", "not a path inside"),
        ("/etc/passwd", "not a path inside"),
        (".git/hooks/pre-commit", "belongs to git"),
        ("linked/x.py", "symbolic link"),
        ("alias.py", "symbolic link"),
        ("pkg", "not a file"),
        ("", "not a path inside"),
    ],
)
def test_buffers_of_nothing_that_could_be_a_file_of_ours(
    make_repo, tmp_path: Path, path: str, words: str
) -> None:
    root = make_repo({"prog.py": BAD, "test_prog.py": TEST, "pkg/x.py": ""})
    (root / "linked").symlink_to(tmp_path)
    (root / "alias.py").symlink_to("prog.py")
    with pytest.raises(UsageError, match=words):
        run(root, overlay={path: b"x = 1\n"})


# --- diagnostics ------------------------------------------------------------------------------


def test_a_diagnostic_is_looked_at_first(make_repo) -> None:
    root = make_repo({"prog.py": BAD, "test_prog.py": TEST})
    said = Diagnostic("prog.py", 2, "wrong operator", "op", "linter")
    result = run(root, diagnostics=(said,), dry_run=True)
    assert result.status == "fixed"
    assert result.explanation is not None
    assert "linter op says: wrong operator" in result.explanation.place
    assert result.explanation.place_rank == 1


def test_only_named_lines_are_changed(make_repo) -> None:
    root = make_repo({"prog.py": BAD, "test_prog.py": TEST})
    assert run(root, only=(Diagnostic("prog.py", 6, ""),)).status == "none_found"
    assert run(root, only=(Diagnostic("prog.py", 2, ""),)).line == 2


# --- stopping ---------------------------------------------------------------------------------

HANG = "import prog\nwhile True:\n    pass\n"


def stop_at(stage: str, cancel: CancelToken, delay_s: float = 0.0) -> Any:
    """A listener that cancels a moment after a stage began."""

    class Listener:
        def event(self, now: str, message: str, **numbers: float) -> None:
            if now == stage:
                threading.Timer(delay_s, cancel.cancel).start()

    return Listener()


def timed(work: Callable[[], FixResult]) -> tuple[FixResult, float]:
    started = time.monotonic()
    return work(), time.monotonic() - started


@pytest.mark.parametrize("stage", ["snapshot", "localise", "search", "confirm"])
def test_a_cancelled_run_writes_nothing(make_repo, stage: str) -> None:
    root = make_repo({"prog.py": BAD, "test_prog.py": TEST})
    cancel = CancelToken()
    result = fix(FixRequest(root=root, check=CHECK, jobs=1), None, stop_now(stage, cancel), cancel)
    assert (result.status, result.exit_code, result.applied) == ("cancelled", 130, False)
    assert (root / "prog.py").read_text() == BAD
    assert not (root / ".git/worktrees").exists()


def stop_now(stage: str, cancel: CancelToken) -> Any:
    class Listener:
        def event(self, now: str, message: str, **numbers: float) -> None:
            if now == stage:
                cancel.cancel()

    return Listener()


def test_a_check_that_runs_for_minutes_is_ended(make_repo) -> None:
    root = make_repo({"prog.py": BAD, "test_prog.py": HANG})
    cancel = CancelToken()
    request = FixRequest(root=root, check=CHECK, jobs=1, check_timeout_s=600.0, budget_s=600.0)
    listener = stop_at("baseline", cancel, 1.0)
    result, seconds = timed(lambda: fix(request, None, listener, cancel))
    assert result.status == "cancelled"
    assert seconds < 60, "the check itself would take 600 s"


def test_an_engine_that_thinks_is_stopped(make_repo) -> None:
    class Thinking:
        """Answers nothing until it is cancelled, as an engine between two steps."""

        def score(self, request: Any, cancel: CancelToken) -> Any:
            while not cancel.cancelled:
                time.sleep(0.005)
            raise RequestCancelled("cancelled")

    root = make_repo({"prog.py": BAD, "test_prog.py": TEST})
    cancel = CancelToken()
    request = FixRequest(root=root, check=CHECK, jobs=1)
    engine: Any = Thinking()
    result = fix(request, engine, stop_at("engine", cancel, 0.1), cancel)
    assert (result.status, result.exit_code) == ("cancelled", 130)


def test_the_callers_token_is_left_as_it_is(make_repo) -> None:
    cancel = CancelToken()
    root = make_repo({"prog.py": BAD, "test_prog.py": TEST})
    assert run(root, cancel, dry_run=True).status == "fixed"
    assert not cancel.cancelled
