"""What a run sees beside the copied files: parts of the user's tree, mounted copy-on-write.

Loaded by path beside `server.py`; standard library only, syntax of Python 3.8. All mounts are in a
mount namespace of the server's own and end with it. Three things are mounted, each an overlay
whose writable layer is a temporary folder, so that nothing written through it reaches the user:

- folders that were not copied (environments, large ignored folders, nested repositories);
- the folder around the repository, around the copy: `../shared/x.json` is there;
- the repository at its own path: an absolute path into it reads the user's files, and what is
  written there stays in the temporary layer.

Single large files are bound read-only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from typing import Any

_RDONLY, _REMOUNT, _BIND, _REC = 0x1, 0x20, 0x1000, 0x4000
_KEPT_FLAGS = 0x2 | 0x4 | 0x8  # nosuid, nodev, noexec: may not be dropped in a user namespace


def arrange(view: dict[str, Any], unprivileged: bool) -> list[str]:
    """Mounts what `view` names; the names that could not be mounted.

    `view` has "root" (the repository), "tree" (the copy), "scratch" (an existing folder of the
    server's own) and "names" (paths below the root that were not copied; ".." is the folder
    around it).
    """
    arranger = _Arranger(view, unprivileged)
    around = arranger.around()  # first: it covers the copy
    left = [n for n in view["names"] if not (around if n == ".." else arranger.bring(n))]
    arranger.protect()
    return left


class _Arranger:
    def __init__(self, view: dict[str, Any], unprivileged: bool) -> None:
        self.root, self.tree, self.scratch = view["root"], view["tree"], view["scratch"]
        self.options = ",userxattr" if unprivileged else ""
        self.points = _mount_points()
        self.count = 0

    def around(self) -> bool:
        """The folder around the repository, around the copy."""
        outside, parent = os.path.dirname(self.tree), os.path.dirname(self.root)
        if os.path.basename(self.tree) != os.path.basename(self.root) or parent == self.root:
            return False
        hold = self._folder("hold")
        try:
            _mount(self.tree, hold, None, _BIND | _REC)
        except OSError:
            return False
        if not self._overlay(parent, outside):
            return False
        try:
            _mount(hold, self.tree, None, _BIND | _REC)
        except OSError:
            _unmount(outside)
            return False
        return True

    def bring(self, name: str) -> bool:
        """One path that was not copied."""
        old, new = os.path.join(self.root, name), os.path.join(self.tree, name)
        try:
            if os.path.islink(old):
                return False
            if os.path.isdir(old):
                os.makedirs(new, exist_ok=True)
                return self._overlay(old, new)
            os.makedirs(os.path.dirname(new), exist_ok=True)
            listens = stat.S_ISSOCK(os.lstat(old).st_mode)
            if listens and os.path.islink(new):
                os.unlink(new)  # an overlay at the other end of the link would not connect
            with open(new, "ab"):
                pass
            if self._bind_read_only(old, new):
                return True
            os.unlink(new)
            if listens:
                os.symlink(old, new)
        except OSError:
            pass
        return False

    def protect(self) -> None:
        """The repository at its own path; left alone where other mounts are inside of it."""
        if not any(point.startswith(self.root + os.sep) for point in self.points):
            self._overlay(self.root, self.root)

    def _overlay(self, lower: str, target: str) -> bool:
        if any(point.startswith(lower + os.sep) for point in self.points):
            return False  # an overlay would show empty folders there
        upper, work = self._folder("upper"), self._folder("work")
        options = f"lowerdir={_escaped(lower)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        with contextlib.suppress(OSError):
            os.chmod(upper, os.stat(lower).st_mode & 0o7777)
            _mount("overlay", target, "overlay", 0, options + self.options)
            return True
        return False

    def _bind_read_only(self, old: str, new: str) -> bool:
        try:
            _mount(old, new, None, _BIND)
        except OSError:
            return False
        kept = os.statvfs(new).f_flag & _KEPT_FLAGS
        try:
            _mount(None, new, None, _BIND | _REMOUNT | _RDONLY | kept)
        except OSError:
            _unmount(new)
            return False
        return True

    def _folder(self, name: str) -> str:
        while True:
            path = os.path.join(self.scratch, name + str(self.count))
            self.count += 1
            with contextlib.suppress(FileExistsError):
                os.makedirs(path)
                return path


def _escaped(path: str) -> str:
    for char in "\\:,":
        path = path.replace(char, "\\" + char)
    return path


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo") as file:
        return [line.split(" ")[4].replace("\\040", " ") for line in file]


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [os.fsencode(word) if word is not None else None for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _unmount(target: str) -> None:
    ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(target), 2)
