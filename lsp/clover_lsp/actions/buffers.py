"""Unsaved buffers as bytes, and a patch's bytes as edits of what the client has.

A file keeps its byte order mark, its encoding and its line ends, whatever of that the client
shows: some clients send CRLF files with LF, and none sends the byte order mark.
"""

from __future__ import annotations

import codecs
import io
import os
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from clover_engine.line_ends import to_lf
from clover_lsp.actions.diff import minimal_edits
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.context.types import Edit
from clover_lsp.documents.documents import Documents, Snapshot, guess_language, path_uri

if TYPE_CHECKING:  # the server must start fast
    from clover_patcher.edits import FileChange


@dataclass(frozen=True, slots=True)
class Codec:
    """How a file's text is written as bytes."""

    encoding: str
    bom: bool

    @classmethod
    def of(cls, data: bytes, path: str = "") -> Codec:
        """Python files say it themselves; else UTF-8, or Latin-1 where that is impossible."""
        bom = data.startswith(codecs.BOM_UTF8)
        encoding = "utf-8"
        if path.endswith((".py", ".pyi")):
            try:
                encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            except SyntaxError:
                encoding = "latin-1"
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            encoding = "latin-1"
        return cls(encoding, bom)

    def decode(self, data: bytes) -> str:
        """The text without the byte order mark."""
        return data[len(codecs.BOM_UTF8) if self.bom else 0 :].decode(self.encoding)

    def encode(self, text: str) -> bytes:
        """Raises `UnicodeEncodeError` where the encoding lacks a character."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)


@dataclass(frozen=True, slots=True)
class DocumentEdit:
    """Edits of one document, in the text of `snapshot`."""

    snapshot: Snapshot
    edits: tuple[Edit, ...]


def overlay(documents: Iterable[Snapshot], root: Path) -> dict[str, bytes]:
    """Buffers below `root` (links resolved) that differ from their files, as the files' bytes.

    Raises `ActionRefused` for a buffer that its file's encoding cannot hold.
    """
    found = {}
    for snapshot in documents:
        path = relative_path(snapshot, root)
        if path is None or snapshot.version is None:
            continue
        try:
            disk: bytes | None = (root / path).read_bytes()
        except OSError:
            disk = None
        data = buffer_bytes(snapshot.text, disk, path)
        if data != disk and (disk is not None or path.endswith(".py")):
            found[path] = data
    return found


def buffer_bytes(text: str, disk: bytes | None, path: str) -> bytes:
    """What saving the buffer would write over the file's bytes.

    Raises `ActionRefused` where the file's encoding lacks a character.
    """
    text = text.removeprefix("\ufeff")
    if disk is None:
        return _encoded(text, Codec.of(text.encode("utf-8", "replace"), path), path)
    codec = Codec.of(disk, path)
    if path.endswith((".py", ".pyi")) and not codec.bom:
        declared = Codec.of(text[:400].encode("ascii", "ignore"), path).encoding
        codec = codec if declared == "utf-8" else Codec(declared, False)
    before = codec.decode(disk)
    if "\r\n" not in text and "\n" not in before.replace("\r\n", "") and "\r\n" in before:
        text = text.replace("\n", "\r\n")
    return _encoded(text, codec, path)


def relative_path(snapshot: Snapshot, root: Path) -> str | None:
    """The document's path below `root`, posix separators; None if it is not there."""
    if snapshot.path is None or snapshot.notebook is not None:
        return None
    path = Path(os.path.realpath(snapshot.path))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def document_edits(
    root: Path, changed: Sequence[FileChange], documents: Documents, folders: Sequence[str] = ()
) -> list[DocumentEdit]:
    """A patch as edits of the client's documents, under the names that the client uses.

    `root`: the repository, links resolved; `folders`: the client's own. Raises `ActionRefused`
    where a document is not what the patch was made for any more.
    """
    opened = {relative_path(s, root): s for s in documents if s.version is not None}
    found = []
    for change in changed:
        parts = PurePosixPath(change.path).parts
        if not parts or change.path.startswith("/") or ".." in parts:
            raise ActionRefused(f"{change.path!r} is not in the repository; nothing was changed")
        codec = Codec.of(change.before, change.path)
        before, after = codec.decode(change.before), codec.decode(change.after)
        snapshot = opened.get(change.path)
        if snapshot is None:
            uri = client_uri(root / change.path, folders)
            snapshot = Snapshot(uri, guess_language(uri), None, before, documents.encoding)
            if (root / change.path).read_bytes() != change.before:
                raise _moved(change.path)
        found.append(DocumentEdit(snapshot, tuple(_edits(snapshot, before, after, change.path))))
    return found


def client_uri(path: Path, folders: Sequence[str]) -> str:
    """The URI of a file whose links are resolved, below the client's own folder if it is in one."""
    for folder in sorted(folders, key=len, reverse=True):
        real = Path(os.path.realpath(folder))
        if path.is_relative_to(real):
            return path_uri(Path(folder) / path.relative_to(real))
    return path_uri(path)


def _edits(snapshot: Snapshot, before: str, after: str, path: str) -> list[Edit]:
    mark = "\ufeff" if snapshot.text.startswith("\ufeff") else ""
    before, after = mark + before, mark + after
    if snapshot.text != before:
        before, after = to_lf(before), to_lf(after)
        if snapshot.text != before:
            raise _moved(path)
    return minimal_edits(before, after)


def _encoded(text: str, codec: Codec, path: str) -> bytes:
    try:
        return codec.encode(text)
    except UnicodeEncodeError as error:
        raise ActionRefused(
            f"{path} has a character that {codec.encoding} lacks: save it as UTF-8 first"
        ) from error


def _moved(path: str) -> ActionRefused:
    return ActionRefused(f"{path} changed meanwhile: ask for the fix again")
