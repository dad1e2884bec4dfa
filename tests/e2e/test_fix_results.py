"""Where the results of `clover-code fix` go: files, predictions, commits, logs, CI."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from .terminal import read_all

COMMAND = [sys.executable, "-m", "clover_code.main"]
FIX = [*COMMAND, "fix", "--engine", "none", "--jobs", "1", "--check"]
FAULTY = "engine/valve.py"


@pytest.fixture
def root(make_repo) -> Path:
    path, card = make_repo.project("script_check")
    assert card["check"] == "python run_checks.py"
    found: Path = path
    return found


def fix(root: Path, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*FIX, "python run_checks.py", *args], cwd=root, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_patch_file_is_what_was_applied(make_repo, root: Path, tmp_path: Path) -> None:
    done = fix(root, "--patch-out", str(tmp_path / "out.patch"))
    after = (root / FAULTY).read_bytes()
    assert (tmp_path / "out.patch").read_text() == done.stdout
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.git(root, "apply", str(tmp_path / "out.patch"))
    assert (root / FAULTY).read_bytes() == after


def test_sarif_goes_to_a_file_beside_the_diff(root: Path, tmp_path: Path) -> None:
    done = fix(root, "--dry-run", "--sarif", str(tmp_path / "out.sarif"))
    assert done.stdout.startswith("diff --git")
    (run,) = json.loads((tmp_path / "out.sarif").read_text())["runs"]
    (change,) = run["results"][0]["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == FAULTY
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == root.as_uri() + "/"


def test_sarif_on_standard_output_is_all_of_it(root: Path, tmp_path: Path) -> None:
    assert json.loads(fix(root, "--dry-run", "--sarif", "-").stdout)["version"] == "2.1.0"
    failed = subprocess.run(
        [*FIX, "no-such-program", "--sarif", "-"], cwd=root, capture_output=True
    )
    (run,) = json.loads(failed.stdout)["runs"]
    assert (failed.returncode, run["invocations"][0]["executionSuccessful"]) == (2, False)


def test_a_prediction_is_all_of_the_output(make_repo, root: Path) -> None:
    done = fix(root, "--swebench", "owner__repo-1")
    (line,) = done.stdout.splitlines()
    prediction = json.loads(line)
    make_repo.git(root, "checkout", "-q", ".")
    subprocess.run(["git", "apply"], cwd=root, input=prediction["model_patch"].encode(), check=True)
    assert prediction["instance_id"] == "owner__repo-1"
    passing = subprocess.run([sys.executable, "run_checks.py"], cwd=root, capture_output=True)
    assert passing.returncode == 0


def test_a_commit_and_its_undo(make_repo, root: Path) -> None:
    start = make_repo.git(root, "rev-parse", "HEAD")
    said = json.loads(fix(root, "--commit", "--json").stdout)
    assert said["commit"] == make_repo.git(root, "rev-parse", "HEAD").strip()
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""
    message = make_repo.git(root, "log", "-1", "--format=%B")
    assert message.startswith("fix: make `python run_checks.py` pass in engine/valve.py\n\n")
    assert f"Clover-Fix: {said['fix_id']}\n" in message
    undone = subprocess.run([*COMMAND, "undo"], cwd=root, capture_output=True, encoding="utf-8")
    assert undone.returncode == 0, undone.stderr
    assert make_repo.git(root, "rev-parse", "HEAD") == start
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""


def test_a_commit_that_a_hook_refuses(make_repo, root: Path) -> None:
    hook = root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    hook.chmod(0o755)
    done = fix(root, "--commit", code=5)
    assert "the patch is applied, but not committed: git commit failed: no;" in done.stderr
    assert make_repo.git(root, "status", "--porcelain") == f" M {FAULTY}\n"


def test_a_commit_is_refused_before_the_search_begins(root: Path) -> None:
    (root / ".git/MERGE_HEAD").write_text("0\n")
    done = fix(root, "--commit", code=2)
    assert "a merge is in progress" in done.stderr
    assert done.stdout == ""


def test_a_later_run_skips_what_an_earlier_one_tried(root: Path) -> None:
    log = root / "run.jsonl"  # the one file of the tree that does not make it another tree
    first = json.loads(fix(root, "--dry-run", "--json", "--log", str(log)).stdout)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "start",
        *["candidate"] * first["candidates_tried"],
        "end",
    ]
    failed = sum(e.get("status") != "passed" for e in events if e["event"] == "candidate")
    assert failed
    with log.open("ab") as file:
        file.write(b'{"event": "candi')  # as a kill leaves it
    again = json.loads(fix(root, "--dry-run", "--json", "--log", str(log), "--resume").stdout)
    assert again["candidates_tried"] == first["candidates_tried"] - failed
    assert again["patch"] == first["patch"]
    assert again["notes"] == [f"resumed: {failed} candidates that failed before were skipped"]
    (root / FAULTY).write_text((root / FAULTY).read_text() + "# another tree\n")
    other = json.loads(fix(root, "--dry-run", "--json", "--log", str(log), "--resume").stdout)
    assert "nothing to resume" in other["notes"][0]


def test_logs_are_in_the_git_directory_where_none_is_named(make_repo, root: Path) -> None:
    said = json.loads(fix(root, "--dry-run", "--json").stdout)
    assert Path(said["log"]).parent == root / ".git/clover/runs"
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""
    again = json.loads(fix(root, "--dry-run", "--json", "--resume").stdout)
    assert again["notes"][0].startswith("resumed: ")


def test_ci_has_plain_lines_and_no_colour_on_a_terminal(root: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FIX, "python run_checks.py", "--ci", "--explain"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    shown = read_all(ours).decode()
    assert process.wait() == 0
    assert "\x1b" not in shown
    lines = shown.splitlines()
    stages = [line.split(": ")[1] for line in lines if line.startswith("clover-code fix: ")]
    assert [s for s in stages if s != "search"][:3] == ["snapshot", "baseline", "localise"]
    assert "Why here: engine/valve.py:8 was suspected because" in shown
    assert "Suspicious lines (first" in shown


@pytest.mark.parametrize("plain", [False, True])
def test_the_diff_is_coloured_on_a_terminal(root: Path, plain: bool) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FIX, "python run_checks.py", "--dry-run"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TERM": "xterm", "NO_COLOR": "1" if plain else ""},
    )
    os.close(theirs)
    shown = read_all(ours).decode()
    assert process.wait() == 0
    assert ("\x1b[32m+" in shown) is not plain


@pytest.mark.parametrize(
    "args,words",
    [
        (["--json", "--swebench", "x"], "--json and --swebench both print"),
        (["--sarif", "-", "--patch-out", "-"], "give one of them a file"),
        (["--dry-run", "--commit"], "leave out one"),
        (["--patch-out", "no/such/folder/x"], "cannot write no/such/folder/x"),
        (["--sarif", "engine"], "cannot write engine"),
        (["--log", "no/x"], "cannot write no/x"),
    ],
)
def test_outputs_that_cannot_be_are_refused_at_once(
    make_repo, root: Path, args: list[str], words: str
) -> None:
    done = fix(root, *args, code=2)
    assert words in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert make_repo.git(root, "status", "--porcelain", "--ignored") == ""
