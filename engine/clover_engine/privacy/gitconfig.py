"""What git's configuration says about ignored files, asked of git itself.

Git knows its own rules: included files, `includeIf`, configuration of a worktree, of the system and
of the environment. Where git cannot be run, its defaults stand.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 5.0
_NAMES = r"^core\.(excludesfile|ignorecase)$"
_FALSE = frozenset({"", "false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class GitIgnoreConfig:
    """The file with the user's own patterns (None: none), and whether case counts in patterns."""

    excludes: Path | None
    ignores_case: bool


def read_git_config(folder: Path) -> GitIgnoreConfig:
    """What counts in `folder`, which need not be in a repository. Takes some milliseconds."""
    said = _ask(folder)
    excludes = said.get("core.excludesfile")
    if excludes is None:
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        file: Path | None = Path(home) / "git" / "ignore"
    else:
        file = folder / os.path.expanduser(excludes) if excludes else None
    case = said.get("core.ignorecase")
    blind = _is_case_blind(folder) if case is None else case.lower() not in _FALSE
    return GitIgnoreConfig(file, blind)


def info_exclude(folder: Path) -> Path | None:
    """`info/exclude` of the repository whose working tree begins at `folder`; None where none
    does. A worktree shares the file with the others of its repository."""
    git = folder / ".git"
    try:
        if git.is_file():
            text = git.read_text("utf-8", "replace").strip()
            git = folder / text.removeprefix("gitdir:").strip()
            common = git / "commondir"
            if common.is_file():
                git = git / common.read_text("utf-8", "replace").strip()
        return git / "info" / "exclude" if git.is_dir() else None
    except OSError:
        return None


def _ask(folder: Path) -> dict[str, str]:
    """The last value of each name; one without a value is true."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_CONFIG", "GIT_EXEC_PATH"))
    }
    for where in ([], ["--global"]):  # a repository that git refuses still has its user's settings
        try:
            done = subprocess.run(
                ["git", "config", *where, "-z", "--get-regexp", _NAMES],
                cwd=folder, env=environ, timeout=_TIMEOUT_S, check=False,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return {}
        if done.returncode in (0, 1):
            break
    found: dict[str, str] = {}
    for entry in os.fsdecode(done.stdout).split("\0"):
        name, newline, value = entry.partition("\n")
        if name:
            found[name] = value if newline else "true"
    return found


def _is_case_blind(folder: Path) -> bool:
    """Whether the file system takes a name in other letters for the same."""
    swapped = folder.with_name(folder.name.swapcase()) if folder.name else folder
    try:
        return swapped != folder and os.path.samefile(folder, swapped)
    except OSError:
        return False
