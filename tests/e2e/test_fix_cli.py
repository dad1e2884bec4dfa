"""`clover-code fix` as a user runs it: every broken project, every way to end, every output."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import clover_engine

from .terminal import read_all

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROJECTS = sorted(
    path.parent.name
    for path in FIXTURES.glob("*/fixture.json")
    if json.loads(path.read_text("utf-8"))["expected_status"] == "fixed"
)
COMMAND = [sys.executable, "-m", "clover_code.main", "fix"]
KEYS = {
    *("schema", "status", "exit_code", "error", "notes", "applied", "fix_id", "commit"),
    *("patch", "patch_base64", "root", "file", "line", "files", "candidates_tried"),
    *("candidates_passing", "rank", "seconds", "engine", "provenance", "explanation"),
    *("suspects", "log", "failures", "next_steps", "alternatives", "frozen"),
}
"""The documented schema: a key may be added, none may go."""


SHIPPED = (Path(clover_engine.__file__).parent / "weights/nano/config.json").exists()
"""Whether there is a model to use; the projects are repaired without one too, only later."""


def run(root: Path, *args: str, engine: str = "none") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, "--engine", engine, *args], cwd=root, capture_output=True, timeout=300
    )


def content(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and ".git" not in p.relative_to(root).parts
    }


def passes(root: Path, check: str) -> bool:
    return subprocess.run(["sh", "-c", check], cwd=root, capture_output=True).returncode == 0


@pytest.mark.parametrize("name", PROJECTS)
def test_every_broken_project_is_repaired(make_repo, name: str) -> None:
    root, card = make_repo.project(name)
    before = content(root)
    engine = "embedded" if SHIPPED else "none"
    done = run(root, "--json", "--budget", "200", "--check", card["check"], engine=engine)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["file"]) == (0, "fixed", card["path"]), result
    after = content(root)
    assert [path for path in after if before.get(path) != after[path]] == [card["path"]]
    assert make_repo.git(root, "-c", "core.quotePath=false", "status", "--porcelain", "-z") == (
        f" M {card['path']}\0"
    )
    assert passes(root, card["check"])
    assert make_repo.git(root, "worktree", "list").count("\n") == 1


def test_a_file_with_crlf_keeps_its_line_ends(make_repo) -> None:
    root, card = make_repo.project("crlf")
    before = (root / "grades.py").read_bytes()
    run(root, "--check", card["check"])
    after = (root / "grades.py").read_bytes()
    assert after != before
    assert after.count(b"\n") == after.count(b"\r\n") == after.count(b"\r")
    assert len(set(before.split(b"\r\n")) - set(after.split(b"\r\n"))) <= 1


def test_the_patch_applies_to_the_committed_tree(make_repo) -> None:
    root, card = make_repo.project("non_ascii")
    patch = json.loads(run(root, "--json", "--check", card["check"]).stdout)["patch"]
    after = content(root)
    make_repo.git(root, "checkout", "-q", ".")
    subprocess.run(["git", "apply"], cwd=root, input=patch.encode(), check=True)
    assert content(root) == after


def test_the_json_object_has_everything(make_repo) -> None:
    root, card = make_repo.project("wrong_operator")
    done = run(root, "--json", "--dry-run", "--check", card["check"])
    result = json.loads(done.stdout)
    assert set(result) == KEYS
    assert result["applied"] is False
    assert result["line"] == 18
    assert result["candidates_tried"] >= 1
    assert 0 < result["seconds"] < 240
    assert set(result["engine"]) == {"calls", "forward_passes", "seconds", "detail", "extra"}
    assert done.stderr == b""
    assert make_repo.git(root, "status", "--porcelain") == ""


def test_without_json_the_diff_is_all_of_the_output(make_repo) -> None:
    root, card = make_repo.project("wrong_operator")
    done = run(root, "--check", card["check"], "shop")
    assert done.stdout.startswith(b"diff --git a/shop/invoice.py b/shop/invoice.py\n")
    subprocess.run(["git", "apply", "-R"], cwd=root, input=done.stdout, check=True)
    assert make_repo.git(root, "status", "--porcelain") == ""
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"clover-code fix: fixed shop/invoice.py:18 (")


def test_a_terminal_shows_live_progress(make_repo) -> None:
    root, card = make_repo.project("wrong_operator")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--engine", "none", "--check", card["check"]],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait() == 0
    for word in (b"baseline", b"localise", b" tried", b" s left", b"confirm"):
        assert word in shown
    assert b"\r\x1b[K" in shown
    assert b"clover-code fix: fixed shop/invoice.py:18" in shown


@pytest.mark.parametrize("name,code", [("passing", 3), ("flaky", 3)])
def test_nothing_to_repair(make_repo, name: str, code: int) -> None:
    root, card = make_repo.project(name)
    done = run(root, "--json", "--check", card["check"])
    assert done.returncode == code
    assert json.loads(done.stdout)["status"] == card["expected_status"]
    assert make_repo.git(root, "status", "--porcelain") == ""


HOPELESS = {
    "a.py": "def f(x):\n    return x\n",
    "test_a.py": "from a import f\n\ndef test_f():\n    assert f(1) == 2 and f(1) == 3\n",
}


def test_the_budget_ends_a_hopeless_search(make_repo) -> None:
    root = make_repo(HOPELESS)
    started = time.monotonic()
    done = run(root, "--json", "--budget", "5", "--check", "python -m pytest -q")
    assert done.returncode in (1, 124)
    assert json.loads(done.stdout)["patch"] is None
    assert time.monotonic() - started < 40
    assert content(root) == {name: text.encode() for name, text in HOPELESS.items()}


def error_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line that a usage error prints."""
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1, done.stderr
    return done.stderr.decode()


@pytest.mark.parametrize(
    "args,words",
    [
        (["--check", "no-such-program"], "install it"),
        (["--check", "python -m pytest missing_test.py"], "correct the command"),
        (["--check", ""], "give the failing command"),
        (["--check", "python -m pytest", "missing.py"], "does not exist"),
        (["--check", "python -m pytest", "/etc/passwd"], "outside the repository"),
        (["--check", "python -m pytest", "test_a.py"], "frozen"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(make_repo, args: list[str], words: str) -> None:
    root = make_repo(HOPELESS)
    assert words in error_of(run(root, *args))
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""


def test_outside_of_a_repository(make_repo, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "git init" in error_of(run(plain, "--check", "python -m pytest"))
    make_repo.git(tmp_path, "init", "-q", "--bare", "bare.git")
    assert "clone it" in error_of(run(tmp_path / "bare.git", "--check", "python -m pytest"))


def test_an_error_is_one_json_object_too(make_repo) -> None:
    done = run(make_repo(HOPELESS), "--json", "--check", "no-such-program")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["exit_code"]) == (2, "error", 2)
    assert "install it" in result["error"]
    assert set(result) == KEYS


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "soon"])
def test_a_bad_budget(make_repo, budget: str) -> None:
    done = run(make_repo(HOPELESS), "--budget", budget, "--check", "true")
    assert done.returncode == 2
    assert b"number of seconds" in done.stderr


def test_an_interrupt_removes_everything(make_repo, temporary_root: Path) -> None:
    root = make_repo(HOPELESS)
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        before = signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # a background job has none
        try:
            process = subprocess.Popen(
                [*COMMAND, "--engine", "none", "--check", "python -m pytest -q"],
                cwd=root,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        finally:
            signal.signal(signal.SIGINT, before)
        while not list(temporary_root.glob("clover-fix-*/0/*/a.py")):
            select.select([], [], [], 0.02)
        process.send_signal(stop)
        process.communicate()
        killed = stop == signal.SIGKILL
        assert process.returncode == (-signal.SIGKILL if killed else 130)
        assert bool(list(temporary_root.iterdir())) == killed
    assert run(root, "--budget", "3", "--check", "python -m pytest -q").returncode in (1, 124)
    assert make_repo.git(root, "worktree", "list").count("\n") == 1
