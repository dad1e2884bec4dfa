"""The client's diagnostics, as it last told them: with a request for code actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary

from lsprotocol import types

from clover_lsp.context.types import Problem
from clover_lsp.documents.documents import Snapshot
from clover_lsp.server import CloverServer

_SEVERITIES: dict[types.DiagnosticSeverity, Literal["error", "warning", "information", "hint"]] = {
    types.DiagnosticSeverity.Error: "error",
    types.DiagnosticSeverity.Warning: "warning",
    types.DiagnosticSeverity.Information: "information",
    types.DiagnosticSeverity.Hint: "hint",
}


class Problems:
    """By document; those of another version are not given out. Event loop only."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int | None, tuple[Problem, ...]]] = {}

    def see(self, snapshot: Snapshot, diagnostics: Sequence[types.Diagnostic]) -> None:
        """Adds what is new; a request for code actions brings a part of a document's only."""
        version, known = self._seen.get(snapshot.uri, (None, ()))
        old = known if version == snapshot.version else ()
        new = tuple(problem_of(d) for d in diagnostics)
        self._seen[snapshot.uri] = (snapshot.version, tuple(dict.fromkeys(old + new)))

    def of(self, snapshot: Snapshot) -> tuple[Problem, ...]:
        version, known = self._seen.get(snapshot.uri, (None, ()))
        return known if version == snapshot.version else ()

    def forget(self, uri: str) -> None:
        self._seen.pop(uri, None)


_STORES: WeakKeyDictionary[CloverServer, Problems] = WeakKeyDictionary()


def problems(server: CloverServer) -> Problems:
    """The server's store."""
    store = _STORES.get(server)
    if store is None:
        store = _STORES[server] = Problems()
        server.buffers.on_close(store.forget)
    return store


def problem_of(diagnostic: types.Diagnostic) -> Problem:
    code = diagnostic.code
    severity = diagnostic.severity or types.DiagnosticSeverity.Error
    return Problem(
        diagnostic.range.start.line,
        str(getattr(diagnostic.message, "value", diagnostic.message)),
        _SEVERITIES.get(severity, "error"),
        diagnostic.source or "",
        "" if code is None else str(code),
    )
