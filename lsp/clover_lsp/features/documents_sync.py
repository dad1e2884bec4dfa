"""Keeps the documents as the client has them, and tells the context room."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from clover_lsp.documents.documents import folder_path
from clover_lsp.server import CloverServer

DEBUG_TEXT = "clover/debug/text"
"""Request for tests: `{uri}` → `{text, version, language}` of the open document, or null."""


@dataclass(frozen=True, slots=True)
class _Sync:
    server: CloverServer

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        self.server.buffers.open(params.text_document)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        self.server.buffers.change(document.uri, document.version, params.content_changes)

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        self.server.buffers.close(params.text_document.uri)

    def saved(self, params: types.DidSaveTextDocumentParams) -> None:
        self.server.guard(self.server.context.saved, params.text_document.uri)

    def folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = {_comparable(folder_path(folder.uri)) for folder in params.event.removed}
        come = [path for f in params.event.added if (path := folder_path(f.uri)) is not None]
        kept = [root for root in self.server.roots if _comparable(root) not in gone]
        self.server.set_roots(tuple(dict.fromkeys([*kept, *come])))
        self.server.guard(self.server.context.set_roots, self.server.roots)

    def debug_text(self, params: Any) -> dict[str, object] | None:
        uri = params.get("uri") if isinstance(params, dict) else None
        snapshot = self.server.documents.get(str(uri))
        if snapshot is None:
            return None
        return {
            "text": snapshot.text,
            "version": snapshot.version,
            "language": snapshot.language,
        }


def _comparable(folder: str | None) -> str:
    return os.path.normcase(folder or "")


def register(server: CloverServer) -> None:
    sync = _Sync(server)
    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(sync.opened)
    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(sync.changed)
    server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(sync.closed)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(sync.saved)
    server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(sync.folders)
    server.feature(DEBUG_TEXT)(sync.debug_text)
