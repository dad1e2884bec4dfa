"""Which files below a folder may not be read.

Four layers, the first that decides wins:

1. secret files (`names.py`): always withheld, whatever any other rule says;
2. the user's own globs: withheld. They add to the defaults, they cannot replace them;
3. `.cloverignore` (same syntax as `.gitignore`, also nested; `!` brings back what git ignores);
4. `.gitignore`, nested too, `.git/info/exclude`, and the file that `core.excludesFile` names or
   else `~/.config/git/ignore`.

Ignore files count from the file's own folder up to the top of the repository; where there is no
repository, up to the home folder. Git ignores no file that it tracks; here it is withheld all the
same. Lock files and minified ones are withheld too: nothing good comes of completing them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clover_engine.privacy.gitconfig import GitIgnoreConfig, info_exclude, read_git_config
from clover_engine.privacy.names import SECRET_FOLDERS, secret_file, unfit_file
from clover_engine.privacy.patterns import Patterns, read_patterns


def first_folder(folder: Path) -> Path:
    """The folder from which on ignore files count for what is in `folder`: the top of its
    repository, else the home folder, else the root of the file system."""
    around = (folder, *folder.parents)
    top = next((each for each in around if (each / ".git").exists()), None)
    if top is not None:
        return top
    try:
        home = Path.home()
    except RuntimeError:  # nobody's
        return around[-1]
    return next((each for each in around if each in (home, home.resolve())), around[-1])


class IgnoreRules:
    """The rules of one root, read from its files. Make a new one when such a file changes."""

    def __init__(
        self, root: Path, exclude: Sequence[str] = (), config: GitIgnoreConfig | None = None
    ) -> None:
        """`config`: what `read_git_config(root)` says, where it is known already."""
        self.root = root
        self._first = first_folder(root)
        above = root.relative_to(self._first).as_posix()
        self._above = "" if above == "." else above + "/"
        config = read_git_config(root) if config is None else config
        self._ignores_case = config.ignores_case
        self._user = Patterns(exclude, self._ignores_case)
        self._global = (
            read_patterns(config.excludes, self._ignores_case) if config.excludes else None
        )
        self._clover: dict[str, tuple[Patterns, ...]] = {}
        self._git: dict[str, tuple[Patterns, ...]] = {}
        self._folders: dict[str, str] = {"": ""}

    def reason(self, path: str) -> str:
        """Why the file at this path below the root may not be read, in words; "" if it may."""
        if secret_file(path):
            return f"{path} is a file for secrets"
        full = self._above + path
        inherited = self._folder(full.rpartition("/")[0])
        if inherited:
            return inherited
        if unfit_file(path):
            return f"{path} is a lock file or generated"
        return self._decide(full)

    def folder_reason(self, folder: str) -> str:
        """Why nothing in a folder below the root may be read, in words; "" if it may."""
        return self._folder((self._above + folder).rstrip("/"))

    def _folder(self, folder: str) -> str:
        known = self._folders.get(folder)
        if known is None:
            parent, _, name = folder.rpartition("/")
            known = self._folder(parent)
            if not known and name.lower() in SECRET_FOLDERS:
                known = f"{self._shown(folder)} is a folder for secrets"
            known = self._folders[folder] = known or self._decide(folder + "/")
        return known

    def _decide(self, full: str) -> str:
        """What the user's globs and the ignore files say; folders end with "/"."""
        shown = self._shown(full)
        if full.startswith(self._above) and self._user.verdict(full[len(self._above) :]):
            return f"{shown} is excluded by the settings"
        by_clover = self._ask(full, self._clover, self._clover_files)
        if by_clover is not None:
            return f"{shown} is ignored by .cloverignore" if by_clover else ""
        by_git = self._ask(full, self._git, self._git_files)
        if by_git is None and self._global is not None:
            by_git = self._global.verdict(full)
        return f"{shown} is ignored by git" if by_git else ""

    def _shown(self, full: str) -> str:
        """A path as the user knows it: below the root, or whole."""
        inside = full.startswith(self._above) and full != self._above
        return full[len(self._above) :] if inside else str(self._first / full)

    def _ask(
        self,
        full: str,
        known: dict[str, tuple[Patterns, ...]],
        read: Callable[[Path], tuple[Patterns, ...]],
    ) -> bool | None:
        """The verdict of the nearest ignore file that has one."""
        folder = full.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            files = known.get(folder)
            if files is None:
                files = known[folder] = read(self._first / folder)
            for patterns in files:
                verdict = patterns.verdict(full[len(folder) + 1 if folder else 0 :])
                if verdict is not None:
                    return verdict
        return None

    def _clover_files(self, folder: Path) -> tuple[Patterns, ...]:
        return self._patterns(folder / ".cloverignore")

    def _git_files(self, folder: Path) -> tuple[Patterns, ...]:
        return self._patterns(folder / ".gitignore", info_exclude(folder))

    def _patterns(self, *paths: Path | None) -> tuple[Patterns, ...]:
        read = (read_patterns(path, self._ignores_case) for path in paths if path is not None)
        return tuple(patterns for patterns in read if patterns is not None)
