"""Notebooks: the order of their cells, and the other cells' code as text around a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lsprotocol import types

from clover_lsp.documents.documents import Documents, Snapshot
from clover_lsp.documents.text import main_line_end


@dataclass
class Notebook:
    """One open notebook; cells in order as (is code, URI of the cell's document)."""

    uri: str
    cells: list[tuple[bool, str]] = field(default_factory=list)

    def splice(self, start: int, count: int, cells: list[tuple[bool, str]]) -> None:
        """Replaces cells; numbers outside the notebook are moved into it."""
        start = min(max(0, start), len(self.cells))
        self.cells[start : start + max(0, count)] = cells


class Notebooks:
    """All open notebooks. The cells' texts are in `Documents`, under the cells' own URIs."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._open: dict[str, Notebook] = {}

    def open(self, document: types.NotebookDocument) -> Notebook:
        notebook = Notebook(document.uri, cells_of(document.cells))
        self._open[document.uri] = notebook
        return notebook

    def get(self, uri: str) -> Notebook | None:
        return self._open.get(uri)

    def close(self, uri: str) -> Notebook | None:
        return self._open.pop(uri, None)

    def around(self, cell: Snapshot) -> tuple[str, str]:
        """The code before and after the cell, each with a line break towards the cell.

        Cells of another language and cells that are not code do not count.
        """
        notebook = next((n for n in self._open.values() if _holds(n, cell.uri)), None)
        if notebook is None:
            return "", ""
        uris = [uri for _, uri in notebook.cells]
        at = uris.index(cell.uri)
        before = self._code(notebook.cells[:at], cell.language)
        after = self._code(notebook.cells[at + 1 :], cell.language)
        end = main_line_end(cell.text)
        return (
            "".join(text + end for text in before),
            "".join(end + text for text in after),
        )

    def _code(self, cells: list[tuple[bool, str]], language: str) -> list[str]:
        found = (self._documents.get(uri) for is_code, uri in cells if is_code)
        return [s.text for s in found if s is not None and s.language == language and s.text]


def cells_of(cells: Sequence[types.NotebookCell]) -> list[tuple[bool, str]]:
    return [(cell.kind == types.NotebookCellKind.Code, cell.document) for cell in cells]


def _holds(notebook: Notebook, uri: str) -> bool:
    return any(cell == uri for _, cell in notebook.cells)
