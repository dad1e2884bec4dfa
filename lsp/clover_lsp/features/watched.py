"""What the client sees change: files on disk, the focused document, diagnostics of others.

No watchers are asked for: some clients put a watch on every folder below the root. The context
room watches by itself; a client that sends `workspace/didChangeWatchedFiles` anyway is heard.

Diagnostics of other servers reach us with code actions only. A client that can may send
``clover/didChangeDiagnostics {uri, diagnostics}`` whenever they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from clover_lsp.documents.documents import uri_path
from clover_lsp.features.diagnostics import read_problems
from clover_lsp.server import CloverServer

FOCUS = "textDocument/didFocus"
DIAGNOSTICS = "clover/didChangeDiagnostics"


@dataclass(frozen=True, slots=True)
class _Watched:
    server: CloverServer

    def files(self, params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path for c in params.changes if (path := uri_path(c.uri)) is not None]
        self.server.guard(self.server.context.files_changed, paths)

    def focused(self, params: Any) -> None:
        document = params.get("textDocument") if isinstance(params, dict) else None
        uri = document.get("uri") if isinstance(document, dict) else None
        snapshot = self.server.documents.get(uri) if isinstance(uri, str) else None
        if snapshot is not None:
            self.server.guard(self.server.context.focused, snapshot.uri)
            self.server.show_engine(snapshot.language)
            self.server.buffers.tell_size(snapshot)

    def diagnosed(self, params: Any) -> None:
        if not isinstance(params, dict) or not isinstance(params.get("diagnostics"), list):
            return
        problems = list(read_problems(params["diagnostics"]))
        self.server.guard(self.server.context.diagnosed, str(params.get("uri")), problems)


def register(server: CloverServer) -> None:
    watched = _Watched(server)
    server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(watched.files)
    server.feature(FOCUS)(watched.focused)
    server.feature(DIAGNOSTICS)(watched.diagnosed)
