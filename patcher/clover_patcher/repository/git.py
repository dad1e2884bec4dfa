"""The only room that touches git: finding the repository, listing files, reading what is stored.

GitPython's command runner is used and nothing else of it: every call opens a short-lived
`Repo`, runs git in its folder, and closes it. Three rules hold for every command:

- variables `GIT_*` of the surrounding process (a hook that calls us, say) do not reach git;
- configuration of the repository that names programs (hooks, fsmonitor, transports) is
  overridden for the command, so that looking at a repository never runs its code;
- the user's index is never locked or refreshed, and no file is added, checked out or cleaned,
  so that content filters have no occasion to run.

The one exception is `run(..., as_user=True)`: a commit that the user asked for runs as if the user
had typed it, with their hooks, filters and configuration.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from clover_patcher.errors import UsageError

if TYPE_CHECKING:
    from git import Repo

OLDEST_GIT = (2, 31)
"""Older ones take no configuration from the environment (GIT_CONFIG_COUNT): the repository's own
programs would run."""

_KEPT = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
)
"""`GIT_*` variables that say where git and the user's own configuration are."""

_OVERRIDES = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}

_IDENTITY = tuple(
    f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")
)
_GITLINK = b"160000"
_environ_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Listing:
    """What stands in a working tree. Paths are relative, with posix separators."""

    files: tuple[str, ...]
    """Tracked files and untracked ones that no ignore rule covers, submodules included."""
    ignored: tuple[str, ...]
    """Ignored files, other repositories inside of this one, and empty folders; folders end
    with "/"."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with a working tree; `root` is the top of that tree, links resolved."""

    root: Path
    common_dir: Path
    """Where objects and worktree records live (`.git` of the main working tree)."""

    @classmethod
    def open(cls, start: Path) -> Repository:
        """Finds the repository around `start`.

        Raises `UsageError`: no repository, a bare one, one that git refuses, git not installed or
        too old.
        """
        require_git()
        with _repo(start, search=True) as repo:
            if _git(repo, "rev_parse", "--is-bare-repository").strip() == b"true":
                raise UsageError(
                    f"{start} is a bare repository: clone it and run the command in the clone"
                )
            top = _path(_git(repo, "rev_parse", "--show-toplevel"))
            common = _path(_git(repo, "rev_parse", "--path-format=absolute", "--git-common-dir"))
        return cls(top.resolve(), common.resolve())

    def listing(self) -> Listing:
        """Lists the working tree as git sees it, without touching the index."""
        files, ignored = _listed(self.root)
        return Listing(tuple(sorted(files)), tuple(sorted(ignored)))

    def head(self) -> str | None:
        """The commit that HEAD names; None where there is no commit yet."""
        with _repo(self.root) as repo:
            out = _git(repo, "rev_parse", "--verify", "--quiet", "HEAD^{commit}", check=False)
        return out.strip().decode() or None

    def run(self, command: str, *args: str, check: bool = True, as_user: bool = False) -> bytes:
        """Runs one git command at the top of the working tree and returns its standard output.

        Raises `UsageError` with git's first line of complaint, unless `check` is false.
        """
        with _repo(self.root) as repo:
            return _git(repo, command, *args, check=check, as_user=as_user)

    def committed_versions(self, limit: int, max_bytes: int) -> list[tuple[str, bytes]]:
        """(path, content in HEAD) of changed files, the latest change first.

        Looks at the `limit` files that were modified last, at most `max_bytes` large. Git is asked
        for stored objects only and never compares a file itself: that would run content filters.
        Empty where there is no commit yet.
        """
        found: list[tuple[str, bytes]] = []
        with _repo(self.root) as repo:
            tree = _git(repo, "ls_tree", "-r", "-z", "--full-tree", "HEAD", check=False)
            for path, blob in _latest(self.root, tree, limit, max_bytes):
                if int(_git(repo, "cat_file", "-s", blob)) <= max_bytes:
                    found.append((path, _git(repo, "cat_file", "blob", blob)))
        return found

    def git_dir(self) -> Path:
        """Where HEAD and the index of this working tree are: `common_dir`, or a part of it."""
        with _repo(self.root) as repo:
            return _path(_git(repo, "rev_parse", "--absolute-git-dir")).resolve()

    def head_name(self) -> str | None:
        """The branch that HEAD names, as a full ref, or else the commit; None for neither."""
        with _repo(self.root) as repo:
            out = _git(repo, "symbolic_ref", "--quiet", "HEAD", check=False)
        return out.strip().decode() or self.head()

    def point_head(self, name: str) -> None:
        """Lets HEAD name what `head_name` said. For copies of our own only."""
        with _repo(self.root) as repo:
            if name.startswith("refs/"):
                _git(repo, "symbolic_ref", "HEAD", name)
            else:
                _git(repo, "update_ref", "--no-deref", "HEAD", name)


def require_git() -> None:
    """Raises `UsageError` where git is missing, or older than `OLDEST_GIT`."""
    program = shutil.which("git")
    if program is None:
        raise UsageError("git was not found: install git and put it on PATH")
    info = os.stat(program)
    said = _version_of(program, info.st_mtime_ns, info.st_size)
    found = re.match(r"git version (\d+)\.(\d+)", said)
    if found is None:
        raise UsageError(f"{program} does not say its version ({said!r}): put git first on PATH")
    if (int(found[1]), int(found[2])) < OLDEST_GIT:
        wanted = ".".join(map(str, OLDEST_GIT))
        version = said.removeprefix("git version ")
        raise UsageError(f"git {version} is too old: install git {wanted} or newer ({program})")


@functools.cache
def _version_of(program: str, mtime_ns: int, size: int) -> str:
    """What a program of that time and size says of itself."""
    try:
        done = subprocess.run([program, "version"], capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as exc:
        return str(exc)
    return done.stdout.decode("utf-8", "replace").strip()


_IGNORED = ("--others", "--ignored", "--exclude-standard", "--directory")


def _listed(root: Path, prefix: str = "") -> tuple[set[str], set[str]]:
    """Files below `root` and what is ignored there, submodules that are checked out included."""
    with _repo(root) as repo:
        staged = _git(repo, "ls_files", "-z", "--cached", "--stage")
        others = _names(_git(repo, "ls_files", "-z", "--others", "--exclude-standard"))
        folders = _git(repo, "ls_files", "-z", "--others", "--exclude-standard", "--directory")
        ignored = _names(_git(repo, "ls_files", "-z", *_IGNORED))
    found: set[str] = set()
    besides = {prefix + name for name in ignored}
    for entry in filter(None, staged.split(b"\0")):
        info, _, raw = entry.partition(b"\t")
        name = os.fsdecode(raw)
        if not info.startswith(_GITLINK):
            found.add(prefix + name)
        elif (root / name / ".git").exists():
            inside, more = _listed(root / name, f"{prefix}{name}/")
            found |= inside
            besides |= more
    found.update(prefix + name for name in others if not name.endswith("/"))
    besides.update(prefix + name for name in others if name.endswith("/"))  # other repositories
    filled = {name[: name.index("/") + 1] for name in others if "/" in name}
    for name in _names(folders):
        if name.endswith("/") and name not in others and not _holds(name, others, filled):
            besides.add(prefix + name)
    return found, besides


def _holds(folder: str, names: Sequence[str], tops: set[str]) -> bool:
    """Whether one of the names is below the folder; `tops` are the first parts of the names."""
    if folder.partition("/")[0] + "/" not in tops:
        return False
    return any(name.startswith(folder) for name in names)


def _latest(root: Path, tree: bytes, limit: int, max_bytes: int) -> Iterator[tuple[str, str]]:
    """(path, object name) of files that differ from a tree, of those modified last."""
    stamped: list[tuple[int, str, str]] = []
    for entry in filter(None, tree.split(b"\0")):
        info, _, raw = entry.partition(b"\t")
        mode, _, blob = info.decode().split(" ")
        with suppress(OSError):
            stat = os.lstat(root / (name := os.fsdecode(raw)))
            if mode.startswith("100") and S_ISREG(stat.st_mode) and stat.st_size <= max_bytes:
                stamped.append((stat.st_mtime_ns, name, blob))
    for _, name, blob in sorted(stamped, reverse=True)[:limit]:
        with suppress(OSError):
            data = (root / name).read_bytes()
            hashed = hashlib.new("sha1" if len(blob) == 40 else "sha256", usedforsecurity=False)
            hashed.update(b"blob %d\0" % len(data) + data)
            if hashed.hexdigest() != blob:
                yield name, blob


@contextmanager
def _repo(path: Path, *, search: bool = False) -> Iterator[Repo]:
    """Opens a repository for a few commands and closes it again."""
    try:
        from git import InvalidGitRepositoryError, NoSuchPathError, Repo
    except ImportError as exc:
        raise UsageError("git was not found: install git and put it on PATH") from exc
    try:
        with _clean_environ():
            repo = Repo(path, search_parent_directories=search, expand_vars=False)
    except (InvalidGitRepositoryError, NoSuchPathError) as exc:
        raise UsageError(
            f"{path} is not in a git repository: run `git init` there, or go to one"
        ) from exc
    with repo:
        yield repo


def _git(
    repo: Repo,
    command: str,
    *args: str,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    as_user: bool = False,
) -> bytes:
    """Runs one git command and returns its standard output.

    Raises `UsageError` with git's first line of complaint, unless `check` is false.
    """
    from git import Git, GitCommandNotFound

    base = _user_environment() if as_user else _environment()
    where = Git(os.sep)(C=os.fspath(repo.working_dir))  # `repo.git` replaces $NAME in its folder
    with _clean_environ():
        try:
            status, out, complaint = getattr(where, command)(
                *args,
                env=base | dict(env or {}),
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
            )
        except GitCommandNotFound as exc:
            raise UsageError("git was not found: install git and put it on PATH") from exc
    if status and check:
        raise UsageError(_explain(repo, command, complaint, status))
    return bytes(out)


def _explain(repo: Repo, command: str, complaint: str, status: int) -> str:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    # a hook's words come without such a mark
    reasons = reasons or [line for line in lines if not line.startswith(("warning: ", "hint: "))]
    first = reasons[0].removeprefix("fatal: ") if reasons else f"it ended with code {status}"
    if "dubious ownership" in complaint:
        return (
            f"git does not trust {repo.working_dir}: its owner is someone else; "
            f"run `git config --global --add safe.directory '{repo.working_dir}'`"
        )
    return f"git {command.replace('_', '-')} failed: {first}"


def _environment() -> dict[str, str]:
    """What git gets on top of the cleaned environment."""
    env = {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",  # for git 2.44 and later
        "GIT_ALLOW_PROTOCOL": "",  # for all; unlike protocol.allow, nothing configured overrides it
        "GIT_CONFIG_COUNT": str(len(_OVERRIDES)),
    }
    for number, (key, value) in enumerate(_OVERRIDES.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


def _user_environment() -> dict[str, str]:
    """The same for a command of the user's: who they are, and no question that nobody answers."""
    known = {name: os.environ[name] for name in _IDENTITY if name in os.environ}
    return known | {"GIT_TERMINAL_PROMPT": "0"}


@contextmanager
def _clean_environ() -> Iterator[None]:
    """Takes `GIT_*` out of this process's environment while one command starts and runs."""
    with _environ_lock:
        taken = {
            name: os.environ.pop(name)
            for name in list(os.environ)
            if name.startswith("GIT_") and name not in _KEPT
        }
        try:
            yield
        finally:
            os.environ.update(taken)


def _names(output: bytes) -> list[str]:
    """File names of a command's `-z` output."""
    return [os.fsdecode(raw) for raw in output.split(b"\0") if raw]


def _path(output: bytes) -> Path:
    """The path in a command's output: everything before the final newline."""
    return Path(os.fsdecode(output.removesuffix(b"\n")))
