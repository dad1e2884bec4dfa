"""The documents as the client has them: exact text, immutable snapshots, incremental changes.

Not pygls's workspace, which splits lines at characters that are no line ends for the protocol,
moves positions outside a line by one, and reads unopened files as UTF-8 only. Everything that the
client opened is here under the URI that the client uses: files, untitled documents, cells of
notebooks, any other scheme.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls import uris

from clover_engine.languages import language_of
from clover_engine.privacy.uris import to_path
from clover_lsp.context.types import Edit
from clover_lsp.documents.table import Table
from clover_lsp.documents.text import Encoding, join_pairs

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 8_000_000
"""Unopened files above this are not read."""
MAX_CHARS = 2_000_000
"""For larger documents nothing is suggested, and nothing but their text is kept."""

Change = types.TextDocumentContentChangePartial | types.TextDocumentContentChangeWholeDocument


class Snapshot:
    """One version of one document; immutable. `version` is None for a file that the client has
    not opened. `language` is the client's language id, a guess from the file name for unopened
    files; `notebook` is the URI of the notebook that this cell belongs to."""

    __slots__ = ("encoding", "language", "notebook", "table", "uri", "version")

    def __init__(
        self,
        uri: str,
        language: str,
        version: int | None,
        text: str | Table,
        encoding: Encoding = "utf-16",
        notebook: str | None = None,
    ) -> None:
        self.uri, self.language, self.version = uri, language, version
        self.table = text if isinstance(text, Table) else Table(text)
        self.encoding, self.notebook = encoding, notebook

    @property
    def text(self) -> str:
        return self.table.text

    @property
    def is_too_large(self) -> bool:
        """Whether nothing is suggested for it: see `MAX_CHARS`."""
        return self.table.size > MAX_CHARS

    @property
    def path(self) -> str | None:
        """The file's path; None for schemes other than `file`."""
        return uri_path(self.uri)

    def offset(self, position: types.Position) -> int:
        """Characters before the position, which is moved into the text if it lies outside."""
        return self.table.offset(position.line, position.character, self.encoding)

    def offsets(self, span: types.Range) -> tuple[int, int]:
        """Start and end of a range as offsets, in order."""
        start, end = self.offset(span.start), self.offset(span.end)
        return min(start, end), max(start, end)

    def position(self, offset: int) -> types.Position:
        return types.Position(*self.table.position(offset, self.encoding))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))

    def with_table(self, table: Table, version: int | None) -> Snapshot:
        """Another version of the document."""
        return Snapshot(self.uri, self.language, version, table, self.encoding, self.notebook)


def uri_path(uri: str) -> str | None:
    """The local path of a `file:` URI; None for any other, a notebook's cell too."""
    path = to_path(uri) if uri[:5].lower() == "file:" else None
    return None if path is None else str(path)


def folder_path(uri: str) -> str | None:
    """The path of a folder's `file:` URI, however the client ends it; None for other schemes."""
    path = uri_path(uri)
    return None if path is None else os.path.abspath(path)


def path_uri(path: str | Path) -> str:
    """The `file:` URI of a path, as clients write it."""
    return uris.from_fs_path(str(path)) or Path(path).absolute().as_uri()


def guess_language(uri: str) -> str:
    """The usual language id for a file name."""
    return language_of(unquote(urlsplit(uri).path)).id


def decode(data: bytes) -> str:
    """A file's text: UTF-8 (a byte order mark is kept as the client would), else Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class Documents:
    """All open documents. Changed by the event loop only; snapshots may go to any thread."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self._open: dict[str, Snapshot] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Snapshot]:
        with self._lock:
            return iter(list(self._open.values()))

    def get(self, uri: str) -> Snapshot | None:
        """The open document's latest snapshot."""
        with self._lock:
            return self._open.get(uri)

    def read(self, uri: str) -> Snapshot | None:
        """The open document, or the file on disk with its own line ends; None if unreadable."""
        if (known := self.get(uri)) is not None:
            return known
        path = uri_path(uri)
        if path is None:
            return None
        try:
            file = Path(path)
            if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
                return None
            text = decode(file.read_bytes())
        except OSError as error:
            log.info("cannot read %s: %s", path, error)
            return None
        return Snapshot(uri, guess_language(uri), None, text, self.encoding)

    def is_current(self, snapshot: Snapshot) -> bool:
        """Is this still the document's text? For files on disk, compares the text itself."""
        if snapshot.version is None:
            now = self.read(snapshot.uri)
            return now is not None and now.text == snapshot.text
        latest = self.get(snapshot.uri)
        return latest is not None and (
            latest is snapshot or (latest.version, latest.text) == (snapshot.version, snapshot.text)
        )

    def open(self, item: types.TextDocumentItem, notebook: str | None = None) -> Snapshot:
        text = join_pairs(item.text)
        snapshot = Snapshot(item.uri, item.language_id, item.version, text, self.encoding, notebook)
        with self._lock:
            self._open[item.uri] = snapshot
        return snapshot

    def close(self, uri: str) -> Snapshot | None:
        with self._lock:
            return self._open.pop(uri, None)

    def change(
        self, uri: str, version: int | None, changes: Sequence[Change]
    ) -> tuple[Snapshot, tuple[Edit, ...]] | None:
        """Applies the changes in order; None for a document that is not open.

        The edits count characters, each in the text that the ones before it left.
        """
        before = self.get(uri)
        if before is None:
            log.warning("change of a document that is not open: %s", uri)
            return None
        edits: list[Edit] = []
        table = before.table
        for change in changes:
            table, edit = _changed(before, table, change)
            edits.append(edit)
        snapshot = before.with_table(table, before.version if version is None else version)
        with self._lock:
            self._open[uri] = snapshot
        return snapshot, tuple(edits)


def _changed(snapshot: Snapshot, table: Table, change: Change) -> tuple[Table, Edit]:
    span = getattr(change, "range", None)
    if span is None:
        return Table(join_pairs(change.text)), Edit(0, table.size, change.text)
    places = (
        table.offset(place.line, place.character, snapshot.encoding)
        for place in (span.start, span.end)
    )
    start, end = sorted(places)
    return table.replaced(start, end, change.text), Edit(start, end, change.text)
