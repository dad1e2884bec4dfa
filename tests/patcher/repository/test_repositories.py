"""Unusual repositories: a workspace shows their files as they are and disturbs nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_patcher.repository.git import Repository
from clover_patcher.repository.workspace import Workspace

FILES = {"a.py": "x = 1\n", "pkg/b.py": "y = 2\n", "docs/c.txt": "z\n"}


def plain(make, folder: Path) -> Path:
    return make(FILES)


def sha256(make, folder: Path) -> Path:
    root = folder / "sha256"
    root.mkdir()
    make.git(root, "init", "-q", "--object-format=sha256")
    make.write(root, FILES)
    return make.commit(root)


def sparse(make, folder: Path) -> Path:
    root = make(FILES)
    make.git(root, "sparse-checkout", "set", "--cone", "pkg")
    return root


def shallow(make, folder: Path) -> Path:
    origin = make(FILES, "origin")
    make.commit(origin)
    make.git(folder, "clone", "-q", "--depth=1", origin.as_uri(), "shallow")
    return folder / "shallow"


def detached(make, folder: Path) -> Path:
    root = make(FILES)
    make.git(root, "checkout", "-q", "--detach")
    return root


def conflicted(make, folder: Path) -> Path:
    """In the middle of a merge."""
    root = make(FILES)
    for branch, text in (("one", "x = 2\n"), ("two", "x = 3\n")):
        make.git(root, "checkout", "-q", "-b", branch, "HEAD" if branch == "one" else "HEAD~")
        make.write(root, {"a.py": text})
        make.commit(root)
    with pytest.raises(subprocess.CalledProcessError):
        make.git(root, "merge", "one")
    return root


def linked(make, folder: Path) -> Path:
    make.git(make(FILES), "worktree", "add", "-q", "--detach", str(folder / "linked"))
    return folder / "linked"


def separate(make, folder: Path) -> Path:
    root = folder / "separate"
    root.mkdir()
    make.git(root, "init", "-q", f"--separate-git-dir={folder / 'elsewhere.git'}")
    make.write(root, FILES)
    return make.commit(root)


def superproject(make, folder: Path) -> Path:
    root = make({"main.py": "import lib.a\n"})
    library = make(FILES, "library")
    allow = ("-c", "protocol.file.allow=always")
    make.git(root, *allow, "submodule", "add", "-q", str(library), "lib")
    make.write(root, {"lib/dirty.py": "untracked = 1\n"})
    return root


def pointers(make, folder: Path) -> Path:
    """Large files as the user has them, where the filter program must not run."""
    root = make({**FILES, ".gitattributes": "*.bin filter=lfs\n", "model.bin": "pointer\n"})
    make.git(root, "config", "filter.lfs.smudge", "false")
    make.git(root, "config", "filter.lfs.clean", "false")
    make.git(root, "config", "filter.lfs.required", "true")
    (root / "model.bin").write_bytes(b"real content")
    return root


def strange_names(make, folder: Path) -> Path:
    return make(
        {"new\nline.py": "", "-dash.py": "", " blank .py": "", "*.py": "", ":(top)x.py": ""}
    )


KINDS = [
    plain,
    sha256,
    sparse,
    shallow,
    detached,
    conflicted,
    linked,
    separate,
    superproject,
    pointers,
    strange_names,
]


def content(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in root.rglob("*")
        if p.is_file() and ".git" not in p.relative_to(root).parts
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_equals_the_tree(
    make_repo, tmp_path: Path, temporary_root: Path, kind: Callable[..., Path]
) -> None:
    root = kind(make_repo, tmp_path)

    def state() -> list[str]:
        asked = [("for-each-ref",), ("worktree", "list", "--porcelain"), ("count-objects",)]
        if kind is not pointers:  # git itself would run the filter
            asked.append(("status", "--porcelain"))
        return [make_repo.git(root, *args) for args in asked]

    before, index = state(), {p: p.read_bytes() for p in root.glob(".git/index")}
    with Workspace(Repository.open(root), trees=2) as workspace:
        for tree in [*workspace.trees, workspace.fresh()]:
            assert content(tree) == content(root)
            assert make_repo.git(tree, "rev-parse", "HEAD") == make_repo.git(
                root, "rev-parse", "HEAD"
            )
        assert {f for f in workspace.python_files} == {f for f in content(root) if f[-3:] == ".py"}
    assert {p: p.read_bytes() for p in index} == index
    assert state() == before
    assert list(temporary_root.iterdir()) == []
