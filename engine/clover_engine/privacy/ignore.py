"""Which files nobody may read (secrets, ignored ones), and which are not worth indexing.

Four layers, the first that decides wins:

1. secret files (`SECRET_GLOBS`): always withheld, whatever any other rule says;
2. the user's own globs: withheld. They add to the defaults, they cannot replace them;
3. `.cloverignore` (same syntax as `.gitignore`, also nested; `!` brings back what git ignores);
4. `.gitignore` files from the repository's top down, `.git/info/exclude`, the user's
   `~/.config/git/ignore`.

Lock files and minified files (`UNFIT_GLOBS`) are withheld too: nothing good comes of completing
them. `VENDORED` folders are only left out of the index.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_ANY_FOLDER = "(?P<ps_d>/)"
"""What pathspec makes of `*/`."""
_SECRET_GLOBS_TEXT = """
.env .env.* *.env .envrc .netrc _netrc .npmrc .pypirc .pgpass .my.cnf .htpasswd .dockercfg
.git-credentials .vault-token .boto .s3cfg kubeconfig *.kubeconfig *.pem *.key *.p12 *.pfx *.jks
*.keystore *.kdbx *.ppk *.asc *.gpg *.age id_rsa* id_dsa* id_ecdsa* id_ed25519* credentials
credentials.json credentials.y*ml credentials.ini credentials.xml secrets.y*ml secrets.json
secrets.toml secrets.env *.secret *.secrets service-account*.json *serviceaccount*.json
client_secret*.json *.tfvars *.tfstate *.tfstate.* terraform.rc .terraformrc auth.json
master.key *.ovpn
"""
SECRET_GLOBS = tuple(_SECRET_GLOBS_TEXT.split())
SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud"})
_UNFIT_GLOBS_TEXT = """
*.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json *.min.js *.min.css *.min.mjs *.map
*.bundle.js *.pb.go *_pb2.py *_pb2_grpc.py
"""
UNFIT_GLOBS = tuple(_UNFIT_GLOBS_TEXT.split())
_DATA_SUFFIXES_TEXT = """
.json .jsonl .csv .tsv .svg .snap .ipynb .po .pot .log .sql .txt .xml .geojson .sum
"""
DATA_SUFFIXES = frozenset(_DATA_SUFFIXES_TEXT.split())
"""Seldom code: not indexed, but read where the user works in one."""
EXAMPLES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})
"""Made to be read."""
_VENDORED_TEXT = """
.git .hg .svn node_modules bower_components .venv venv __pycache__ site-packages .tox .nox
.mypy_cache .ruff_cache .pytest_cache .hypothesis .eggs .gradle .idea .next .nuxt .terraform
third_party vendor vendored .yarn .pnpm-store
"""
VENDORED = frozenset(_VENDORED_TEXT.split())


@cache
def _globs(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(name) for name in names), re.IGNORECASE)


def secret_file(path: str) -> bool:
    """Whether a path names a file that holds secrets by convention."""
    *folders, name = path.replace(os.sep, "/").split("/")
    if name.lower() in EXAMPLES or name.endswith(".pub"):
        return False
    if any(folder.lower() in SECRET_FOLDERS for folder in folders):
        return True
    return _globs(SECRET_GLOBS).match(name) is not None


def unfit_file(path: str) -> bool:
    """Whether a path names a generated file that is not written by hand."""
    name = path.replace(os.sep, "/").rpartition("/")[2]
    return _globs(UNFIT_GLOBS).match(name) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the walk; `path` is relative with posix separators."""

    path: str
    mtime_ns: int
    size: int


class IgnoreRules:
    """The rules of one root, read from its files. Make a new one when such a file changes."""

    def __init__(self, root: Path, exclude: Sequence[str] = ()) -> None:
        self.root = root
        self._user = _Patterns(exclude)
        self._clover: dict[str, _Patterns | None] = {}
        self._git: dict[str, _Patterns | None] = {}
        self._folders: dict[str, str] = {"": ""}
        self._above = _above(root)

    def reason(self, path: str) -> str:
        """Why the file at this relative path may not be read, in words; "" if it may."""
        if secret_file(path):
            return f"{path} is a file for secrets"
        folder, _, name = path.rpartition("/")
        inherited = self._folder(folder)
        if inherited:
            return inherited
        if unfit_file(name):
            return f"{path} is a lock file or generated"
        return self._decide(path)

    def walk(self) -> Iterator[Found]:
        """All files that may be read and are worth indexing; links are not followed."""
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(self.root / folder) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in listed:
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if self.enters(path):
                            pending.append(path)
                    elif self._indexed(entry, path):
                        stat = entry.stat(follow_symlinks=False)
                        yield Found(path, stat.st_mtime_ns, stat.st_size)
                except OSError:
                    continue

    def _indexed(self, entry: os.DirEntry[str], path: str) -> bool:
        data = os.path.splitext(entry.name)[1].lower() in DATA_SUFFIXES
        return not data and entry.is_file(follow_symlinks=False) and not self.reason(path)

    def folders(self) -> Iterator[str]:
        """All folders of the walk, the root ("") first."""
        pending = [""]
        while pending:
            folder = pending.pop()
            yield folder
            try:
                with os.scandir(self.root / folder) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False) and self.enters(path):
                            pending.append(path)
            except OSError:
                continue

    def enters(self, folder: str) -> bool:
        """Whether the walk goes into a folder whose parent it went into."""
        return folder.rpartition("/")[2] not in VENDORED and not self._folder(folder)

    def _folder(self, folder: str) -> str:
        known = self._folders.get(folder)
        if known is None:
            parent, _, name = folder.rpartition("/")
            known = self._folder(parent)
            if not known and name.lower() in SECRET_FOLDERS:
                known = f"{folder} is a folder for secrets"
            known = self._folders[folder] = known or self._decide(folder + "/")
        return known

    def _decide(self, path: str) -> str:
        """What the user's globs and the ignore files say; folders end with "/"."""
        if self._user.verdict(path):
            return f"{path} is excluded by the settings"
        by_clover = self._ask(".cloverignore", self._clover, path)
        if by_clover is not None:
            return f"{path} is ignored by .cloverignore" if by_clover else ""
        if self._ask(".gitignore", self._git, path):
            return f"{path} is ignored by git"
        for prefix, spec in self._above:
            verdict = spec.verdict(prefix + path)
            if verdict is not None:
                return f"{path} is ignored by git" if verdict else ""
        return ""

    def _ask(self, name: str, specs: dict[str, _Patterns | None], path: str) -> bool | None:
        """The verdict of the nearest ignore file that has one."""
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            if folder not in specs:
                specs[folder] = _read(self.root / folder / name)
            spec = specs[folder]
            if spec is not None:
                verdict = spec.verdict(path[len(folder) + 1 if folder else 0 :])
                if verdict is not None:
                    return verdict
        return None


def _above(root: Path) -> list[tuple[str, _Patterns]]:
    """Rules from outside the root, nearest first, each with what goes before a relative path."""
    found: list[tuple[str, _Patterns]] = []
    top = next((p for p in (root, *root.parents) if (p / ".git").exists()), None)
    if top is not None:
        for folder in (root, *root.parents):
            prefix = "" if folder == root else root.relative_to(folder).as_posix() + "/"
            names = [".gitignore"] if folder != root else []
            names += [".git/info/exclude"] if folder == top else []
            for name in names:
                spec = _read(folder / name)
                if spec is not None:
                    found.append((prefix, spec))
            if folder == top:
                break
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    spec = _read(Path(home) / "git" / "ignore")
    if spec is not None:
        prefix = "" if top in (None, root) else root.relative_to(top).as_posix() + "/"
        found.append((prefix, spec))
    return found


class _Patterns:
    """The patterns of one ignore file, asked about one level of a path at a time, as git does.

    `GitIgnoreSpec.check_file` takes a match of a parent folder for one of the file, so that
    `*`, `!*/`, `!*.md` would ignore `api/x.md`.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec

        patterns: list[Any] = []
        for line in lines:
            try:
                patterns += GitIgnoreSpec.from_lines([line]).patterns
            except ValueError:
                continue  # git has no use for a malformed line either
        self._patterns = [p for p in reversed(patterns) if p.include is not None]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def verdict(self, path: str) -> bool | None:
        """Ignored, brought back, or not mentioned; folders end with "/"."""
        for pattern in self._patterns:
            if pattern.regex.pattern == _ANY_FOLDER:
                if path.endswith("/"):
                    return bool(pattern.include)
                continue
            found = pattern.match_file(path)
            if found is None:
                continue
            folder = found.match.groupdict().get("ps_d")
            if not folder or found.match.end("ps_d") == len(path):
                return bool(pattern.include)
        return None


def _read(path: Path) -> _Patterns | None:
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return None
    return _Patterns(text.splitlines()) or None
