"""Which documents are withheld, by every name that they have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clover_engine.privacy import gitconfig
from clover_engine.privacy.uris import paths_in, to_path
from clover_engine.privacy.withheld import MAX_AGE_S, Withheld

pytestmark = pytest.mark.usefixtures("cache")
IGNORING = {".gitignore": "made/\n*.local\n", "made/a.py": "", "ok.py": "", "deep/x.local": ""}


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def test_a_root_that_is_a_link_and_a_document_by_its_real_path(
    make_repo: Callable[..., Path], tmp_path: Path
) -> None:
    root = make_repo(IGNORING)
    link = tmp_path / "link"
    link.symlink_to(root)
    inner = tmp_path / "inner"
    inner.symlink_to(root / "deep")
    for roots in ((link,), (root,), (), (inner,)):
        withheld = Withheld(roots)
        for folder in (link, root):
            assert withheld.of_path(folder / "made" / "a.py"), (roots, folder)
            assert withheld.of_uri((folder / "deep" / "x.local").as_uri())
            assert not withheld.of_path(folder / "ok.py")
        assert withheld.of_path(inner / "x.local")


def test_patterns_of_the_user_reach_files_by_their_real_path(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    root = write({"private/a.py": "", "b.py": ""})
    link = tmp_path / "link"
    link.symlink_to(root)
    withheld = Withheld((link,), ("/private/",))
    assert withheld.of_path(root / "private/a.py") and withheld.of_path(link / "private/a.py")
    assert not withheld.of_path(root / "b.py")


def test_a_link_out_of_an_ignored_folder_and_into_one(
    make_repo: Callable[..., Path], tmp_path: Path
) -> None:
    root = make_repo(IGNORING)
    (root / "link.py").symlink_to(root / "made" / "a.py")
    (root / "env.py").symlink_to(tmp_path / ".env")
    (root / "made" / "out.py").symlink_to(root / "ok.py")
    withheld = Withheld((root,))
    for name in ("link.py", "env.py", "made/out.py"):
        assert withheld.of_path(root / name), name


@pytest.mark.parametrize("name", [".gitignore", ".cloverignore"])
def test_a_file_without_a_root_is_bound_by_what_is_around_it(
    make_repo: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = make_repo({name: "made/\n", "made/deep/a.py": "", "b.py": ""})
    outside = make_repo({"c.py": ""}, name="repo/inner")
    assert Withheld().of_path(root / "made/deep/a.py") and not Withheld().of_path(root / "b.py")
    assert not Withheld().of_path(outside / "c.py")
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    loose = home / "notes" / "deep"
    loose.mkdir(parents=True)
    (tmp_path / name).write_text("*.py\n")
    assert not Withheld().of_path(loose / "a.py"), "above the home folder nothing counts"
    (home / name).write_text("*.txt\n")
    (home / "notes" / name).write_text("deep/*.py\n")
    assert Withheld().of_path(loose / "a.py") and Withheld().of_path(loose / "a.txt")
    assert not Withheld().of_path(loose / "a.lua")


def test_a_cloverignore_above_a_root_counts(make_repo: Callable[..., Path]) -> None:
    root = make_repo({".cloverignore": "part/made/\n*.gen.py\n", "part/made/a.py": ""})
    withheld = Withheld((root / "part",))
    assert withheld.of_path(root / "part/made/a.py") and withheld.of_path(root / "part/x.gen.py")
    assert not withheld.of_path(root / "part/x.py")


def test_a_root_that_the_repository_ignores_is_ignored(make_repo: Callable[..., Path]) -> None:
    root = make_repo({".gitignore": "made/\n", "made/sub/a.py": ""})
    for roots in ((root / "made",), (root / "made" / "sub",), (root,), ()):
        assert Withheld(roots).of_path(root / "made/sub/a.py"), roots
    (root / ".cloverignore").write_text("!made/\n")
    for roots in ((root / "made",), (root,), ()):
        assert not Withheld(roots).of_path(root / "made/sub/a.py"), roots


# What git's configuration says


def test_the_file_of_the_configuration_and_its_default(
    make_repo: Callable[..., Path], tmp_path: Path, cache: Path
) -> None:
    root = make_repo({"a.py": "", "secret_plan.py": "", "b.scratch": "", "c.default": ""})
    (cache / "git").mkdir(parents=True)
    (cache / "git" / "ignore").write_text("*.default\n")
    assert Withheld((root,)).of_path(root / "c.default")
    own = tmp_path / "my-excludes"
    own.write_text("secret_*\n")
    git(root, "config", "core.excludesFile", str(own))
    withheld = Withheld((root,))
    assert withheld.of_path(root / "secret_plan.py") and not withheld.of_path(root / "a.py")
    assert not withheld.of_path(root / "c.default"), "the default is replaced, as git does"


@pytest.mark.parametrize("how", ["include", "includeIf", "tilde", "environment", "worktree"])
def test_configuration_that_only_git_can_read(
    make_repo: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    root = make_repo({"a.py": "", "hidden.py": ""})
    own = tmp_path / "own" / "excludes"
    own.parent.mkdir()
    own.write_text("hidden.py\n")
    more = tmp_path / "more.inc"
    more.write_text(f"[core]\n\texcludesFile = {own}\n")
    config = Path(os.environ["GIT_CONFIG_GLOBAL"])
    if how == "include":
        config.write_text(f"{config.read_text()}[include]\n\tpath = {more}\n")
    elif how == "includeIf":
        config.write_text(f'{config.read_text()}[includeIf "gitdir:{root}/"]\n\tpath = {more}\n')
        other = make_repo({"hidden.py": ""}, name="elsewhere")
        assert not Withheld((other,)).of_path(other / "hidden.py")
    elif how == "tilde":
        monkeypatch.setenv("HOME", str(own.parent))
        git(root, "config", "core.excludesFile", "~/excludes")
    elif how == "environment":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.excludesfile")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(own))
    else:
        git(root, "config", "extensions.worktreeConfig", "true")
        git(root, "config", "--worktree", "core.excludesFile", str(own))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "of-a-hook"))
    for roots in ((root,), ()):
        assert Withheld(roots).of_path(root / "hidden.py"), how
        assert not Withheld(roots).of_path(root / "a.py")


def test_info_exclude_of_the_repository_and_of_its_worktrees(
    make_repo: Callable[..., Path], tmp_path: Path
) -> None:
    root = make_repo({"a.py": "", "mine.py": ""})
    (root / ".git" / "info" / "exclude").write_text("mine.py\n")
    tree = tmp_path / "tree"
    git(root, "worktree", "add", "-q", str(tree))
    nested = make_repo({"mine.py": "", "own.py": ""}, name="repo/nested")
    (nested / ".git" / "info" / "exclude").write_text("own.py\n")
    assert Withheld((root,)).of_path(root / "mine.py")
    assert Withheld((tree,)).of_path(tree / "mine.py") and Withheld().of_path(tree / "mine.py")
    assert Withheld((root,)).of_path(nested / "own.py"), "a repository within the workspace"
    assert not Withheld((root,)).of_path(tree / "a.py")


def test_without_git_the_defaults_stand(
    make_repo: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = make_repo({**IGNORING, "c.default": ""})
    (cache / "git").mkdir(parents=True)
    (cache / "git" / "ignore").write_text("*.default\n")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    withheld = Withheld((root,))
    assert withheld.of_path(root / "made/a.py") and withheld.of_path(root / "c.default")
    assert not withheld.of_path(root / "ok.py")


def test_a_file_system_that_takes_small_letters_for_capitals(
    make_repo: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo({".gitignore": "Made/\n*.Local\n!Keep.local\n", "x.py": ""})
    assert not Withheld((root,)).of_path(root / "made/a.py")
    git(root, "config", "core.ignoreCase", "true")
    git_says = subprocess.run(
        ["git", "check-ignore", "made/a.py", "MADE/a.py", "x.LOCAL", "keep.LOCAL", "x.py"],
        cwd=root, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert git_says == ["made/a.py", "MADE/a.py", "x.LOCAL"]
    for found in (Withheld((root,)), Withheld()):
        for name in git_says:
            assert found.of_path(root / name), name
        assert not found.of_path(root / "keep.LOCAL") and not found.of_path(root / "x.py")
    git(root, "config", "--unset", "core.ignoreCase")
    monkeypatch.setattr(gitconfig, "_is_case_blind", lambda _: True)
    assert Withheld((root,)).of_path(root / "MADE/a.py"), "seen at the file system itself"
    assert Withheld((root,)).of_path(root / "SECRETS.YAML")


def test_rules_that_change_count_soon(write: Callable[..., Path]) -> None:
    root = write({"a.py": ""})
    now = 100.0
    withheld = Withheld((root,), clock=lambda: now)
    uri = (root / "a.py").as_uri()
    assert not withheld.of_uri(uri)
    (root / ".cloverignore").write_text("a.py\n")
    now += MAX_AGE_S / 2
    assert not withheld.of_uri(uri)
    now += MAX_AGE_S
    assert withheld.of_uri(uri)
    (root / ".cloverignore").unlink()
    withheld.forget()
    assert not withheld.of_uri(uri)


# Addresses

SECRET_URIS = [
    "file:///home/me/p/.env", "file:///home/me/p/%2Eenv", "file:///home/me/p/%252eenv",
    "file://server/share/.env", "file://localhost/p/.env", "file:/p/.env",
    "file:///c%3A/Users/me/p/.env", "FILE:///p/.env", "/p/.env", "C:\\Users\\me\\.env",
    "untitled:.env", "untitled:/home/me/p/.env", "untitled:///p/.env", "untitled:C%3A%5Cp%5C.env",
    "vscode-vfs://github/owner/repo/.env", "vscode-vfs://github%2B7b2276/owner/repo/a/.env.local",
    "vscode-remote://ssh-remote%2Bhost/home/me/.ssh/config", "vscode-remote://wsl%2Bx/p/id_rsa",
    "git:/p/.env?%7B%22path%22%3A%22%2Fp%2F.env%22%2C%22ref%22%3A%22~%22%7D",
    "git:/p/x.py?{\"path\":\"/p/.env\",\"ref\":\"HEAD\"}", "git:/p/.env.git?{}", "git:///p/.env",
    "gitlens://7b7d/p/.env?%7B%22ref%22%3A%22abc%22%7D", "pr:/p/.env?%7B%7D", "review:/p/.env",
    "fugitive:///p/.git//0/.env", "fugitive:///p/.git//1a2b3c4d5e6f/sub/.env",
    "fugitive://%2Fp%2F.git%2F%2F0%2F.env", "gitsigns:///p/.git//:0:.env",
    "gitsigns:///p/.git/1a2b3c:sub/.env", "diffview:///p/.git/1a2b3c/.env", "octo://o/r/.env",
    "vscode-notebook-cell:/p/credentials.json#W0sZmlsZQ%3D%3D", "vscode-notebook:/p/secrets.yaml",
    "vscode-notebook-cell:/p/.aws/x.ipynb#1", "zip:///p/a.zip::sub/.env", "zipfile:///a.zip::.env",
    "jar:file:///p/a.jar!/conf/.env", "tar:/p/a.tar!x/server.key", "scp://host//p/.env",
    "sftp://me@host/p/.env", "oil-ssh://host/p/.env", "memfs:/.env", "vsls:/p/.env", "x:.ENV",
    "vscode-userdata:/p/User/.netrc", "output:.env", "diff:/p/a?/p/.env", "conflict:/p/.env?ours",
    "file:///p/.env~", "file:///p/.env.swp", "file:///p/server.pem.bak", "http://host/p/.env?x=1",
    "ssh://host:22/p/.env", "docker://c/p/.npmrc", "svn:/p/.env?r=3#L1", "file:///p/.env?version=1",
]  # fmt: skip


@pytest.mark.parametrize("uri", SECRET_URIS)
def test_a_secret_file_under_every_scheme(uri: str) -> None:
    assert Withheld().of_uri(uri), paths_in(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "untitled:Untitled-1", "file:///p/a.py", "vscode-vfs://github/owner/repo/a.py",
        "git:/p/a.py?%7B%22path%22%3A%22%2Fp%2Fa.py%22%7D", "fugitive:///p/.git//0/a.py",
        "vscode-notebook-cell:/p/x.ipynb#W0s", "file:///p/.env.example", "file:///p/environment.py",
        "fugitive:///p/.git//", "inmemory://model/1", "untitled:", "", "x", "%%%",
        "http://[", "a:b:c",
        "git:/p/a.py?{", "vscode-remote://ssh-remote%2Bhost/p/a.py", "file:///p/a%20b%23c.py",
    ],
)  # fmt: skip
def test_ordinary_documents_may_be_read(uri: str) -> None:
    assert not Withheld().of_uri(uri), paths_in(uri)


@pytest.mark.parametrize(
    "scheme",
    [
        "file://{path}", "untitled:{path}", "git:{path}?%7B%22ref%22%3A%22~%22%7D", "review:{path}",
        "vscode-notebook-cell:{path}#W0s", "fugitive://{root}/.git//0/{name}", "vscode-vfs://x{path}",
        "fugitive://{root}/.git//1a2b3c/{name}", "gitsigns://{root}/.git//:0:{name}",
        "diffview://{root}/.git/1a2b3c/{name}", "untitled:{name}", "gitlens://7b7d{path}?%7B%7D",
    ],
)  # fmt: skip
def test_an_ignored_file_under_every_scheme(make_repo: Callable[..., Path], scheme: str) -> None:
    root = make_repo(IGNORING)
    withheld = Withheld((root,))
    for name, is_withheld in (("made/a.py", True), ("deep/x.local", True), ("ok.py", False)):
        uri = scheme.format(root=root, path=root / name, name=name)
        assert bool(withheld.of_uri(uri)) == is_withheld, paths_in(uri)


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=40), st.sampled_from(["file:///", "git:/", "untitled:", "", "x://h/.git//"])
)
@example("a\0b", "file:///")
@example("a%00b", "git:/")
@example("a" * 5000, "file:///")
@example("\ud800", "file:///")
def test_no_address_is_an_error(name: str, scheme: str) -> None:
    withheld = Withheld((Path("/nowhere/at/all"),))
    assert isinstance(withheld.of_uri(scheme + name), str)
    assert withheld.of_uri(scheme + name + "/.env")


def test_only_files_have_paths() -> None:
    assert to_path("untitled:/p/a.py") is None and to_path("git:/p/a.py") is None
    assert to_path("file:///p/a%20b.py") == Path("/p/a b.py")
    assert to_path("vscode-notebook-cell:/p/x.ipynb#W0s") == Path("/p/x.ipynb")
    assert to_path("file:///p/a%00b") is None and to_path("http://[") is None
