"""Patches that create files: written whole or not at all, committed, and taken back."""

from __future__ import annotations

import os
import subprocess
from itertools import count
from pathlib import Path

import pytest
from tests.patcher.delivering import Patched
from tests.patcher.killing import finishes

from clover_patcher.deliver.apply import recover, write_recorded
from clover_patcher.deliver.deliver import deliver
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.deliver.message import RequestSummary
from clover_patcher.deliver.undo import undo
from clover_patcher.edits import FileChange, unified_diff, write_changes
from clover_patcher.errors import TreeChanged, UsageError

NEW = FileChange("pkg/fresh/new.py", b"", b"def f():\n    return 1\n", created=True)
OLD = FileChange("a.py", b"a = 1\n", b"a = 2\n")
WORDS = RequestSummary("add a module", "", "", "the model x")


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses nothing that was written."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def state(tree: Path) -> tuple[str, str]:
    new = tree / NEW.path
    return (tree / "a.py").read_text(), new.read_text() if new.exists() else "nothing"


BEFORE, AFTER = ("a = 1\n", "nothing"), ("a = 2\n", NEW.after.decode())


@pytest.mark.parametrize("back", [False, True], ids=["create", "remove"])
def test_a_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path, back: bool) -> None:
    seen = set()
    for step in count(1):
        folder = tmp_path / str(step)
        tree, journal = folder / "tree", Journal(folder / "git")
        tree.mkdir(parents=True)
        (folder / "git").mkdir()
        (tree / "a.py").write_bytes(OLD.before)
        changes = [OLD, NEW]
        if back:
            write_changes(tree, changes)
            changes = [
                FileChange(OLD.path, OLD.after, OLD.before),
                FileChange(NEW.path, NEW.after, b"", removed=True),
            ]

        def work(tree: Path = tree, journal: Journal = journal, todo: list = changes) -> None:
            with journal.locked():
                write_recorded(journal, Entry.make(tree, "a change"), todo)

        done = finishes(work, step, folder)
        recover(journal)
        assert state(tree) in (BEFORE, AFTER)
        assert not [*journal.folder.glob("pending/*"), *journal.folder.glob("staged-*")]
        assert not [*tree.rglob(".clover-*")]
        seen.add(state(tree))
        if done:
            break
    assert seen == {BEFORE, AFTER}


@pytest.fixture
def patched(make_repo, temporary_root: Path) -> Patched:
    return Patched(make_repo, make_repo({"a.py": "a = 1\n"}))


@pytest.mark.parametrize("commit", [False, True])
def test_undo_removes_what_was_created(patched: Patched, commit: bool) -> None:
    head = patched.git("rev-parse", "HEAD")
    done = deliver(patched.repository, [OLD, NEW], WORDS, commit=commit)
    assert done.notes == () and state(patched.root) == AFTER
    if commit:
        assert patched.status() == ""
        assert patched.git("show", "--format=%s", "--name-only").split() == [
            *("add", "a", "module"),
            *("a.py", NEW.path),
        ]
    undo(patched.repository)
    assert state(patched.root) == BEFORE
    assert patched.git("rev-parse", "HEAD") == head
    assert patched.status() == ""


def test_a_hook_that_refuses_leaves_the_index_as_it_was(patched: Patched) -> None:
    patched.hook("pre-commit", "exit 1\n")
    done = deliver(patched.repository, [NEW], WORDS, commit=True)
    assert done.commit is None and done.exit_code == 5
    assert patched.status() == "?? pkg/\n"


def test_a_file_that_is_there_is_not_written_over(patched: Patched) -> None:
    (patched.root / "pkg/fresh").mkdir(parents=True)
    (patched.root / NEW.path).write_text("mine\n")
    with pytest.raises(TreeChanged, match="is there already"):
        deliver(patched.repository, [OLD, NEW], WORDS)
    assert state(patched.root) == ("a = 1\n", "mine\n")


def test_places_where_nothing_is_created(patched: Patched) -> None:
    (patched.root / "link").symlink_to("/tmp")
    for path in ("../x.py", ".git/hooks/x", "link/x.py", "a.py/x.py"):
        with pytest.raises(UsageError):
            deliver(patched.repository, [FileChange(path, b"", b"x", created=True)], WORDS)


def test_git_applies_the_diff(patched: Patched) -> None:
    empty = FileChange("pkg/__init__.py", b"", b"", created=True)
    subprocess.run(
        ["git", "apply", "-"],
        cwd=patched.root,
        input=unified_diff([OLD, NEW, empty]),
        check=True,
    )
    assert state(patched.root) == AFTER
    assert (patched.root / "pkg/__init__.py").read_bytes() == b""
    gone = [FileChange(c.path, c.after, b"", removed=True) for c in (NEW, empty)]
    subprocess.run(["git", "apply", "-"], cwd=patched.root, input=unified_diff(gone), check=True)
    assert not (patched.root / "pkg").exists()
