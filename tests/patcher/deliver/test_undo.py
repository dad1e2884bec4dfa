"""A fix is taken back to the byte, or not at all; commits only where they are ours to remove."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from tests.patcher.delivering import AFTER, BEFORE, FILES, Patched
from tests.patcher.killing import finishes

from clover_patcher.deliver import journal as journal_module
from clover_patcher.deliver.journal import Journal
from clover_patcher.deliver.recovery import settle
from clover_patcher.deliver.undo import NothingToUndo, history, undo
from clover_patcher.errors import TreeChanged, UsageError


@pytest.fixture
def patched(make_repo) -> Patched:
    return Patched(make_repo, make_repo(FILES))


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses nothing that was written: only a power cut needs the disk to be waited for."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def test_an_applied_fix_is_taken_back(patched: Patched) -> None:
    patched.program.write_bytes(b"\xef\xbb\xbf" + BEFORE.replace("\n", "\r\n").encode())
    before = patched.program.read_bytes()
    done = patched.deliver()
    assert patched.program.read_bytes() != before
    undone = undo(patched.repository)
    assert (undone.fix.entry.id, undone.removed_commit) == (done.id, None)
    assert patched.program.read_bytes() == before
    with pytest.raises(NothingToUndo):
        undo(patched.repository)


def test_a_dry_run_says_what_would_be_done(patched: Patched) -> None:
    patched.deliver()
    patch = undo(patched.repository, dry_run=True).patch
    assert b"-    return x * 2\n+    return x + 3\n" in patch
    assert patched.program.read_text() == AFTER
    assert not history(patched.repository)[0].undone


def test_a_changed_file_is_left_alone(patched: Patched) -> None:
    patched.deliver()
    patched.program.write_text(AFTER + "# mine\n")
    with pytest.raises(TreeChanged, match="changed since the fix"):
        undo(patched.repository)
    assert patched.program.read_text() == AFTER + "# mine\n"


def test_fixes_are_undone_in_reverse_or_by_name(patched: Patched) -> None:
    first = patched.deliver()
    patched.program.write_text(AFTER + "x + 3\n")
    second = patched.deliver()
    with pytest.raises(TreeChanged, match=f"undo that one first, `clover-code undo {second.id}`"):
        undo(patched.repository, first.id)
    assert undo(patched.repository, second.id[:-1]).fix.entry.id == second.id
    patched.program.write_text(AFTER)
    assert undo(patched.repository).fix.entry.id == first.id
    assert patched.program.read_text() == BEFORE
    assert [fix.undone for fix in history(patched.repository)] == [True, True]


@pytest.mark.parametrize("wanted,words", [("nothing", "no fix begins"), ("2", "more than one")])
def test_ids_that_are_not_one(patched: Patched, wanted: str, words: str) -> None:
    patched.deliver()
    patched.program.write_text(BEFORE)
    patched.deliver()
    with pytest.raises(UsageError, match=words):
        undo(patched.repository, wanted)


def test_a_fix_is_undone_once(patched: Patched) -> None:
    done = patched.deliver()
    undo(patched.repository)
    with pytest.raises(UsageError, match="undone already"):
        undo(patched.repository, done.id)


def test_the_newest_fixes_are_kept(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEPT", 2)
    made = []
    for _ in range(4):
        made.append(patched.deliver().id)
        undo(patched.repository)
    assert [fix.entry.id for fix in history(patched.repository)] == made[:1:-1]
    assert len(list((patched.root / ".git/clover/done").iterdir())) == 4


def test_each_working_tree_has_its_own_history(patched: Patched, tmp_path: Path, make_repo) -> None:
    patched.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Patched(make_repo, tmp_path / "linked")
    linked.deliver()
    assert history(patched.repository) == []
    assert undo(linked.repository).changes
    assert linked.program.read_text() == BEFORE


def test_our_newest_commit_comes_off_the_branch(patched: Patched) -> None:
    start, branch = patched.git("rev-parse", "HEAD"), patched.git("symbolic-ref", "HEAD")
    (patched.root / "staged.py").write_text("b = 2\n")
    patched.git("add", "staged.py")
    done = patched.deliver(commit=True)
    assert undo(patched.repository).removed_commit == done.commit
    assert patched.git("rev-parse", "HEAD") == start
    assert patched.git("symbolic-ref", "HEAD") == branch
    assert patched.status() == "M  staged.py\n"
    assert patched.program.read_text() == BEFORE
    assert "clover-code undo" in patched.git("reflog", "-1")


def test_a_commit_that_a_hook_rewrote_comes_off_too(patched: Patched) -> None:
    patched.hook("pre-commit", "echo '# formatted' >> pkg/prog.py\ngit add pkg/prog.py\n")
    patched.deliver(commit=True)
    undo(patched.repository)
    assert (patched.program.read_text(), patched.status()) == (BEFORE, "")


def other_commit(patched: Patched) -> None:
    patched.git("commit", "-q", "--allow-empty", "-m", "More")


def pushed(patched: Patched) -> None:
    patched.git("update-ref", "refs/remotes/origin/main", "HEAD")


def amended(patched: Patched) -> None:
    (patched.root / "other.py").write_text("a = 2\n")
    patched.git("commit", "-q", "-a", "--amend", "--no-edit")


def merging(patched: Patched) -> None:
    (patched.root / ".git/MERGE_HEAD").write_text("0\n")


@pytest.mark.parametrize(
    "event,words",
    [
        (other_commit, "other commits came after .* `git revert "),
        (pushed, "is on origin/main already: .* `git revert "),
        (amended, "holds other changes too: .* `git revert "),
        (merging, "a merge is in progress"),
    ],
)
def test_commits_that_are_not_ours_to_remove(patched: Patched, event, words: str) -> None:
    patched.deliver(commit=True)
    event(patched)
    head = patched.git("rev-parse", "HEAD")
    with pytest.raises(UsageError, match=words):
        undo(patched.repository)
    assert patched.git("rev-parse", "HEAD") == head
    assert patched.program.read_text() == AFTER


def test_staged_changes_of_the_file_stop_the_undo(patched: Patched) -> None:
    patched.deliver(commit=True)
    patched.program.write_text(AFTER + "# mine\n")
    patched.git("add", "pkg/prog.py")
    patched.program.write_text(AFTER)
    with pytest.raises(TreeChanged, match="commit or unstage"):
        undo(patched.repository)
    assert patched.status() == "MM pkg/prog.py\n"


def test_a_commit_that_the_user_has_taken_back_is_no_obstacle(patched: Patched) -> None:
    patched.deliver(commit=True)
    patched.git("reset", "-q", "--soft", "HEAD~")
    patched.git("reset", "-q")
    assert undo(patched.repository).removed_commit is None
    assert (patched.program.read_text(), patched.status()) == (BEFORE, "")


def test_a_kill_before_any_step_of_an_undo_leaves_all_or_nothing(make_repo) -> None:
    """File, branch and index belong together, also when git's part was still to come."""
    seen = set()
    for step in count(1):
        patched = Patched(make_repo, make_repo(FILES, f"repo{step}"))
        start = patched.git("rev-parse", "HEAD")
        made = patched.deliver(commit=True).commit
        repository = patched.repository
        finished = finishes(lambda r=repository: undo(r), step * 2, patched.root / ".git/clover")
        settle(repository)
        found = (patched.program.read_text(), patched.git("rev-parse", "HEAD"), patched.status())
        assert found in [(AFTER, f"{made}\n", ""), (BEFORE, start, "")], step
        assert not Journal(repository.common_dir).entries("pending")
        seen.add(found[0])
        if finished:
            break
    assert seen == {BEFORE, AFTER}


def test_a_commit_of_the_user_after_a_killed_undo_stays(make_repo) -> None:
    """The files are back, the branch was not moved yet; then the user committed something."""
    for step in count(1):
        patched = Patched(make_repo, make_repo(FILES, f"repo{step}"))
        patched.deliver(commit=True)
        repository = patched.repository
        assert not finishes(lambda r=repository: undo(r), step, patched.root / ".git/clover")
        if patched.program.read_text() == BEFORE:
            break
    patched.git("commit", "-q", "--allow-empty", "-m", "Mine")
    head = patched.git("rev-parse", "HEAD")
    (said,) = settle(repository)
    assert "pkg/prog.py is as it was before the fix, but the rest was not done: " in said
    assert patched.git("rev-parse", "HEAD") == head
    assert patched.program.read_text() == BEFORE
    assert settle(repository) == []
