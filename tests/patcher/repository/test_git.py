"""The git room: finds repositories, lists files, and runs nothing of theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository
from clover_patcher.repository.gitdir import OwnGit


def evil(folder: Path) -> tuple[Path, str]:
    """A program that leaves a mark when it runs."""
    mark = folder / "mark"
    script = folder / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    script.chmod(0o755)
    return mark, str(script)


def test_it_is_found_from_a_folder_below(make_repo) -> None:
    root = make_repo({"pkg/a.py": "", "b.py": ""})
    for start in (root, root / "pkg", root / ".git"):
        assert Repository.open(start).root == root.resolve()


def test_no_repository_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in a git repository"):
        Repository.open(tmp_path)
    with pytest.raises(UsageError, match="not in a git repository"):
        Repository.open(tmp_path / "missing")


def test_a_bare_repository_is_a_usage_error(make_repo, tmp_path: Path) -> None:
    make_repo.git(tmp_path, "init", "-q", "--bare", "bare.git")
    with pytest.raises(UsageError, match="bare repository: clone it"):
        Repository.open(tmp_path / "bare.git")


def test_the_listing_has_tracked_untracked_and_ignored_files(make_repo) -> None:
    root = make_repo({"a.py": "", "ünï cödé/b.py": "", ".gitignore": "*.log\nout/\n"})
    make_repo.write(root, {"new\nline.py": "", "x.log": "", "out/deep/y": "", "nested/f": ""})
    make_repo.git(root / "nested", "init", "-q")
    listing = Repository.open(root).listing()
    assert listing.files == (".gitignore", "a.py", "new\nline.py", "ünï cödé/b.py")
    assert listing.ignored == ("nested/", "out/", "x.log")


def test_submodules_are_listed(make_repo) -> None:
    sub = make_repo({"inner.py": "x = 1\n"}, "sub")
    root = make_repo({"a.py": ""})
    make_repo.git(
        root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub), "lib"
    )
    assert Repository.open(root).listing().files == (".gitmodules", "a.py", "lib/inner.py")


def test_a_linked_worktree_is_a_repository_of_its_own(make_repo, tmp_path: Path) -> None:
    root = make_repo({"a.py": ""})
    make_repo.git(root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    repo = Repository.open(tmp_path / "linked")
    assert repo.root == tmp_path / "linked"
    assert repo.common_dir == root / ".git"
    assert repo.git_dir() == root / ".git/worktrees/linked"


def test_what_head_names(make_repo) -> None:
    root = make_repo({"a.py": ""})
    repo, commit = Repository.open(root), make_repo.git(root, "rev-parse", "HEAD").strip()
    make_repo.git(root, "checkout", "-q", "-b", "topic/ünï")
    assert repo.head_name() == "refs/heads/topic/ünï"
    make_repo.git(root, "checkout", "-q", "--detach")
    assert repo.head_name() == commit == repo.head()
    repo.point_head("refs/heads/topic/ünï")
    assert make_repo.git(root, "symbolic-ref", "HEAD") == "refs/heads/topic/ünï\n"
    repo.point_head(commit)
    assert (root / ".git/HEAD").read_text() == commit + "\n"


def test_nothing_of_the_repository_runs(make_repo, tmp_path: Path) -> None:
    mark, script = evil(tmp_path)
    root = make_repo({"a.py": "", ".gitattributes": "*.py filter=evil\n"})
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (root / ".git/hooks").mkdir(exist_ok=True)
        (root / ".git/hooks" / hook).symlink_to(script)
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "core.pager"):
        make_repo.git(root, "config", key, script)
    make_repo.git(root, "config", "core.hooksPath", str(root / ".git/hooks"))
    repo = Repository.open(root)
    repo.listing()
    (tmp_path / "copy").mkdir()
    OwnGit.of(repo).write(tmp_path / "copy")
    assert not mark.exists()


def test_variables_of_a_surrounding_hook_do_not_reach_git(
    make_repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo({"a.py": ""})
    other = make_repo({"b.py": ""}, "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    repo = Repository.open(root)
    assert repo.root == root
    assert repo.listing().files == ("a.py",)
    assert os.environ["GIT_DIR"] == str(other / ".git")


def test_the_index_is_not_touched(make_repo) -> None:
    root = make_repo({"a.py": "1\n"})
    (root / "a.py").write_text("2\n")
    before = (root / ".git/index").read_bytes()
    Repository.open(root).listing()
    assert (root / ".git/index").read_bytes() == before


def test_a_missing_git_is_a_usage_error(make_repo, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo({"a.py": ""})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="install git"):
        Repository.open(root)


def fake_git(folder: Path, says: str) -> Path:
    """A folder for PATH with a git that is the real one, but says that it is another version."""
    script = folder / "fake/git"
    script.parent.mkdir()
    real = shutil.which("git")
    script.write_text(
        f"#!/bin/sh\ncase \"$1\" in version|--version) printf '%s\\n' '{says}';; "
        f'*) exec {real} "$@";; esac\n'
    )
    script.chmod(0o755)
    return script.parent


@pytest.mark.parametrize(
    "says,problem",
    [
        ("git version 2.30.2", "git 2.30.2 is too old: install git 2.31 or newer"),
        ("git version 1.9.1", "git 1.9.1 is too old"),
        ("nonsense", "does not say its version"),
        ("git version 2.31.0", ""),
        ("git version 2.39.5 (Apple Git-154)", ""),
        ("git version 3.0.windows.1", ""),
    ],
)
def test_versions_of_git(
    make_repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, problem: str
) -> None:
    root = make_repo({"a.py": ""})
    monkeypatch.setenv("PATH", str(fake_git(tmp_path, says)), prepend=os.pathsep)
    if problem:
        with pytest.raises(UsageError, match=re.escape(problem)):
            Repository.open(root)
    else:
        assert Repository.open(root).root == root


def test_an_old_git_ends_the_command_with_one_line(
    make_repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo({"a.py": ""})
    monkeypatch.setenv("PATH", str(fake_git(tmp_path, "git version 2.30.2")), prepend=os.pathsep)
    command = [sys.executable, "-m", "clover_code.main"]
    fix = [*command, "fix", "--engine", "none", "--check", "false"]
    done = subprocess.run(fix, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "install git 2.31 or newer" in done.stderr
    doctor = subprocess.run([*command, "doctor"], cwd=root, capture_output=True, text=True)
    assert "MISSING  git " in doctor.stdout and "install git 2.31 or newer" in doctor.stdout
