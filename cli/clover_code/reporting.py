"""How a subcommand ends that could not do what it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clover_code import fix_output as output
from clover_code.errors import UserError
from clover_engine.errors import CheckpointError, EngineError, EngineUnavailable, RequestCancelled

INTERRUPTED = 130


def reported(name: str, work: Callable[[], int], *, as_json: bool) -> int:
    """Runs a subcommand's work; its errors become a line, an object with `as_json`, and a code."""
    from clover_patcher.errors import PatcherError

    try:
        return work()
    except (PatcherError, EngineError, UserError) as exc:
        code = exit_code(exc)
        said = "interrupted" if isinstance(exc, RequestCancelled) else words(exc)
        output.say(said, name)
        if as_json:
            found: dict[str, Any] = {"schema": output.SCHEMA, "status": "error"}
            output.print_json(found | {"exit_code": code, "error": said})
        return code


def words(exc: Exception) -> str:
    """An exception in one line."""
    return " ".join(str(exc).split()) or type(exc).__name__


def exit_code(exc: Exception) -> int:
    """The code that a subcommand ends with."""
    from clover_patcher.errors import PatcherError

    if isinstance(exc, PatcherError):
        return exc.exit_code
    if isinstance(exc, RequestCancelled):
        return INTERRUPTED
    return 2 if isinstance(exc, CheckpointError | EngineUnavailable | UserError) else 1
