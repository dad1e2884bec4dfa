"""A copy's git directory answers as the original does, and is connected to nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clover_patcher.repository.git import Repository
from clover_patcher.repository.gitdir import OwnGit

QUESTIONS = [
    ("for-each-ref", "--format=%(refname) %(objectname) %(*objectname) %(symref)"),
    ("show-ref", "--dereference", "--head"),
    ("rev-parse", "HEAD"),
    ("stash", "list"),
    ("reflog", "--format=%H %gs"),
    ("ls-files", "--stage"),
    ("log", "--format=%H %s", "--all"),
    ("describe", "--tags", "--always"),
    ("count-objects",),
]


def copy(root: Path, tree: Path) -> Path:
    tree.mkdir()
    OwnGit.of(Repository.open(root)).write(tree)
    return tree


def require_equal(make_repo, root: Path, tree: Path) -> None:
    for question in QUESTIONS[:-1]:
        assert make_repo.git(tree, *question) == make_repo.git(root, *question), question
    assert make_repo.git(tree, "count-objects").startswith("0 objects")
    make_repo.git(tree, "fsck", "--strict")
    assert not [path for path in (tree / ".git").rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("many", [5, 150])
def test_refs_loose_and_packed(make_repo, tmp_path: Path, many: int) -> None:
    """Few loose refs stay so; many are packed, and count more than older packed ones."""
    root = make_repo({"a.py": "1\n"})
    for number in range(many):
        make_repo.git(root, "update-ref", f"refs/tags/t{number}", "HEAD")
    make_repo.git(root, "tag", "-a", "-m", "x", "annotated")
    make_repo.git(root, "pack-refs", "--all")
    (root / "a.py").write_text("2\n")
    make_repo.git(root, "stash", "-q")
    make_repo.commit(root)
    for number in range(0, 2 * many, 2):
        make_repo.git(root, "update-ref", f"refs/tags/t{number}", "HEAD")
    make_repo.git(root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    make_repo.git(root, "update-ref", "refs/remotes/origin/main", "HEAD~")
    make_repo.git(root, "update-ref", "refs/heads/ünï/cödé", "HEAD")
    tree = copy(root, tmp_path / "copy")
    require_equal(make_repo, root, tree)
    loose = [path for path in (tree / ".git/refs").rglob("*") if path.is_file()]
    assert len(loose) == (1 if many > 100 else many + 4 + 1)


def test_configuration_is_taken_over_to_the_byte(make_repo, tmp_path: Path) -> None:
    root = make_repo({"a.py": ""})
    values = {
        "odd.plain": ' two  blanks # ; and "quotes" \\ ',
        'odd.sub "section" with.dots\\and more.key': "line\nbreak\ttab",
        "odd.empty": "",
        "odd.Case.NAME": "ünï",
        "filter.x.clean": "sh -c 'cat; true'",
        "branch.topic.description": "several\nlines\n",
    }
    for key, value in values.items():
        make_repo.git(root, "config", "--add", key, value)
    make_repo.git(root, "config", "--add", "odd.plain", "second")
    with (root / ".git/config").open("a") as file:
        file.write("[odd]\n\tvalueless\n")
    (root / ".git/more").write_text("[included]\n\tx = 1\n")
    make_repo.git(root, "config", "include.path", "more")
    tree = copy(root, tmp_path / "copy")
    listed = [
        make_repo.git(at, "config", "--local", "--list", "--includes", "-z") for at in (root, tree)
    ]
    wanted, found = (text.split("\0") for text in listed)
    wanted.remove("include.path\nmore")
    assert [entry for entry in found if entry in wanted] == sorted(wanted, key=found.index)
    assert set(wanted) <= set(found)
    assert make_repo.git(tree, "config", "--type=bool", "odd.valueless") == "true\n"


def test_a_condition_on_the_users_path_holds_in_the_copy(
    make_repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo({"a.py": ""})
    (tmp_path / "work").write_text("[user]\n\temail = work@localhost\n")
    with open(os.environ["GIT_CONFIG_GLOBAL"], "a") as file:
        file.write(f'[includeIf "gitdir:{root}/"]\n\tpath = {tmp_path}/work\n')
    assert make_repo.git(root, "config", "user.email") == "work@localhost\n"
    tree = copy(root, tmp_path / "copy")
    assert make_repo.git(tree, "config", "user.email") == "work@localhost\n"


def test_an_index_in_two_parts(make_repo, tmp_path: Path) -> None:
    root = make_repo({f"{n}.py": "" for n in range(20)})
    make_repo.git(root, "update-index", "--split-index")
    (root / "new.py").write_text("")
    make_repo.git(root, "add", "new.py")
    for mark in ("0" * 40, "abc"):
        (root / f".git/sharedindex.{mark}").write_text("not of this index")
    tree = copy(root, tmp_path / "copy")
    require_equal(make_repo, root, tree)
    assert len(list((tree / ".git").glob("sharedindex.*"))) == 1


@pytest.mark.parametrize("name", ['"quoted"', "# hash", "line\nbreak", "back\\slash", "ünï"])
def test_names_of_folders_that_mean_something_to_git(make_repo, tmp_path: Path, name: str) -> None:
    root = make_repo({"a.py": "1\n"}, name)
    bare = tmp_path / f"{name}.git"
    make_repo.git(tmp_path, "clone", "-q", "--bare", str(root), str(bare))
    make_repo.git(bare, "worktree", "add", "-q", str(tmp_path / "linked"))
    for number, start in enumerate((root, tmp_path / "linked")):
        tree = copy(start, tmp_path / f"copy{number}")
        assert make_repo.git(tree, "cat-file", "-p", "HEAD:a.py") == "1\n"


def test_links_in_the_git_directory_become_files(make_repo, tmp_path: Path) -> None:
    """HEAD as git wrote it long ago; hooks that are linked; a directory made of links."""
    root = make_repo({"a.py": "1\n"})
    git = root / ".git"
    target = (git / "HEAD").read_text().removeprefix("ref: ").strip()
    (git / "HEAD").unlink()
    (git / "HEAD").symlink_to(target)
    (tmp_path / "shared.sh").write_text("#!/bin/sh\n")
    (tmp_path / "shared.sh").chmod(0o755)
    (git / "hooks/pre-commit").symlink_to(tmp_path / "shared.sh")
    workdir = tmp_path / "workdir"
    (workdir / ".git").mkdir(parents=True)
    for name in ("config", "refs", "objects", "info", "hooks", "packed-refs"):
        (workdir / ".git" / name).symlink_to(git / name)
    (workdir / ".git/HEAD").write_text(f"ref: {target}\n")
    for number, start in enumerate((root, workdir)):
        tree = copy(start, tmp_path / f"copy{number}")
        assert make_repo.git(tree, "log", "--format=%s") == "Start\n"
        assert make_repo.git(tree, "symbolic-ref", "HEAD") == f"{target}\n"
        hook = tree / ".git/hooks/pre-commit"
        assert not hook.is_symlink() and os.access(hook, os.X_OK)
        hook.write_text("changed")
    assert (tmp_path / "shared.sh").read_text() == "#!/bin/sh\n"


def test_locks_and_what_is_no_file_stay_behind(make_repo, tmp_path: Path) -> None:
    root = make_repo({"a.py": "1\n"})
    for name in ("index.lock", "HEAD.lock", "refs/heads/topic.lock", "gc.pid"):
        (root / ".git" / name).write_text("")
    os.mkfifo(root / ".git/hooks/pipe")
    os.mkfifo(root / ".git/FETCH_HEAD")
    tree = copy(root, tmp_path / "copy")
    make_repo.git(tree, "commit", "-q", "--allow-empty", "-m", "More")
    assert not (tree / ".git/hooks/pipe").exists()


def test_tables_of_refs_are_taken_as_they_are(make_repo, tmp_path: Path) -> None:
    """The format of newer versions of git, in as far as files can be copied without it."""
    root = make_repo({"a.py": "1\n"})
    make_repo.write(root, {".git/reftable/tables.list": "0x1.ref\n", ".git/reftable/0x1.ref": b"R"})
    tree = copy(root, tmp_path / "copy")
    assert (tree / ".git/reftable/tables.list").read_text() == "0x1.ref\n"
    assert (tree / ".git/reftable/0x1.ref").read_bytes() == b"R"


def test_a_copy_outlives_the_collection_of_garbage(make_repo, tmp_path: Path) -> None:
    """The user may run it at any time; what HEAD and refs name stays."""
    root = make_repo({"a.py": "1\n"})
    make_repo.git(root, "tag", "v1")
    tree = copy(root, tmp_path / "copy")
    make_repo.git(root, "gc", "--prune=now", "-q")
    require_equal(make_repo, root, tree)
    subprocess.run(["git", "gc", "--prune=now", "-q"], cwd=tree, check=True)
    require_equal(make_repo, root, tree)
