"""What a request brings along besides the check: where the fault is, and which check it means."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import UsageError
from .lints import check_for
from .types import Diagnostic


def implied_check(diagnostics: Iterable[Diagnostic], cwd: str) -> str:
    """The command that repeats a diagnostic, where no check was given.

    Raises `UsageError` where nothing says how to validate a patch.
    """
    for said in diagnostics:
        if (command := check_for(said, cwd)) is not None:
            return command
    raise UsageError("nothing says when a patch is right: give the failing command as --check")
