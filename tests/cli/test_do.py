"""`clover-code do`, with scripted answers behind the real worker protocol."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
CODE = "def first(items):\n    return items[0]\n"
TEST = "from prog import first\n\n\ndef test_first():\n    assert first([]) is None\n"
RIGHT = (
    "`prog.py::first`\n```python\ndef first(items):\n    return items[0] if items else None\n```"
)
WRONG = RIGHT.replace(" if items else None", " or None")
WORDS = "first returns None for an empty list"
CHECK = ("--check", "python -m pytest -q test_prog.py")


@pytest.fixture(autouse=True)
def root(make_repo, own_python, monkeypatch: pytest.MonkeyPatch, fake_model) -> Path:
    path: Path = make_repo({"prog.py": CODE, "test_prog.py": TEST})
    monkeypatch.chdir(path)
    fake_model(answers=[RIGHT + "\nDONE it checks the list"])
    return path


def text(root: Path) -> str:
    return (root / "prog.py").read_text()


def test_the_diff_is_printed_and_nothing_changes(command: Command, root: Path) -> None:
    ran = command("do", WORDS)
    assert ran.code == 0 and text(root) == CODE
    assert "+    return items[0] if items else None\n" in ran.out
    assert "would change prog.py; --apply does it" in ran.err
    assert "the model: it checks the list" in ran.err


def test_apply_with_a_check_and_undo(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=[WRONG, RIGHT])
    ran = command("do", WORDS, *CHECK, "--apply")
    assert ran.code == 0, ran.err
    assert "if items else None" in text(root)
    verdicts = [line.rpartition(": ")[2] for line in ran.err.splitlines() if ": ran `" in line]
    assert verdicts == ["fails", "fails", "passes", "passes"]
    assert command("undo").code == 0 and text(root) == CODE


def test_a_check_that_still_fails_is_not_applied(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=[WRONG])
    ran = command("do", WORDS, *CHECK, "--apply", "--steps", "2", "--json")
    assert (ran.code, text(root)) == (1, CODE)
    said = ran.json
    assert (said["status"], said["applied"], said["steps"]) == ("steps", False, 2)
    assert said["runs"][-1]["passed"] is False and "IndexError" in said["runs"][-1]["output"]
    assert said["patch"].startswith("diff --git a/prog.py b/prog.py\n")


def test_commit_and_log(command: Command, root: Path, make_repo, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    ran = command("do", WORDS, *CHECK, "--commit", "--log", str(log), "--json")
    assert ran.json["commit"] == make_repo.git(root, "rev-parse", "HEAD").strip()
    message = make_repo.git(root, "log", "-1", "--format=%B")
    assert message.startswith(f"{WORDS}\n\nThe check passes with it.\n\nValidated-by: python -m")
    assert json.loads(log.read_text().splitlines()[-1])["status"] == "done"


def test_a_recorded_run_replays(
    command: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.jsonl"
    first = command("do", WORDS, "--log", str(log))
    options = json.dumps({"replay": str(log)})
    worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", options]
    monkeypatch.setenv("CLOVER_WORKER", shlex.join(worker))
    assert command("do", WORDS).out == first.out != ""


def test_only_the_named_paths_change(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=["`other.py`\n```python\nx = 1\n```\n" + RIGHT, "DONE"])
    ran = command("do", WORDS, "prog.py", "--json")
    assert [file["path"] for file in ran.json["files"]] == ["prog.py"]


def test_a_model_that_only_fills_holes(command: Command, fake_model) -> None:
    fake_model(infills=["x"])
    ran = command("do", WORDS)
    assert ran.code == 2 and "clover-code model get coder-1.5b" in ran.err


@pytest.mark.parametrize(
    "arguments,words",
    [
        ((" ",), "the requirement is empty"),
        ((WORDS, "gone.py"), "gone.py does not exist"),
        ((WORDS, "--check", "no-such-program"), "was not found"),
        ((WORDS, "--dry-run", "--apply"), "--dry-run changes nothing"),
    ],
)
def test_what_cannot_be_done(command: Command, arguments: tuple[str, ...], words: str) -> None:
    ran = command("do", *arguments)
    assert ran.code == 2 and words in ran.err
