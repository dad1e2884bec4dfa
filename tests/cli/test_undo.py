"""`clover-code undo`, in this process, on fixes that were delivered without a search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_patcher.deliver.deliver import Delivered, deliver
from clover_patcher.deliver.message import FixSummary
from clover_patcher.edits import FileChange
from clover_patcher.repository.git import Repository

SUMMARY = FixSummary(
    ("t.py::test_a",), "pytest", "It failed", "a.py:1", "It changed", "It passes", ""
)
Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def root(make_repo, monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Path:
    path: Path = make_repo({"a.py": "x = 1\n", "b/c.py": "y = 1\n"})
    monkeypatch.chdir(path / "b")
    return path


def fix(root: Path, *, commit: bool = False) -> Delivered:
    change = FileChange("a.py", b"x = 1\n", b"x = 2\n")
    return deliver(Repository.open(root), [change], SUMMARY, commit=commit)


def test_undo_prints_what_it_did(command: Command, root: Path) -> None:
    done = fix(root)
    ran = command("undo")
    assert ran.code == 0
    assert ran.out.endswith("@@ -1 +1 @@\n-x = 2\n+x = 1\n")
    assert ran.err == f"clover-code undo: undid {done.id}: make test_a pass in a.py\n"
    assert (root / "a.py").read_text() == "x = 1\n"


def test_a_dry_run(command: Command, root: Path) -> None:
    done = fix(root)
    ran = command("undo", "--dry-run", done.id)
    assert (ran.code, (root / "a.py").read_text()) == (0, "x = 2\n")
    assert ran.err.startswith(f"clover-code undo: would undo {done.id}")


def test_the_list_says_how_each_fix_stands(command: Command, root: Path) -> None:
    assert command("undo", "--list").err == "clover-code undo: there are no fixes on record here\n"
    first = fix(root)
    command("undo")
    second = fix(root, commit=True)
    ran = command("undo", "--list")
    assert [line.split("  ")[0] for line in ran.out.splitlines()] == [second.id, first.id]
    assert second.commit is not None
    assert second.commit[:10] in ran.out.splitlines()[0]
    assert "  undone " in ran.out.splitlines()[1]
    assert ran.out.splitlines()[0].endswith("make test_a pass in a.py  [a.py]")
    said = command("undo", "--list", "--json").json
    assert [item["undone"] for item in said["fixes"]] == [False, True]
    assert said["fixes"][0]["commit"] == second.commit


def test_json(command: Command, root: Path) -> None:
    done = fix(root, commit=True)
    said = command("undo", "--json").json
    assert set(said) == {"schema", "fix", "applied", "removed_commit", "patch", "patch_base64"}
    assert (said["fix"]["id"], said["removed_commit"]) == (done.id, done.commit)
    assert said["applied"] is True
    assert "+x = 1\n" in said["patch"]


@pytest.mark.parametrize(
    "arguments,code,words",
    [
        ((), 1, "there is no fix to undo"),
        (("nonsense",), 2, "`clover-code undo --list` shows them"),
    ],
)
def test_refusals_are_one_line(
    command: Command, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ran = command("undo", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("clover-code undo: ") and words in ran.err
    assert ran.err.count("\n") == 1
    again = command("undo", "--json", *arguments)
    assert again.json["exit_code"] == code and words in again.json["error"]


def test_a_changed_file_is_refused(command: Command, root: Path) -> None:
    fix(root)
    (root / "a.py").write_text("x = 3\n")
    ran = command("undo")
    assert (ran.code, (root / "a.py").read_text()) == (4, "x = 3\n")
    assert "a.py changed since the fix" in ran.err


def test_every_command_settles_what_a_killed_one_left(
    command: Command, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("clover_patcher.deliver.journal.Journal.move", move_but_never_finish)
        patch.setattr("clover_patcher.deliver.apply._take_back", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            fix(root)
    assert list((root / ".git/clover/pending").iterdir())
    monkeypatch.chdir(tmp_path)
    assert "a.py is patched" not in command("infill", f"{root}/a.py:99:1").err
    monkeypatch.chdir(root / "b")
    ran = command("infill", "c.py:99:1")
    note, problem = ran.err.splitlines()
    assert note.startswith("clover-code: note: the fix ") and note.endswith("a.py is patched")
    assert "there is no line 99" in problem
    assert "note" not in command("infill", "c.py:99:1").err
    assert command("undo").code == 0


def move_but_never_finish(self: Any, entry: Any, old: str, new: str) -> Path:
    if new == "done":
        raise KeyboardInterrupt
    source, target = self.folder / old / entry.id, self.folder / new / entry.id
    target.parent.mkdir(exist_ok=True)
    return Path(source.rename(target))
