"""The protocol's diagnostics as ours: typed, as in requests, or as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from lsprotocol import types

from clover_lsp.context.types import Problem

Severity = Literal["error", "warning", "information", "hint"]
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning", 3: "information", 4: "hint"}


def problem_of(diagnostic: types.Diagnostic) -> Problem:
    code = diagnostic.code
    severity = diagnostic.severity or types.DiagnosticSeverity.Error
    return Problem(
        diagnostic.range.start.line,
        str(getattr(diagnostic.message, "value", diagnostic.message)),
        _SEVERITIES.get(severity.value, "error"),
        diagnostic.source or "",
        "" if code is None else str(code),
    )


def read_problems(diagnostics: Iterable[Any]) -> Iterable[Problem]:
    """Diagnostics as plain JSON; what is malformed is left out."""
    for raw in diagnostics:
        try:
            line = int(raw["range"]["start"]["line"])
            message = str(raw["message"])
            severity = _SEVERITIES.get(raw.get("severity", 1), "error")
            source, code = str(raw.get("source") or ""), str(raw.get("code") or "")
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        yield Problem(line, message, severity, source, code)
