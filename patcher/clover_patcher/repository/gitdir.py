"""A git directory for each copy of a working tree, so that nothing done to it reaches the user's.

Objects are borrowed through `objects/info/alternates` and never copied. All else is the copy's
own: refs, HEAD, index, configuration, hooks, `info`, logs. Code under test may tag, commit, stash,
configure, install hooks or collect garbage; the user's repository has no record of it.

What is different in a copy, and why:

- it is one whole repository, also where the original is a linked worktree, a submodule, or has its
  git directory elsewhere: settings that say so are left out;
- nothing can be pushed from it to a configured remote: the path of a remote on this machine
  is as good as its network address, and no network namespace cuts it off;
- no file monitor or cache of untracked files is used: theirs describe the original;
- there are no links in it: whoever wrote through one would write outside.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clover_patcher.repository.git import Repository
from clover_patcher.repository.gitconfig import Entry, copied, hooks_setting, parse, written

_MOST_LOOSE = 100
"""More loose refs than this are packed into one file; more logs than this are left out."""
_MOST_HOOKS, _HOOKS_BYTES = 500, 8 << 20
_OWN_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""Refs that each worktree has for itself."""
_OPERATIONS = ("rebase-merge", "rebase-apply", "sequencer")
_KEPT_LOGS = frozenset({"logs/HEAD", "logs/refs/stash"})
_SHARED = re.compile(r"sharedindex\.([0-9a-f]{40}|[0-9a-f]{64})")
_PIECE = 1 << 20
_HEX = frozenset(b"0123456789abcdef")

Files = dict[str, tuple[bytes, int]]
"""Path in a git directory: content and permission bits."""


@dataclass(frozen=True, slots=True)
class OwnGit:
    """What the git directory of every copy holds; taken from a repository once."""

    files: Files
    head: str | None
    """What HEAD names, where only git itself can write that down."""

    @classmethod
    def of(cls, repository: Repository) -> OwnGit:
        """Reads a repository's git directory; nothing of it is changed or run.

        Raises `UsageError` where git refuses the repository, `OSError` where HEAD cannot be read.
        """
        listed = repository.run("config", "--list", "-z", "--show-scope")
        common, own = repository.common_dir, repository.git_dir()
        entries = parse(listed)
        hooks, configured = _hooks(repository, entries)
        files = {
            **_state(own),
            **_refs(common, own),
            **_logs(common, own),
            **_folder(common / "info", "info"),
            **_folder(own / "info", "info"),
            **hooks,
        }
        for name in ("shallow", "description"):
            files |= _file(common / name, name)
        for name in _OPERATIONS:
            files |= _folder(own / name, name)
        files["config"] = written(copied(entries, repository.root) + configured), 0o644
        files["objects/info/alternates"] = _alternates(common / "objects"), 0o644
        tables = _folder(common / "reftable", "reftable")
        if not tables:
            return cls(files, None)
        files |= tables | _file(common / "HEAD", "HEAD")
        elsewhere = own != common
        return cls(files, repository.head_name() if elsewhere else None)

    def write(self, tree: Path) -> None:
        """Makes `tree`/.git. Raises `OSError` where it cannot be written."""
        top = os.path.join(tree, ".git")
        made = {""}
        for folder in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(top, folder))
        for name, (data, mode) in self.files.items():
            folder = os.path.dirname(name)
            if folder not in made:
                os.makedirs(os.path.join(top, folder), exist_ok=True)
                made.add(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = os.open(os.path.join(top, name), flags, mode | 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
            finally:
                os.close(handle)
        if self.head is not None:
            Repository(tree, Path(top)).point_head(self.head)


def _state(own: Path) -> Files:
    """HEAD, the index, and the files that say what operation is under way."""
    found: Files = {}
    with os.scandir(own) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        if name == "index" or (name.replace("_", "").isalpha() and name.isupper()):
            found |= _file(own / name, name)
    if os.path.islink(own / "HEAD"):  # as git wrote it long ago
        found["HEAD"] = b"ref: " + os.fsencode(os.readlink(own / "HEAD")) + b"\n", 0o644
    index = found.get("index", (b"", 0))[0]
    for name in names:
        match = _SHARED.fullmatch(name)
        if match and bytes.fromhex(match[1]) in index:
            found |= _file(own / name, name)
    return found


def _refs(common: Path, own: Path) -> Files:
    """Loose and packed refs. Loose ones are read first: git packs them before it removes them."""
    loose = _folder(common / "refs", "refs")
    if own != common:
        loose = {name: said for name, said in loose.items() if not name.startswith(_OWN_REFS)}
        loose |= _folder(own / "refs", "refs")
    packed = _file(common / "packed-refs", "packed-refs")
    if len(loose) <= _MOST_LOOSE:
        return loose | packed
    plain = {name: data for name, (data, _) in loose.items() if set(data.strip()) <= _HEX}
    rest = {name: said for name, said in loose.items() if name not in plain}
    merged = _packed(packed.get("packed-refs", (b"", 0))[0], plain)
    return rest | {"packed-refs": (merged, 0o644)}


def _packed(packed: bytes, loose: Mapping[str, bytes]) -> bytes:
    """`packed-refs` with the loose refs in it, which count more."""
    entries = packed.replace(b"\n^", b"\0^").split(b"\n")  # what a tag names belongs to it
    lines = {e.partition(b"\0")[0].partition(b" ")[2]: e for e in entries if e and e[:1] != b"#"}
    lines |= {os.fsencode(r): data.strip() + b" " + os.fsencode(r) for r, data in loose.items()}
    text = b"\n".join(lines[name] for name in sorted(lines)).replace(b"\0^", b"\n^")
    return b"# pack-refs with: sorted \n" + text + b"\n"


def _logs(common: Path, own: Path) -> Files:
    """What `git reflog` shows; where there is a lot, only HEAD's and the stash."""
    found = _small_folder(common / "logs", "logs", _MOST_LOOSE)
    if found is None:
        found = {}
        for name in _KEPT_LOGS:
            found |= _file(common / name, name)
    return found | _file(own / "logs/HEAD", "logs/HEAD")


def _hooks(repository: Repository, entries: Sequence[Entry]) -> tuple[Files, list[Entry]]:
    """The hooks that git would run, and the setting that makes it find them.

    A folder of hooks outside the working tree, shared with other repositories perhaps, is copied
    too: what is installed there must stay in the copy.
    """
    setting = hooks_setting(entries)
    if setting is None:
        return _only_hooks(_folder(repository.common_dir / "hooks", "hooks")), []
    folder = Path(os.path.expanduser(os.fsdecode(setting)))
    inside = folder.is_relative_to(repository.root)
    if not folder.is_absolute() or (inside and ".git" not in folder.parts):
        place = os.fsencode(os.path.relpath(folder, repository.root)) if inside else setting
        return {}, [Entry(b"core.hookspath", place)]
    found = _small_folder(folder, "hooks", _MOST_HOOKS)
    if found is None or sum(len(data) for data, _ in found.values()) > _HOOKS_BYTES:
        return {}, [Entry(b"core.hookspath", setting)]
    # relative to where hooks run, which is the top of the copy
    return _only_hooks(found), [Entry(b"core.hookspath", b".git/hooks")] if found else []


def _only_hooks(files: Files | None) -> Files:
    return {
        name: content for name, content in (files or {}).items() if not name.endswith(".sample")
    }


def _alternates(objects: Path) -> bytes:
    """The line that names a folder of objects; git reads what that folder borrows, too."""
    path = os.fsencode(os.path.realpath(objects))
    if path[:1] in b'"#' or b"\n" in path:
        for plain, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n")):
            path = path.replace(plain, escaped)
        path = b'"' + path + b'"'
    return path + b"\n"


def _folder(folder: Path, name: str) -> Files:
    """All files below a folder, as files `name`/… of a git directory."""
    return _small_folder(folder, name, None) or {}


def _small_folder(folder: Path, name: str, most: int | None) -> Files | None:
    """The same; None where it holds more than `most` files."""
    found: Files = {}
    top = os.path.realpath(folder)
    for at, _, names in os.walk(top):
        below = name + at[len(top) :]
        for file in names:
            found |= _file(f"{at}/{file}", f"{below}/{file}")
            if most is not None and len(found) > most:
                return None
    return found


def _file(path: Path | str, name: str) -> Files:
    """A plain file, or what a link to one shows; nothing for locks, and where there is none."""
    if name.endswith(".lock"):
        return {}
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return {}
        pieces = [os.read(handle, info.st_size + 1)]
        while pieces[-1]:
            pieces.append(os.read(handle, _PIECE))
        return {name: (b"".join(pieces), stat.S_IMODE(info.st_mode))}
    finally:
        os.close(handle)
