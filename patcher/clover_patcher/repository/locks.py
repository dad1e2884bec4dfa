"""Locks on files that end with the process that holds them."""

from __future__ import annotations

import errno
import sys

from clover_patcher.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUPPORTED = "Linux and macOS"


def require_supported() -> None:
    """Raises `UsageError` on systems where checks cannot be run and files cannot be locked."""
    if fcntl is None:
        raise UsageError(
            f"repairs run on {SUPPORTED}, not on {sys.platform}: on Windows, run this in WSL"
        )


def try_lock(descriptor: int) -> bool:
    """Locks an open file for this process and those that inherit it; False where another has it.

    Raises `OSError` where files cannot be locked at all, `UsageError` as `require_supported` does.
    """
    require_supported()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
