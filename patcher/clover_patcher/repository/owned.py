"""Folders of copies: made, locked, told from the user's own, and removed.

A folder is ours only if all of this holds: it is in a place where we make folders, is called as we
call them, belongs to this user, and its `owner.json`, a plain file of this user's, says that
this program made this very folder (its inode) under this name on this machine. That file is the
lock of the run, too; it is written before anything else is in the folder, and goes last.

Nothing is ever removed through a symbolic link.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clover_patcher.errors import UsageError
from clover_patcher.repository.locks import try_lock
from clover_patcher.repository.places import PREFIX, folders, is_folder_name

OWNER = "owner.json"
_FORMAT = "clover-code copies 1"
_REMOVERS = 2
_AGAIN_S = (0.0, 0.05, 0.2, 0.5)
_YOUNG_S = 60.0
"""A folder with nothing in it is left alone this long: its run may just be starting."""
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Claim:
    """A new folder of ours, and the descriptor whose lock says that it is in use."""

    folder: Path
    lock: int


def claim(parent: Path, root: Path) -> Claim:
    """Makes a locked folder in `parent` for copies of the working tree `root`.

    Raises `UsageError` where files cannot be locked there.
    """
    while True:
        folder = parent / f"{PREFIX}{secrets.token_hex(4)}"
        try:
            folder.mkdir(0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(folder / OWNER, flags, 0o600)
        except (FileExistsError, FileNotFoundError):  # the name is taken, or it was tidied away
            continue
        try:
            said = {**_identity(folder.name, folder.stat()), "root": str(root), "pid": os.getpid()}
            if not try_lock(lock):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            os.write(lock, json.dumps(said).encode())
        except OSError as exc:
            _remove_owner(folder)
            os.close(lock)
            raise UsageError(
                f"cannot lock files in {parent} ({exc.strerror}): set TMPDIR to another folder"
            ) from exc
        return Claim(folder, lock)


def release(claimed: Claim) -> None:
    """Removes a folder with all that is in it, and gives up its lock."""
    _remove(claimed.folder)
    os.close(claimed.lock)


def sweep(root: Path) -> None:
    """Removes folders that killed runs left behind, of copies of whatever repository."""
    for folder in folders(root):
        with suppress(OSError):
            remove_if_abandoned(folder)


def remove_if_abandoned(folder: Path) -> None:
    """Removes a folder that is ours and that no process uses any more; leaves all others alone."""
    info = folder.lstat()
    if not is_folder_name(folder.name) or not stat.S_ISDIR(info.st_mode):
        return
    if info.st_uid != os.getuid():
        return
    try:
        lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if _is_old(info):
            folder.rmdir()  # only if there is nothing in it
        return
    try:
        if not try_lock(lock):
            return
        if _is_ours(lock, folder, info):
            _remove(folder)
        elif os.fstat(lock).st_size == 0 and _is_old(info) and os.listdir(folder) == [OWNER]:
            _remove_owner(folder)  # a run that was killed before it wrote a byte
    finally:
        os.close(lock)


def remove_folders(folder: Path, keep: Path | None = None) -> None:
    """Removes the folders in a folder of ours, except `keep`."""
    with os.scandir(folder) as entries:
        inside = [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    with ThreadPoolExecutor(_REMOVERS) as threads:
        for child in inside:
            if child != keep:
                threads.submit(shutil.rmtree, child, onerror=_make_writable)


def _identity(name: str, info: os.stat_result) -> dict[str, Any]:
    machine = f"{platform.node()} {_machine_id()}".strip()
    return {"format": _FORMAT, "name": name, "inode": info.st_ino} | {
        "uid": os.getuid(),
        "machine": machine,
    }


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _is_ours(lock: int, folder: Path, info: os.stat_result) -> bool:
    owner = os.fstat(lock)
    if not stat.S_ISREG(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_nlink != 1:
        return False
    try:
        said = json.loads(os.pread(lock, _MOST_BYTES, 0))
    except ValueError:
        return False
    wanted = _identity(folder.name, info)
    return isinstance(said, dict) and {key: said.get(key) for key in wanted} == wanted


def _is_old(info: os.stat_result) -> bool:
    return time.time() - info.st_mtime > _YOUNG_S


def _remove(folder: Path) -> None:
    """Removes all but `owner.json`, then that: a removal that is killed can be taken up again.

    Programs of a check that were just killed may still write a file: what they leave is removed
    once more.
    """
    for pause_s in _AGAIN_S:
        time.sleep(pause_s)
        _empty(folder)
        if os.listdir(folder) == [OWNER]:
            _remove_owner(folder)
            return


def _empty(folder: Path) -> None:
    remove_folders(folder)
    with os.scandir(folder) as entries:
        rest = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
    for entry in rest:
        if entry.name != OWNER:
            os.unlink(entry)


def _remove_owner(folder: Path) -> None:
    os.unlink(folder / OWNER)
    folder.rmdir()


def _make_writable(retry: Callable[..., Any], path: str, _: object) -> None:
    """Tests may leave folders without write permission behind."""
    for folder in (os.path.dirname(path), path):
        with suppress(OSError):
            if stat.S_ISDIR(os.lstat(folder).st_mode):  # never a file: it may have other names
                os.chmod(folder, 0o700)
    with suppress(OSError):
        retry(path)
