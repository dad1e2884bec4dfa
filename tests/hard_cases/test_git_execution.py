"""Cases 24 and 25: nothing that a repository names is executed, however it is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .cases import case
from .harness import BROKEN, FIXED, PROGRAM, Canary, Repairs

PROGRAMS = """
core.fsmonitor core.pager core.editor core.sshCommand core.askPass core.gitProxy
core.alternateRefsCommand filter.canary.clean filter.canary.smudge filter.canary.process
diff.external diff.canary.command diff.canary.textconv merge.canary.driver sequence.editor
credential.helper gpg.program gpg.ssh.program pager.status pager.diff pager.ls-files
remote.origin.uploadpack remote.origin.receivepack remote.origin.vcs uploadpack.packObjectsHook
trailer.sign.command trailer.sign.cmd difftool.canary.cmd mergetool.canary.cmd
interactive.diffFilter sendemail.smtpserver browser.canary.cmd web.browser man.viewer
log.showSignature submodule.recurse
"""
"""Settings whose value is a program, or that make git run one."""

HOOKS = """
post-checkout post-index-change reference-transaction pre-commit prepare-commit-msg commit-msg
post-commit post-merge post-rewrite pre-auto-gc fsmonitor-watchman sendemail-validate
pre-applypatch applypatch-msg post-applypatch pre-push pre-rebase
"""


def set_all(root: Path, canary: Canary, *where: str) -> None:
    """Writes every setting at once, as a hostile repository would come with them."""
    lines = []
    for key in PROGRAMS.split():
        section, name = key.rsplit(".", 1)
        section, _, sub = section.partition(".")
        value = "true" if name in ("recurse", "showSignature") else str(canary.program)
        head = f'{section} "{sub}"' if sub else section
        lines.append(f'[{head}]\n\t{name} = "{value}"\n')
    path = subprocess.run(
        ["git", "rev-parse", "--git-path", *(where or ("config",))],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with (root / path).open("a") as config:
        config.write("".join(lines))


@case(24)
def test_no_program_of_the_configuration_runs(
    make_repo, repairs: Repairs, canary: Canary, tmp_path: Path
) -> None:
    attributes = "* filter=canary diff=canary merge=canary text=auto eol=lf\n"
    root = make_repo({**BROKEN, ".gitattributes": attributes, "binary.dat": b"\0\r\n"})
    make_repo.git(root, "config", "extensions.worktreeConfig", "true")
    set_all(root, canary)
    set_all(root, canary, "config.worktree")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/attributes").write_text(attributes)
    (root / "check.py").write_text((root / "check.py").read_text() + "# dirty\n")
    (root / "untracked.py").write_text("X = 1\n")
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran
    subprocess.run(["git", "diff"], cwd=root, capture_output=True)
    assert canary.ran  # git itself does run it: the trap works


@case(24)
def test_no_program_of_a_submodules_configuration_runs(
    make_repo, repairs: Repairs, canary: Canary
) -> None:
    library = make_repo({"inner.py": "X = 1\n", ".gitattributes": "* filter=canary\n"}, "library")
    root = make_repo(BROKEN)
    allow = ("-c", "protocol.file.allow=always")
    make_repo.git(root, *allow, "submodule", "add", "-q", str(library), "lib")
    make_repo.commit(root)
    set_all(root / "lib", canary)
    canary.hooks(root / ".git/modules/lib/hooks", *HOOKS.split())
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran


@case(24)
@pytest.mark.parametrize("lacking", ["blob:none", "tree:0"])
def test_objects_that_are_missing_are_not_fetched(
    make_repo, repairs: Repairs, canary: Canary, tmp_path: Path, lacking: str
) -> None:
    """A partial clone asks its remote for them, and says itself which program that is."""
    origin = make_repo({**BROKEN, "old.py": "X = 1\n"}, "origin")
    make_repo.git(origin, "config", "uploadpack.allowFilter", "true")
    clone = ["clone", "-q", f"--filter={lacking}", "--no-checkout", origin.as_uri(), "repo"]
    make_repo.git(tmp_path, *clone)
    root = tmp_path / "repo"
    make_repo.write(root, BROKEN)
    make_repo.git(root, "config", "remote.origin.url", f"ext::{canary.program}")
    make_repo.git(root, "config", "remote.origin.uploadpack", str(canary.program))
    make_repo.git(root, "config", "protocol.ext.allow", "always")
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran
    with pytest.raises(subprocess.CalledProcessError):
        make_repo.git(root, "checkout", "HEAD", "--", "old.py")
    assert canary.ran  # git itself does run it: the trap works


@case(25)
@pytest.mark.parametrize("place", ["hooks", "configured", "tracked"])
def test_no_hook_runs(make_repo, repairs: Repairs, canary: Canary, place: str) -> None:
    root = make_repo(BROKEN)
    folder = {"hooks": root / ".git/hooks", "configured": root.parent / "hooks"}.get(
        place, root / ".husky"
    )
    canary.hooks(folder, *HOOKS.split())
    if place != "hooks":
        make_repo.git(root, "config", "core.hooksPath", str(folder))
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran
    make_repo.git(root, "worktree", "add", "-q", "--detach", "../other")
    assert canary.ran  # git itself does run it: the trap works


@case(24)
def test_nothing_of_the_surrounding_git_reaches_ours(
    make_repo,
    repairs: Repairs,
    canary: Canary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a hook, an alias or `git rebase --exec`: variables point at another repository."""
    other = make_repo({"program.py": PROGRAM}, "other")
    root = make_repo(BROKEN)
    program = str(canary.program)
    surrounding = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_COMMON_DIR": str(other / ".git"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        "GIT_NAMESPACE": "elsewhere",
        "GIT_PREFIX": "sub/",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{program}'",
        "GIT_CONFIG": str(other / ".git/config"),
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_TRACE2_EVENT": str(tmp_path / "trace2"),
        "GIT_DEFAULT_HASH": "sha256",
        **dict.fromkeys(
            ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_PAGER", "GIT_ASKPASS"),
            program,
        ),
    }
    for name, value in surrounding.items():
        monkeypatch.setenv(name, value)
    result = repairs.run(root)
    for name in surrounding:
        monkeypatch.delenv(name)
    assert (result.status, result.applied) == ("fixed", True)
    assert (root / "program.py").read_text() == FIXED
    assert (other / "program.py").read_text() == PROGRAM
    assert repairs.status(root) == " M program.py\0"
    assert repairs.status(other) == ""
    assert not canary.ran
    assert list(tmp_path.glob("trace*")) == []
