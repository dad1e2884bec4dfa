"""Whatever a check does to git, it does to its copy: the user's repository keeps every byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import BROKEN, FIXED, PROGRAM, TESTS, Repairs, differences, git_state, tree

VANDAL = """
import os, subprocess, sys
from pathlib import Path

def git(*args, fails=False):
    who = ["-c", "user.name=Check", "-c", "user.email=check@localhost"]
    done = subprocess.run(["git", *who, *args], capture_output=True, text=True)
    assert bool(done.returncode) == fails, (args, done.stdout, done.stderr)
    return done.stdout

top = git("rev-parse", "--show-toplevel").strip()
assert os.path.samefile(top, "."), top
git_dir = Path(git("rev-parse", "--absolute-git-dir").strip())
common = Path(git("rev-parse", "--path-format=absolute", "--git-common-dir").strip())
assert git_dir == common == Path.cwd() / ".git"
assert git("log", "-1", "--format=%s").strip() == "Start"
hooks = Path(git("rev-parse", "--path-format=absolute", "--git-path", "hooks").strip())
hooks.mkdir(parents=True, exist_ok=True)
(hooks / "post-commit").write_text("#!/bin/sh\\nexit 0\\n")
(hooks / "pre-push").write_text("#!/bin/sh\\nexit 0\\n")
git("tag", "-f", "v1")
git("tag", "-f", "-a", "-m", "annotated", "v2")
git("branch", "-f", "made-by-the-check")
git("config", "user.email", "changed@localhost")
git("config", "core.hooksPath", "elsewhere")
git("config", "--unset", "core.hooksPath")
git("config", "remote.other.url", "/nowhere")
Path("new.txt").write_text("new")
git("add", "-A")
git("stash")
git("stash", "apply")
git("commit", "-q", "--no-verify", "--allow-empty", "-m", "By the check")
git("checkout", "-q", "-f", "-B", "switched")
git("update-ref", "refs/odd/ref", "HEAD")
git("symbolic-ref", "HEAD", "refs/heads/made-by-the-check")
git("update-ref", "-d", "refs/heads/topic")
git("tag", "-d", "kept")
git("notes", "add", "-f", "-m", "a note", "HEAD")
git("worktree", "add", "-q", "--detach", "../beside")
git("worktree", "prune")
git("remote", "prune", "other", fails=True)
git("reflog", "expire", "--expire=now", "--all")
git("pack-refs", "--all")
git("gc", "--prune=now", "--quiet")
git("repack", "-a", "-d", "-q")
git("prune", "--expire=now")
(git_dir / "info/exclude").write_text("*\\n")
(git_dir / "description").write_text("changed")
git("rm", "-q", "-r", "--cached", ".")
git("fsck", "--no-dangling")
"""
"""Everything at once; it leaves the files of the copy as they are, so that it can run again."""


def vandal(tests: str = TESTS) -> str:
    """A check that first does all that to git, in a process of its own, then looks at the program.

    It starts from the same state each time: what it does to git must not change the verdict.
    """
    return (
        "import os, shutil, subprocess, sys\n"
        "if os.path.isdir('.git/pristine'):\n"
        "    shutil.copytree('.git/pristine', 'fresh', symlinks=True)\n"
        "    shutil.rmtree('.git'); os.rename('fresh', '.git')\n"
        "shutil.copytree('.git', 'fresh', symlinks=True); os.rename('fresh', '.git/pristine')\n"
        "shutil.rmtree('../beside', ignore_errors=True)\n"
        "data = open('program.py').read()\n"
        "subprocess.run([sys.executable, 'vandal.py'], check=True)\n"
        "open('program.py', 'w').write(data)\n" + tests
    )


FILES = {**BROKEN, "check.py": vandal(), "vandal.py": VANDAL}


def marked(make_repo, root: Path) -> Path:
    """Tags, branches, a stash, notes, hooks, unpacked and packed refs, objects nobody refers to."""
    make_repo.git(root, "tag", "v1")
    make_repo.git(root, "tag", "-a", "-m", "mine", "v2")
    make_repo.git(root, "branch", "topic")
    make_repo.git(root, "pack-refs", "--all")
    make_repo.git(root, "tag", "kept")
    make_repo.git(root, "notes", "add", "-m", "mine")
    make_repo.write(root, {"dirty.txt": "dirty\n"})
    make_repo.git(root, "stash", "-u", "-q")
    make_repo.write(root, {"lost.txt": "only in an unreachable object\n"})
    make_repo.git(root, "hash-object", "-w", "lost.txt")
    (root / "lost.txt").unlink()
    (root / ".git/hooks" if (root / ".git").is_dir() else root).mkdir(exist_ok=True)
    return root


def plain(make_repo, folder: Path) -> tuple[Path, Path]:
    root = marked(make_repo, make_repo(FILES))
    return root, root / ".git"


def linked(make_repo, folder: Path) -> tuple[Path, Path]:
    main = marked(make_repo, make_repo(FILES, "main"))
    make_repo.git(main, "config", "extensions.worktreeConfig", "true")
    make_repo.git(main, "worktree", "add", "-q", "-b", "side", "../linked")
    make_repo.git(folder / "linked", "config", "--worktree", "user.name", "Of the worktree")
    return folder / "linked", main / ".git"


def submodule(make_repo, folder: Path) -> tuple[Path, Path]:
    library = marked(make_repo, make_repo(FILES, "library"))
    root = make_repo({"a.py": ""}, "super")
    allow = ("-c", "protocol.file.allow=always")
    make_repo.git(root, *allow, "submodule", "add", "-q", str(library), "lib")
    make_repo.git(root / "lib", "branch", "topic")
    make_repo.git(root / "lib", "tag", "-f", "kept")
    return root / "lib", root / ".git/modules/lib"


def bare(make_repo, folder: Path) -> tuple[Path, Path]:
    marked(make_repo, make_repo(FILES, "origin"))
    make_repo.git(folder, "clone", "-q", "--bare", "origin", "bare.git")
    make_repo.git(folder / "bare.git", "worktree", "add", "-q", "../tree", "-b", "side")
    return folder / "tree", folder / "bare.git"


def borrowing(make_repo, folder: Path) -> tuple[Path, Path]:
    """Its own objects are elsewhere, and the path that says so is relative."""
    marked(make_repo, make_repo(FILES, "origin"))
    make_repo.git(folder, "clone", "-q", "--shared", "origin", "borrower")
    root = folder / "borrower"
    (root / ".git/objects/info/alternates").write_text("../../../origin/.git/objects\n")
    make_repo.git(root, "branch", "topic")
    return root, root / ".git"


def sha256(make_repo, folder: Path) -> tuple[Path, Path]:
    root = folder / "sha256"
    root.mkdir()
    make_repo.git(root, "init", "-q", "--object-format=sha256")
    make_repo.write(root, FILES)
    return marked(make_repo, make_repo.commit(root)), root / ".git"


def shallow(make_repo, folder: Path) -> tuple[Path, Path]:
    origin = make_repo(FILES, "origin")
    make_repo.commit(origin)
    make_repo.git(folder, "clone", "-q", "--depth=1", origin.as_uri(), "shallow")
    make_repo.git(folder / "shallow", "branch", "topic")
    make_repo.git(folder / "shallow", "tag", "kept")
    return folder / "shallow", folder / "shallow/.git"


def hooks_outside(make_repo, folder: Path) -> tuple[Path, Path]:
    """Hooks in a folder that several repositories share."""
    root, common = plain(make_repo, folder)
    shared = folder / "shared-hooks"
    make_repo.write(shared, {"commit-msg": "#!/bin/sh\nexit 0\n"})
    make_repo.git(root, "config", "core.hooksPath", str(shared))
    (root / ".git/hooks/linked").symlink_to(shared / "commit-msg")
    return root, common


KINDS = [plain, linked, submodule, bare, borrowing, sha256, shallow, hooks_outside]


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "applied"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_check_that_writes_to_git_writes_to_its_copy(
    make_repo,
    repairs: Repairs,
    tmp_path: Path,
    temporary_root: Path,
    kind: Callable[..., tuple[Path, Path]],
    dry_run: bool,
) -> None:
    root, common = kind(make_repo, tmp_path)
    if kind not in (borrowing, shallow, submodule):
        make_repo.git(root, "rev-parse", "--verify", "kept")
    elif kind is borrowing:
        make_repo.git(root, "tag", "-f", "kept")
    skipped = {str(temporary_root.relative_to(tmp_path)), str(common.relative_to(tmp_path))}

    def outside() -> dict[str, object]:
        """All else that the user has, tree and neighbours included."""
        own = os.path.relpath(root / "program.py", tmp_path)
        return {
            path: entry
            for path, entry in tree(tmp_path, skip="").items()
            if path != own and not any(path.startswith(s) for s in skipped)
        }

    before, around = git_state(common), outside()
    result = repairs.run(root, dry_run=dry_run)
    assert (result.status, result.applied) == ("fixed", not dry_run), result
    assert (root / "program.py").read_text() == (PROGRAM if dry_run else FIXED)
    assert not (wrong := differences(before, git_state(common))), sorted(wrong)
    assert outside() == around


def remote_name(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "backup", str(remote))
    return ["backup"]


def remote_address(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "backup", str(remote))
    return [str(remote)]


def file_address(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "backup", remote.as_uri())
    make_repo.git(root, "config", "remote.pushDefault", "backup")
    return [remote.as_uri()]


def push_address(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "up.stream", "https://localhost/none")
    make_repo.git(root, "config", "remote.up.stream.pushurl", str(remote))
    return ["up.stream"]


def rewritten_address(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "backup", "short:remote.git")
    make_repo.git(root, "config", f"url.{remote.parent}/.insteadOf", "short:")
    make_repo.git(root, "config", f"url.{remote.parent}/.pushInsteadOf", "short:")
    return ["backup"]


def relative(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "remote", "add", "backup", "../remote.git")
    return ["backup"]


def branchs_own(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.git(root, "config", "branch.main.pushRemote", str(remote))
    make_repo.git(root, "config", "branch.main.remote", str(remote))
    return []


def old_fashioned(make_repo, root: Path, remote: Path) -> list[str]:
    make_repo.write(root, {".git/remotes/backup": f"URL: {remote}\nPush: HEAD:main\n"})
    return ["backup"]


REMOTES = [
    remote_name,
    remote_address,
    file_address,
    push_address,
    rewritten_address,
    relative,
    branchs_own,
    old_fashioned,
]


@pytest.mark.parametrize("kind", REMOTES, ids=lambda kind: kind.__name__)
def test_nothing_is_pushed_to_a_repository_on_this_machine(
    make_repo, repairs: Repairs, tmp_path: Path, kind: Callable[..., list[str]]
) -> None:
    """The network is cut; a path needs none."""
    remote = tmp_path / "remote.git"
    make_repo.git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote.git")
    push = ["git", "-c", "push.default=current", "push", "-q", "--force"]
    root = make_repo({**BROKEN, "a.txt": ""})
    make_repo.git(root, "branch", "-q", "-M", "main")
    words = kind(make_repo, root, remote)
    command = [*push, *words, *(["HEAD:refs/heads/main"] if words else [])]
    make_repo.write(root, {"push.py": f"import subprocess\nsubprocess.run({command!r})\n"})
    make_repo.write(root, {"check.py": "import push\n" + TESTS})
    make_repo.commit(root)
    before = tree(remote, skip="")
    repairs.fixed(root, {"program.py": FIXED})
    assert tree(remote, skip="") == before
    subprocess.run(command, cwd=root, check=True)
    assert tree(remote, skip="") != before, "the command itself does push: the trap works"
