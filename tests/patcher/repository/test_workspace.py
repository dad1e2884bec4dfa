"""A workspace shows the tree as the user sees it, disturbs nothing, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.repository.git import Repository
from clover_patcher.repository.owned import sweep
from clover_patcher.repository.workspace import Workspace, temporary_root


def content(root: Path) -> dict[str, bytes]:
    """Everything below a folder except git's own."""
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and ".git" not in p.relative_to(root).parts
    }


def state(make_repo, root: Path) -> list[str]:
    """What of git's state the user could notice."""
    ask = [
        ("status", "--porcelain=v1", "--ignored"),
        ("stash", "list"),
        ("for-each-ref",),
        ("worktree", "list", "--porcelain"),
        ("count-objects", "-v"),
        ("diff",),
        ("diff", "--cached"),
    ]
    return [make_repo.git(root, *args) for args in ask]


@pytest.fixture
def dirty(make_repo) -> Path:
    """A repository with staged, unstaged, untracked, deleted, ignored and odd files."""
    root = make_repo(
        {
            "a.py": "committed\n",
            "staged.py": "1\n",
            "deleted.py": "gone soon\n",
            "crlf.py": b"a = 1\r\nb = 2\nc = 3\r\n",
            "ünï cödé.py": "x = 'é'\n",
            "tool.sh": "#!/bin/sh\n",
            ".gitignore": "_version.py\n.env\n*.pyc\ncache/\nvenv/\nbig/\n",
        }
    )
    make_repo.git(root, "config", "core.autocrlf", "true")
    (root / "tool.sh").chmod(0o755)
    (root / "staged.py").write_text("2\n")
    make_repo.git(root, "add", "staged.py")
    (root / "staged.py").write_text("3\n")
    (root / "a.py").write_text("dirty\n")
    (root / "deleted.py").unlink()
    (root / "link.py").symlink_to("a.py")
    make_repo.write(
        root,
        {
            "new.py": "untracked\n",
            "_version.py": "version = '1'\n",
            ".env": "KEY=1\n",
            "x.pyc": "",
            "cache/data.txt": "small\n",
            "venv/pyvenv.cfg": "",
            "venv/lib/x.py": "",
            "big/blob": b"\0" * (33 << 20),
        },
    )
    return root


def test_the_copy_is_the_dirty_tree_to_the_byte(dirty: Path, temporary_root: Path) -> None:
    with Workspace(Repository.open(dirty), trees=2) as workspace:
        wanted = content(dirty)
        for name in ("x.pyc", "big/blob"):
            del wanted[name]
        for tree in workspace.trees:
            assert content(tree) == wanted
            assert tree.name == dirty.name
            assert os.access(tree / "tool.sh", os.X_OK)
            assert os.readlink(tree / "link.py") == "a.py"
        assert workspace.left_out == ("big",)
        assert "_version.py" not in workspace.python_files
        assert {"new.py", "crlf.py", "ünï cödé.py"} <= set(workspace.python_files)
        assert workspace.read("crlf.py") == b"a = 1\r\nb = 2\nc = 3\r\n"


def test_nothing_of_the_users_changes(make_repo, dirty: Path, temporary_root: Path) -> None:
    before, files = state(make_repo, dirty), content(dirty)
    index = (dirty / ".git/index").read_bytes()
    with Workspace(Repository.open(dirty), trees=2) as workspace:
        workspace.fresh()
        (workspace.trees[0] / "a.py").write_text("a patch\n")
        (workspace.trees[1] / "read-only").mkdir()
        (workspace.trees[1] / "read-only/f").write_text("")
        (workspace.trees[1] / "read-only").chmod(0o500)
    assert state(make_repo, dirty) == before
    assert content(dirty) == files
    assert (dirty / ".git/index").read_bytes() == index
    assert list(temporary_root.iterdir()) == []
    assert not (dirty / ".git/worktrees").exists()


def test_it_is_removed_when_the_body_fails(dirty: Path, temporary_root: Path) -> None:
    with pytest.raises(RuntimeError), Workspace(Repository.open(dirty)):
        raise RuntimeError
    assert list(temporary_root.iterdir()) == []


def test_it_works_without_a_commit(make_repo, tmp_path: Path, temporary_root: Path) -> None:
    root = tmp_path / "young"
    root.mkdir()
    make_repo.git(root, "init", "-q")
    make_repo.write(root, {"a.py": "x = 1\n"})
    with Workspace(Repository.open(root)) as workspace:
        assert content(workspace.trees[0]) == {"a.py": b"x = 1\n"}
    assert "No commits yet" in make_repo.git(root, "status")


def test_links_into_the_tree_stay_in_the_copy(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    (root / "absolute.py").symlink_to(root / "a.py")
    with Workspace(Repository.open(root)) as workspace:
        tree = workspace.trees[0]
        assert os.readlink(tree / "absolute.py") == str(tree / "a.py")


def test_changes_of_the_user_are_seen(dirty: Path, temporary_root: Path) -> None:
    with Workspace(Repository.open(dirty)) as workspace:
        assert workspace.changed() == []
        (dirty / "a.py").touch()
        assert workspace.changed() == []
        (dirty / "a.py").write_text("user types\n")
        (dirty / "new.py").unlink()
        (dirty / "tool.sh").write_text("#!/bin/false\n")
        assert sorted(workspace.changed()) == ["a.py", "new.py", "tool.sh"]
        assert sorted(workspace.changed({"new.py"})) == ["a.py", "tool.sh"]


def test_a_fresh_copy_shows_what_the_user_has_then(dirty: Path, temporary_root: Path) -> None:
    with Workspace(Repository.open(dirty)) as workspace:
        untouched = workspace.fresh()
        (dirty / "a.py").write_text("user types\n")
        (dirty / "new.py").unlink()
        (dirty / "newer.py").write_text("just made\n")
        (dirty / "tool.sh").write_text("#!/bin/false\n")
        first, second = workspace.fresh(), workspace.fresh()
        for tree in (first, second):
            assert (tree / "a.py").read_text() == "user types\n"
            assert (tree / "newer.py").read_text() == "just made\n"
            assert (tree / "tool.sh").read_text() == "#!/bin/false\n"
            assert not (tree / "new.py").exists()
        assert workspace.changed() == []
        assert (untouched / "a.py").read_text() == workspace.read("a.py").decode() == "dirty\n"
        assert len({untouched, first, second}) == 3


def test_a_check_that_rewrites_sources_is_noticed(dirty: Path, temporary_root: Path) -> None:
    with Workspace(Repository.open(dirty)) as workspace:
        (workspace.trees[0] / "a.py").write_text("generated\n")
        with pytest.raises(OSError, match="the check rewrites"):
            workspace.read("a.py")


def test_the_temporary_folder_is_never_inside(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (dirty / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(dirty / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Workspace(Repository.open(dirty)) as workspace:
        assert not workspace.trees[0].is_relative_to(dirty)


HOLD = """
import sys, time
from pathlib import Path
from clover_patcher.repository.git import Repository
from clover_patcher.repository.workspace import Workspace
with Workspace(Repository.open(Path(sys.argv[1])), trees=2) as workspace:
    if sys.argv[2] == "complete":
        workspace.trees, workspace.fresh()
    print("ready", flush=True)
    time.sleep(60)
"""


def hold(root: Path, state: str = "complete") -> subprocess.Popen[str]:
    """A process that has a workspace: with all its copies, or "begun"."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root), state], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    return holder


def stop(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert holder.stdout is not None
    holder.stdout.close()


def test_leftovers_of_a_killed_run_are_removed(
    make_repo, dirty: Path, temporary_root: Path
) -> None:
    before = state(make_repo, dirty)
    stop(hold(dirty))
    assert len(list(temporary_root.glob("clover-fix-*/[0-9]"))) == 3
    sweep(dirty)
    assert list(temporary_root.iterdir()) == []
    assert state(make_repo, dirty) == before


def test_a_run_killed_while_it_copies_leaves_nothing_for_good(
    make_repo, dirty: Path, temporary_root: Path
) -> None:
    """The process that copies ends with the one that asked; until then the folder is in use."""
    make_repo.write(dirty, {f"many/{n}.py": "x = 1\n" * 100 for n in range(1500)})
    before = state(make_repo, dirty)
    stop(hold(dirty, "begun"))
    end = time.monotonic() + 20
    while list(temporary_root.iterdir()) and time.monotonic() < end:
        sweep(dirty)
        time.sleep(0.02)
    assert list(temporary_root.iterdir()) == []
    time.sleep(0.3)
    assert list(temporary_root.iterdir()) == [], "something was still writing"
    sweep(dirty)
    assert state(make_repo, dirty) == before


def test_copies_to_search_in_are_equal_whatever_is_saved_meanwhile(make_repo, dirty: Path) -> None:
    """Verdicts of two copies are about the same program."""
    make_repo.write(dirty, {f"many/{n}.py": "x = 1\n" * 100 for n in range(400)})
    (dirty / "tool.py").write_text("tool = 1\n")
    (dirty / "tool.py").chmod(0o755)
    with Workspace(Repository.open(dirty), trees=5) as workspace:
        (dirty / "a.py").write_text("another one\n")
        (dirty / "tool.py").unlink()
        assert all(content(tree) == content(workspace.tree(0)) for tree in workspace.trees)
        assert (workspace.tree(4) / "a.py").read_text() == "dirty\n"
        assert os.access(workspace.tree(4) / "tool.py", os.X_OK)


def test_a_copy_that_cannot_be_made_equal_is_not_used(make_repo, dirty: Path) -> None:
    make_repo.write(dirty, {f"many/{n}.py": "x = 1\n" * 100 for n in range(400)})
    with Workspace(Repository.open(dirty), trees=6) as workspace:
        (dirty / "a.py").write_text("another one\n")
        (workspace.tree(0) / "a.py").write_text("generated by the check\n")
        with pytest.raises(TreeChanged, match=r"a\.py changed meanwhile"):
            workspace.tree(5)


def test_a_workspace_can_be_closed_while_it_copies(
    make_repo, dirty: Path, temporary_root: Path
) -> None:
    before = state(make_repo, dirty)
    for wait in (0.0, 0.02, 0.05, 0.1, 0.2):
        with Workspace(Repository.open(dirty), trees=5):
            time.sleep(wait)
        assert list(temporary_root.iterdir()) == []
        assert state(make_repo, dirty) == before


def test_leftovers_are_found_from_another_repository(
    make_repo, dirty: Path, temporary_root: Path
) -> None:
    stop(hold(dirty))
    with Workspace(Repository.open(make_repo({"a.py": ""}, "other"))):
        pass
    assert list(temporary_root.iterdir()) == []


def test_the_users_worktrees_are_their_own_business(
    make_repo, dirty: Path, temporary_root: Path
) -> None:
    """Also where one is called like ours, and is away for now, on a disk that is not mounted."""
    for name in ("of-the-user", "clover-fix-undo-branch", "clover-fix-0123abcd"):
        tree = temporary_root / name / "tree"
        make_repo.git(dirty, "worktree", "add", "-q", "--detach", str(tree))
        if name != "of-the-user":
            tree.parent.rename(temporary_root / f"away-{name}")
    records = make_repo.git(dirty, "worktree", "list", "--porcelain")
    stop(hold(dirty))
    sweep(dirty)
    assert make_repo.git(dirty, "worktree", "list", "--porcelain") == records
    assert records.count("clover-fix-") == 2


def test_a_running_workspace_is_left_alone(dirty: Path, temporary_root: Path) -> None:
    holder = hold(dirty)
    try:
        with Workspace(Repository.open(dirty)):
            assert len(list(temporary_root.iterdir())) == 2
        assert len(list(temporary_root.glob("clover-fix-*/[0-9]"))) == 3
    finally:
        stop(holder)


def test_small_trees_are_copied_in_memory(
    dirty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("clover_patcher.repository.places.MEMORY", tmp_path)
    assert temporary_root(dirty, 1000) == tmp_path
    assert temporary_root(dirty, 1 << 40) == Path("/tmp")
    monkeypatch.setattr("clover_patcher.repository.places.MEMORY", tmp_path / "missing")
    assert temporary_root(dirty, 1000) == Path("/tmp")


def test_no_place_for_temporary_files(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.open(dirty)
    monkeypatch.setattr("clover_patcher.repository.places.os.access", lambda *_: False)
    with pytest.raises(UsageError, match="TMPDIR"), Workspace(repository):
        pass
