"""The patcher's exceptions; each carries the exit code that `clover-code fix` ends with.

::

    PatcherError
    ├── UsageError       2    not a git repository, check command not found
    │   └── CannotPass   2    the check fails in a way that no edit can mend
    ├── BaselineError    3    the check passes already, or fails differently each time
    ├── TreeChanged      4    a file changed between reading and writing
    ├── BudgetExceeded   124  the time budget ran out
    └── Cancelled        130  the caller asked to stop
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from clover_patcher.types import Outcome


class PatcherError(Exception):
    """Base of everything the patcher raises on purpose; messages are one line."""

    exit_code: ClassVar[int] = 1


class UsageError(PatcherError):
    exit_code = 2


class CannotPass(UsageError):
    """The check fails in a way that no edit of the program can mend; `outcome` is how it fails."""

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class BaselineError(PatcherError):
    exit_code = 3


class TreeChanged(PatcherError):
    exit_code = 4


class BudgetExceeded(PatcherError):
    exit_code = 124


class Cancelled(PatcherError):
    exit_code = 130


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def no_room(exc: OSError) -> UsageError | None:
    """What to say of a disk that takes no more; None for other errors."""
    if exc.errno not in _NO_ROOM:
        return None
    where = f" to {exc.filename}" if exc.filename else ""
    return UsageError(
        f"cannot write{where}: {exc.strerror}; make room, or set TMPDIR to a folder that has some"
    )
