"""A commit holds the fix alone; the user's index, changes, hooks and identity are respected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.patcher.delivering import AFTER, BEFORE, FILES, SUMMARY, Patched

from clover_patcher.deliver.commit import in_progress, require_committable
from clover_patcher.deliver.deliver import NOT_COMMITTED
from clover_patcher.deliver.message import SUBJECT_WIDTH, commit_message
from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository


@pytest.fixture
def patched(make_repo) -> Patched:
    return Patched(make_repo, make_repo(FILES))


def test_only_the_fix_is_committed(patched: Patched) -> None:
    (patched.root / "staged.py").write_text("b = 2\n")
    patched.git("add", "staged.py")
    (patched.root / "staged.py").write_text("b = 3\n")
    (patched.root / "other.py").write_text("a = 2\n")
    (patched.root / "new.py").write_text("c = 1\n")
    staged = patched.git("diff", "--cached")
    done = patched.deliver(commit=True)
    assert (done.exit_code, done.notes) == (0, ())
    assert done.commit == patched.git("rev-parse", "HEAD").strip()
    assert patched.git("show", "--format=", "--name-only") == "pkg/prog.py\n"
    assert patched.git("show", "HEAD:pkg/prog.py") == AFTER
    assert patched.git("diff", "--cached") == staged
    assert patched.status() == " M other.py\nMM staged.py\n?? new.py\n"
    assert patched.git("stash", "list") == ""


def test_the_message_says_what_failed_what_changed_and_how_it_was_validated(
    patched: Patched,
) -> None:
    done = patched.deliver(commit=True)
    subject, _, body = patched.git("log", "-1", "--format=%B").partition("\n")
    assert subject == "fix: make test_double pass in pkg/prog.py"
    said = " ".join(body.split())
    for text in (SUMMARY.failure, SUMMARY.change, SUMMARY.validation):
        assert f"{text}." in said
    assert max(map(len, body.splitlines())) <= 72
    trailers = patched.git("log", "-1", "--format=%(trailers:only)").splitlines()
    assert trailers[0] == "Validated-by: pytest -q tests"
    assert trailers[1].startswith("Assisted-by: clover-code ")
    assert trailers[1].endswith(" (the model clover-nano)")
    assert trailers[2:] == [f"Clover-Fix: {done.id}", ""]


@pytest.mark.parametrize(
    "summary,subject",
    [
        (replace(SUMMARY, failing=()), "fix: make `pytest -q tests` pass in pkg/prog.py"),
        (replace(SUMMARY, failing=("a::b", "c")), "fix: make 2 failing tests pass in pkg/prog.py"),
        (replace(SUMMARY, place=f"{'deep/' * 20}x.py:1"), "fix: make test_double pass"),
        (
            replace(SUMMARY, failing=("t::test[\x1b[31m\n#" + "y" * 90 + "]",)),
            "fix: make test[ [31m #" + "y" * 50 + "…",
        ),
    ],
)
def test_subjects(summary, subject: str) -> None:
    first = commit_message(summary, "id").split("\n")[0]
    assert first == subject or (first.startswith(subject[:30]) and first.endswith("…"))
    assert len(first) <= SUBJECT_WIDTH
    assert first.isprintable()


@pytest.mark.parametrize("way", ["unstaged", "staged", "hidden in the index", "untracked"])
def test_a_file_with_changes_of_the_user_is_patched_but_not_committed(
    patched: Patched, way: str
) -> None:
    mine = BEFORE + "# mine\n"
    patched.program.write_text(mine)
    if way != "unstaged":
        patched.git("add", "pkg/prog.py")
    if way == "hidden in the index":
        patched.program.write_text(BEFORE)
    if way == "untracked":
        patched.git("rm", "-q", "--cached", "pkg/prog.py")
    start, staged = patched.git("rev-parse", "HEAD"), patched.git("diff", "--cached")
    done = patched.deliver(commit=True)
    assert (done.exit_code, done.commit) == (NOT_COMMITTED, None)
    assert "pkg/prog.py had changes of yours" in done.notes[0]
    assert "x * 2" in patched.program.read_text()
    assert patched.git("rev-parse", "HEAD") == start
    assert patched.git("diff", "--cached") == staged


def test_a_hook_that_refuses_loses_nothing(patched: Patched) -> None:
    patched.hook("pre-commit", "echo 'line 2: too plain' >&2\necho more >&2\nexit 1\n")
    start = patched.git("rev-parse", "HEAD")
    done = patched.deliver(commit=True)
    assert (done.exit_code, done.commit) == (NOT_COMMITTED, None)
    (note,) = done.notes
    assert note.startswith("the patch is applied, but not committed: git commit failed: line 2: to")
    assert "`git commit pkg/prog.py` tries again" in note
    assert patched.program.read_text() == AFTER
    assert patched.git("rev-parse", "HEAD") == start
    assert patched.status() == " M pkg/prog.py\n"
    assert not list((patched.root / ".git").glob("*.lock"))


def test_a_hook_that_rewrites_and_refuses_loses_nothing(patched: Patched) -> None:
    patched.hook("pre-commit", "echo '# formatted' >> pkg/prog.py\nexit 1\n")
    done = patched.deliver(commit=True)
    assert "(it rewrote pkg/prog.py)" in done.notes[0]
    assert patched.program.read_text() == AFTER + "# formatted\n"


@pytest.mark.parametrize("adds", [True, False])
def test_a_hook_that_rewrites_is_followed(patched: Patched, adds: bool) -> None:
    add = "git add pkg/prog.py\n" if adds else ""
    patched.hook("pre-commit", f"echo '# formatted' >> pkg/prog.py\n{add}")
    done = patched.deliver(commit=True)
    assert done.exit_code == 0
    assert done.notes == ("a hook of yours rewrote pkg/prog.py on the way",)
    assert patched.program.read_text() == AFTER + "# formatted\n"
    assert patched.status() == ("" if adds else " M pkg/prog.py\n")


def test_hooks_run_as_git_runs_them(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"):
        patched.hook(name, f"git config core.hooksPath; echo {name} >> '{patched.root}/ran.txt'\n")
    patched.deliver()
    assert not (patched.root / "ran.txt").exists()
    patched.git("checkout", "-q", ".")
    patched.deliver(commit=True)
    ran = (patched.root / "ran.txt").read_text().split()
    assert ran == ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"]


def test_the_identity_of_the_environment_counts(
    patched: Patched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A. N. Other")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "robot@example.org")
    patched.deliver(commit=True)
    assert patched.git("log", "-1", "--format=%an %ce") == "A. N. Other robot@example.org\n"


def test_paths_are_never_patterns(make_repo) -> None:
    root = make_repo({"pkg/prog.py": BEFORE, "[ab]*.py": "x = 1\n", "a.py": "x = 1\n"})
    (root / "a.py").write_text("x = 2\n")
    (root / "[ab]*.py").write_text("x = 2\n")
    from clover_patcher.deliver.commit import commit_files, uncommitted

    repository = Repository.open(root)
    assert uncommitted(repository, ["[ab]*.py"]) == ["[ab]*.py"]
    commit_files(repository, ["[ab]*.py"], "fix: x", root / ".git/message")
    assert make_repo.git(root, "status", "--porcelain") == " M a.py\n"


@pytest.mark.parametrize(
    "mark,name",
    [
        ("rebase-merge", "a rebase"),
        ("MERGE_HEAD", "a merge"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("BISECT_LOG", "a bisection"),
    ],
)
def test_nothing_is_committed_in_the_middle_of_something(
    patched: Patched, mark: str, name: str
) -> None:
    assert require_committable(patched.repository) == []
    (patched.root / ".git" / mark).mkdir()
    with pytest.raises(UsageError, match=f"{name} is in progress: finish or abort it first"):
        require_committable(patched.repository)


def test_a_real_rebase_is_noticed_also_in_a_linked_worktree(
    patched: Patched, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    patched.git("worktree", "add", "-q", "-b", "side", str(linked))
    patched.git(
        "-C",
        str(linked),
        "-c",
        "sequence.editor=sed -i s/pick/edit/",
        "rebase",
        "-q",
        "-i",
        "--root",
    )
    assert in_progress(Repository.open(linked)) == "a rebase"
    assert in_progress(patched.repository) is None


def test_a_detached_head_is_mentioned(patched: Patched) -> None:
    patched.git("checkout", "-q", "--detach")
    (note,) = require_committable(patched.repository)
    assert "git switch -c" in note
    assert patched.deliver(commit=True).commit


def test_nobody_can_commit(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    patched.git("config", "user.useConfigOnly", "true")
    with pytest.raises(UsageError, match=r"git config user\.name"):
        require_committable(patched.repository)


def test_the_first_commit_is_the_users(make_repo, tmp_path: Path) -> None:
    make_repo.git(tmp_path, "init", "-q", "empty")
    with pytest.raises(UsageError, match="no commit yet"):
        require_committable(Repository.open(tmp_path / "empty"))
