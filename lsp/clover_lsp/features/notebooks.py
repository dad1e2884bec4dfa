"""Keeps notebooks as the client has them; cells are documents like any other."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types

from clover_lsp.documents.notebooks import cells_of
from clover_lsp.server import CloverServer


@dataclass(frozen=True, slots=True)
class _Sync:
    server: CloverServer

    def opened(self, params: types.DidOpenNotebookDocumentParams) -> None:
        self.server.notebooks.open(params.notebook_document)
        for item in params.cell_text_documents:
            self.server.buffers.open(item, params.notebook_document.uri)

    def changed(self, params: types.DidChangeNotebookDocumentParams) -> None:
        notebook = self.server.notebooks.get(params.notebook_document.uri)
        cells = params.change.cells
        if notebook is None or cells is None:
            return
        if cells.structure is not None:
            array = cells.structure.array
            notebook.splice(array.start, array.delete_count, cells_of(array.cells or ()))
            for item in cells.structure.did_open or ():
                self.server.buffers.open(item, notebook.uri)
            for identifier in cells.structure.did_close or ():
                self.server.buffers.close(identifier.uri)
        for content in cells.text_content or ():
            document = content.document
            self.server.buffers.change(document.uri, document.version, content.changes)

    def closed(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self.server.notebooks.close(params.notebook_document.uri)
        for identifier in params.cell_text_documents:
            self.server.buffers.close(identifier.uri)

    def saved(self, params: types.DidSaveNotebookDocumentParams) -> None:
        self.server.guard(self.server.context.saved, params.notebook_document.uri)


def register(server: CloverServer) -> None:
    sync = _Sync(server)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)(sync.opened)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)(sync.changed)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)(sync.closed)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)(sync.saved)
