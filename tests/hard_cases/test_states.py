"""Case 36, and every other state that a repository can be in: git's own folder never changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_patcher.errors import UsageError

from .cases import case
from .harness import (
    BROKEN,
    FIXED,
    PROGRAM,
    TESTS,
    Repairs,
    differences,
    git_state,
    tree,
)

NOTES = {**BROKEN, "notes.txt": "1\n"}


def branches(make_repo, folder: Path) -> Path:
    """`main` and `side` change the same line of the notes, in two commits each."""
    root: Path = make_repo(NOTES)
    make_repo.git(root, "branch", "-m", "main")
    for branch, base in (("side", "main"), ("main", "")):
        make_repo.git(root, "checkout", "-q", *(["-b", branch, base] if base else [branch]))
        for number in (1, 2):
            make_repo.write(root, {"notes.txt": f"{branch} {number}\n"})
            make_repo.commit(root)
    return root


def stopped(make_repo, root: Path, *command: str) -> None:
    """Runs a git command that must stop in the middle."""
    with pytest.raises(subprocess.CalledProcessError):
        make_repo.git(root, "-c", "core.editor=true", "-c", "advice.detachedHead=0", *command)


def detached(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    make_repo.git(root, "checkout", "-q", "--detach", "side~1")
    return root


def rebasing(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    stopped(make_repo, root, "rebase", "side")
    assert (root / ".git/rebase-merge").is_dir()
    return root


def rebasing_step_by_step(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    stopped(make_repo, root, "rebase", "-q", "--exec", "false", "HEAD~2")
    return root


def applying_mail(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    mail = make_repo.git(root, "format-patch", "-1", "--stdout", "side")
    (folder / "mail").write_text(mail)
    stopped(make_repo, root, "am", "../mail")
    assert (root / ".git/rebase-apply").is_dir()
    return root


def merging(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    stopped(make_repo, root, "merge", "side")
    assert (root / ".git/MERGE_HEAD").exists()
    return root


def picking(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    stopped(make_repo, root, "cherry-pick", "side~1", "side")
    assert (root / ".git/CHERRY_PICK_HEAD").exists()
    return root


def reverting(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    stopped(make_repo, root, "revert", "HEAD~1")
    assert (root / ".git/REVERT_HEAD").exists()
    return root


def bisecting(make_repo, folder: Path) -> Path:
    root = branches(make_repo, folder)
    make_repo.git(root, "bisect", "start", "HEAD", "HEAD~2")
    assert (root / ".git/BISECT_LOG").exists()
    return root


INTERRUPTED = [
    detached,
    rebasing,
    rebasing_step_by_step,
    applying_mail,
    merging,
    picking,
    reverting,
    bisecting,
]


@case(36)
@pytest.mark.parametrize("state", INTERRUPTED, ids=lambda state: state.__name__)
def test_in_the_middle_of_something(
    make_repo, repairs: Repairs, tmp_path: Path, state: Callable[..., Path]
) -> None:
    root = state(make_repo, tmp_path)
    before = set(repairs.status(root).split("\0"))
    repairs.fixed(root, {"program.py": FIXED})
    assert set(repairs.status(root).split("\0")) == before | {" M program.py"}


def linked(make_repo, folder: Path) -> tuple[Path, Path]:
    main = make_repo(BROKEN, "main")
    make_repo.git(main, "worktree", "add", "-q", "-b", "other", "../linked")
    return folder / "linked", main / ".git"


def linked_from_a_linked_one(make_repo, folder: Path) -> tuple[Path, Path]:
    first, common = linked(make_repo, folder)
    make_repo.git(first, "worktree", "add", "-q", "--detach", "../second tree")
    return folder / "second tree", common


def linked_inside_of_main(make_repo, folder: Path) -> tuple[Path, Path]:
    main = make_repo({**BROKEN, ".gitignore": ".trees/\n"}, "main")
    make_repo.git(main, "worktree", "add", "-q", "--detach", ".trees/inside")
    return main / ".trees/inside", main / ".git"


def linked_to_a_bare_one(make_repo, folder: Path) -> tuple[Path, Path]:
    make_repo(BROKEN, "origin")
    make_repo.git(folder, "clone", "-q", "--bare", "origin", "bare.git")
    make_repo.git(folder / "bare.git", "worktree", "add", "-q", "../linked")
    return folder / "linked", folder / "bare.git"


def shallow(make_repo, folder: Path) -> tuple[Path, Path]:
    origin = make_repo(BROKEN, "origin")
    make_repo.commit(origin)
    make_repo.git(folder, "clone", "-q", "--depth=1", origin.as_uri(), "shallow")
    return folder / "shallow", folder / "shallow/.git"


def borrowing(make_repo, folder: Path) -> tuple[Path, Path]:
    """Its objects are in another repository."""
    make_repo(BROKEN, "origin")
    make_repo.git(folder, "clone", "-q", "--shared", "origin", "borrower")
    return folder / "borrower", folder / "borrower/.git"


def separate(make_repo, folder: Path) -> tuple[Path, Path]:
    root = folder / "separate"
    root.mkdir()
    make_repo.git(root, "init", "-q", f"--separate-git-dir={folder / 'else where.git'}")
    make_repo.write(root, BROKEN)
    return make_repo.commit(root), folder / "else where.git"


def behind_a_link(make_repo, folder: Path) -> tuple[Path, Path]:
    """The repository's folder is reached through a link, and its `.git` is one."""
    root = make_repo(BROKEN, "real")
    (root / ".git").rename(folder / "moved.git")
    (root / ".git").symlink_to(folder / "moved.git")
    (folder / "entry").symlink_to(root)
    return folder / "entry", folder / "moved.git"


def configured_elsewhere(make_repo, folder: Path) -> tuple[Path, Path]:
    """`core.worktree` names the folder; the repository is found from git's side."""
    root = make_repo(BROKEN, "tree")
    (root / ".git").rename(folder / "tree.git")
    (root / ".git").write_text("gitdir: ../tree.git\n")
    make_repo.git(root, "config", "core.worktree", str(root))
    return root, folder / "tree.git"


def other_hashes(make_repo, folder: Path) -> tuple[Path, Path]:
    root = folder / "sha256"
    root.mkdir()
    make_repo.git(root, "init", "-q", "--object-format=sha256")
    make_repo.write(root, BROKEN)
    return make_repo.commit(root), root / ".git"


def other_indexes(make_repo, folder: Path) -> tuple[Path, Path]:
    """Split in two, in the compressed format, with caches; and flags that hide changes."""
    root = make_repo(NOTES, "caches")
    make_repo.git(root, "config", "core.untrackedCache", "true")
    make_repo.git(root, "update-index", "--split-index", "--index-version", "4")
    make_repo.git(root, "update-index", "--assume-unchanged", "notes.txt")
    make_repo.write(root, {"notes.txt": "hidden\n"})
    return root, root / ".git"


PLACES = [
    linked,
    linked_from_a_linked_one,
    linked_inside_of_main,
    linked_to_a_bare_one,
    shallow,
    borrowing,
    separate,
    behind_a_link,
    configured_elsewhere,
    other_hashes,
    other_indexes,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_kinds_of_repositories(
    make_repo, repairs: Repairs, tmp_path: Path, place: Callable[..., tuple[Path, Path]]
) -> None:
    root, common = place(make_repo, tmp_path)
    mains = {path: tree(path) for path in (tmp_path / "main", tmp_path / "origin") if path.exists()}
    repairs.fixed(root, {"program.py": FIXED}, common_dir=common)
    assert repairs.status(root) == " M program.py\0"
    if place is not linked_inside_of_main:
        assert all(tree(path) == before for path, before in mains.items())


def test_worktrees_inside_are_not_the_repositorys_files(make_repo, repairs: Repairs) -> None:
    root = make_repo(BROKEN)
    make_repo.git(root, "worktree", "add", "-q", "--detach", "inside")
    make_repo(BROKEN, "repo/nested")
    repairs.fixed(root, {"program.py": FIXED})
    assert (root / "inside/program.py").read_text() == PROGRAM


def test_before_the_first_commit(make_repo, repairs: Repairs, tmp_path: Path) -> None:
    """An empty commit is made for the copies; no ref, no index and no record of it stays."""
    root = tmp_path / "young"
    root.mkdir()
    make_repo.git(root, "init", "-q")
    make_repo.write(root, BROKEN)
    make_repo.git(root, "add", "check.py")
    state = git_state(root / ".git")
    assert repairs.run(root).status == "fixed"
    assert (root / "program.py").read_text() == FIXED
    changed = differences(state, git_state(root / ".git"))
    assert all(path.startswith("objects/") for path in changed)
    assert all(before is None for before, _ in changed.values())
    assert repairs.status(root) == "A  check.py\0?? program.py\0"


def test_from_a_folder_below(make_repo, repairs: Repairs) -> None:
    files = {f"pkg/{name}": text for name, text in BROKEN.items()}
    root = make_repo({**files, "other.py": "X = 1\n"})
    repairs.fixed(root, {"pkg/program.py": FIXED}, start=root / "pkg", paths=("program.py",))


def test_a_bare_repository_is_refused(make_repo, repairs: Repairs, tmp_path: Path) -> None:
    make_repo(BROKEN, "origin")
    make_repo.git(tmp_path, "clone", "-q", "--bare", "origin", "bare.git")
    state = git_state(tmp_path / "bare.git")
    with pytest.raises(UsageError, match="is a bare repository: clone it and run"):
        repairs.run(tmp_path / "bare.git")
    assert git_state(tmp_path / "bare.git") == state


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_repository_of_someone_else_needs_the_users_word(make_repo, repairs: Repairs) -> None:
    root = make_repo(BROKEN)
    for path in (root, root / ".git", *root.rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(UsageError, match=r"git config --global --add safe\.directory"):
        repairs.unchanged(root)
    make_repo.git(root, "config", "--global", "--add", "safe.directory", str(root))
    repairs.fixed(root, {"program.py": FIXED})
    assert (root / "program.py").stat().st_uid == 12345


def test_a_locked_index_does_not_matter(make_repo, repairs: Repairs) -> None:
    """Someone is committing, or was killed while doing so; the lock is theirs."""
    root = make_repo(BROKEN)
    for name in ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock"):
        (root / ".git" / name).write_text("theirs")
    repairs.fixed(root, {"program.py": FIXED})


def test_a_damaged_index_is_a_clear_refusal(make_repo, repairs: Repairs) -> None:
    root = make_repo(BROKEN)
    (root / ".git/index").write_bytes(b"not an index at all, but long enough to be one\n")
    with pytest.raises(UsageError, match=r"git ls-files failed: .*(index|signature)"):
        repairs.unchanged(root)


def test_no_file_of_the_check_stays(make_repo, repairs: Repairs) -> None:
    """What a check writes, it writes into a copy."""
    tests = "open('report.txt', 'w').close()\nopen('program.log', 'a').close()\n" + TESTS
    root = make_repo({**BROKEN, "check.py": tests})
    repairs.fixed(root, {"program.py": FIXED})
