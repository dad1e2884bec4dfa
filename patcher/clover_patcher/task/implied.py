"""What a request brings along besides the check: where the fault is, and which check it means."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from clover_patcher.check.lints import check_for
from clover_patcher.errors import UsageError
from clover_patcher.task.tracebacks import named_tests
from clover_patcher.types import Diagnostic


def implied_check(diagnostics: Iterable[Diagnostic], traceback: str, cwd: str) -> str:
    """The command that repeats a diagnostic or a traceback's tests, where no check was given.

    Raises `UsageError` where nothing says how to validate a patch.
    """
    for diagnostic in diagnostics:
        if (command := check_for(diagnostic, cwd)) is not None:
            return command
    if words := named_tests(traceback):
        return shlex.join(words)
    if traceback:
        raise UsageError(
            "the traceback does not say how to run the program again, which validating a patch "
            "needs: give the command as --check"
        )
    raise UsageError("nothing says when a patch is right: give the failing command as --check")
