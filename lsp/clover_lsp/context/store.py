"""The index of one root on disk: an SQLite file, and a sorted array of hashes beside it.

The indexing process writes (`Writer`), servers read (`Reader`); several of either may use one
store at once. Both files are a cache outside the repository: a damaged one, or one of another
version, is deleted and built again.

The array ("grams") holds one 64-bit number per file and distinct hash, `hash << 32 | file id`, so
that all files with an identifier or a line are one bisection away. It is mapped, not loaded.
Files indexed after it was written have larger ids and are searched one by one (`Reader.newer`).
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import sqlite3
import struct
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clover_engine.folders import cache_folder
from clover_lsp.context.symbols import Definition, Import, Symbols

VERSION = 1
_HEADER = struct.Struct("<8sQQ")
_MAGIC = b"CLVRGRM1"
_LOW = 0xFFFFFFFF
MAX_ANSWERS = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE NOT NULL, mtime INTEGER NOT NULL,
    size INTEGER NOT NULL, language TEXT NOT NULL, secret INTEGER NOT NULL, grams BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS symbols (
    file INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, line INTEGER NOT NULL,
    end_line INTEGER NOT NULL, container TEXT NOT NULL, signature TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS symbols_by_name ON symbols (name);
CREATE INDEX IF NOT EXISTS symbols_by_file ON symbols (file);
CREATE TABLE IF NOT EXISTS imports (
    file INTEGER NOT NULL, module TEXT NOT NULL, name TEXT NOT NULL, local TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS imports_by_name ON imports (name);
CREATE INDEX IF NOT EXISTS imports_by_file ON imports (file);
"""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One indexed file. `secret`: its text must be redacted before anyone reads it."""

    id: int
    path: str
    mtime_ns: int
    size: int
    language: str
    secret: bool


@dataclass(frozen=True, slots=True)
class Located:
    """A definition and the file that it stands in."""

    file: int
    definition: Definition


def store_path(root: Path, folder: Path | None = None) -> Path:
    """The SQLite file for a root."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:20]
    return (folder or cache_folder()) / "index" / f"{name}-v{VERSION}.sqlite"


def _grams_path(path: Path) -> Path:
    return path.with_suffix(".grams")


def remove(path: Path) -> None:
    """Deletes a store and what SQLite keeps beside it."""
    for name in (path, _grams_path(path), *(Path(f"{path}{end}") for end in ("-wal", "-shm"))):
        with contextlib.suppress(OSError):
            name.unlink()


class Writer:
    """What the indexing process does to a store. Used by one thread.

    Raises `OSError` or `sqlite3.Error` where the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._open()
        except sqlite3.DatabaseError:
            remove(path)
            self._open()

    def _open(self) -> None:
        self.db = sqlite3.connect(self.path, timeout=20, isolation_level=None)
        try:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=OFF")
            self.db.executescript(_SCHEMA)
            self.db.execute("SELECT count(*) FROM files").fetchone()
        except sqlite3.DatabaseError:
            self.db.close()
            raise

    def known(self, paths: Sequence[str] | None = None) -> dict[str, tuple[int, int, int]]:
        """path → (id, mtime, size) of these files, or of all."""
        query = "SELECT path, id, mtime, size FROM files"
        if paths is not None:
            query += f" WHERE path IN ({','.join('?' * len(paths))})"
        rows = self.db.execute(query, paths or ())
        return {path: (id_, mtime, size) for path, id_, mtime, size in rows}

    def put(
        self,
        path: str,
        stat: tuple[int, int],
        language: str | None,
        secret: bool,
        symbols: Symbols,
        grams: array[int],
    ) -> int:
        """Replaces what is known of a file and returns its new id. Call it in a transaction."""
        self.drop([path])
        cursor = self.db.execute(
            "INSERT INTO files (path, mtime, size, language, secret, grams) VALUES (?,?,?,?,?,?)",
            (path, *stat, language or "", int(secret), grams.tobytes()),
        )
        file = cursor.lastrowid
        assert file is not None
        self.db.executemany(
            "INSERT INTO symbols VALUES (?,?,?,?,?,?,?)",
            [
                (file, d.name, d.kind, d.line, d.end_line, d.container, d.signature)
                for d in symbols.definitions
            ],
        )
        self.db.executemany(
            "INSERT INTO imports VALUES (?,?,?,?)",
            [(file, i.module, i.name, i.local) for i in symbols.imports],
        )
        return file

    def drop(self, paths: Iterable[str]) -> None:
        for path in paths:
            row = self.db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
            if row:
                for table in ("symbols", "imports"):
                    self.db.execute(f"DELETE FROM {table} WHERE file = ?", row)
                self.db.execute("DELETE FROM files WHERE id = ?", row)

    def newer_than_grams(self) -> int:
        """How many files are not in the array yet; all of them if it is missing or damaged."""
        header = _read_header(_grams_path(self.path))
        last = header[0] if header else 0
        count: int = self.db.execute("SELECT count(*) FROM files WHERE id > ?", (last,)).fetchone()[
            0
        ]
        return count if header else max(count, 1)

    def write_grams(self) -> None:
        """Writes the array of all files, sorted, and puts it in place at once."""
        buckets = [array("Q") for _ in range(256)]
        last = 0
        for file, blob in self.db.execute("SELECT id, grams FROM files ORDER BY id"):
            last = file
            for value in array("I", blob):
                buckets[value >> 24].append(value << 32 | file)
        target = _grams_path(self.path)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        with temporary.open("wb") as out:
            out.write(_HEADER.pack(_MAGIC, last, sum(map(len, buckets))))
            for bucket in buckets:
                out.write(array("Q", sorted(bucket)).tobytes())
        os.replace(temporary, target)

    def close(self) -> None:
        self.db.close()


def _read_header(path: Path) -> tuple[int, int] | None:
    """(largest file id, number of entries) of a sound array, else None."""
    try:
        with path.open("rb") as file:
            magic, last, count = _HEADER.unpack(file.read(_HEADER.size))
            sound = magic == _MAGIC and os.fstat(file.fileno()).st_size == _HEADER.size + 8 * count
    except (OSError, struct.error):
        return None
    return (last, count) if sound else None


def _stored(row: Sequence[Any]) -> StoredFile:
    return StoredFile(row[0], row[1], row[2], row[3], row[4], bool(row[5]))


class Reader:
    """What servers ask a store. Any thread; raises `sqlite3.Error` if the file is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1, check_same_thread=False
        )
        self._grams: Sequence[int] = ()
        self._last = 0
        self.files: dict[int, StoredFile] = {}
        self.by_path: dict[str, int] = {}
        self.source_bytes = 0
        self.newer: dict[int, array[int]] = {}
        self._answers: dict[tuple[object, ...], list[Located]] = {}
        try:
            self.reload()
        except BaseException:
            self.close()
            raise

    def reload(self) -> None:
        """Reads the list of files and maps the array anew."""
        self._map_grams()
        rows = self._all("SELECT id, path, mtime, size, language, secret FROM files")
        self._set_files([_stored(row) for row in rows])
        blobs = self._all("SELECT id, grams FROM files WHERE id > ?", self._last)
        self.newer = {file: array("I", blob) for file, blob in blobs}

    def refresh(self, paths: Sequence[str]) -> None:
        """Takes over what the indexing process has just written about these files."""
        for path in paths:
            old = self.by_path.get(path)
            rows = self._all(
                "SELECT id, path, mtime, size, language, secret, grams FROM files WHERE path = ?",
                path,
            )
            files, by_path, newer = dict(self.files), dict(self.by_path), dict(self.newer)
            if old is not None:
                files.pop(old, None)
                by_path.pop(path, None)
                newer.pop(old, None)
            if rows:
                file = _stored(rows[0])
                files[file.id], by_path[path] = file, file.id
                newer[file.id] = array("I", rows[0][6])
            self.files, self.by_path, self.newer = files, by_path, newer
        self._answers = {}

    def _set_files(self, files: list[StoredFile]) -> None:
        self.files = {file.id: file for file in files}
        self.by_path = {file.path: file.id for file in files}
        self.source_bytes = sum(file.size for file in files)

    def _map_grams(self) -> None:
        header = _read_header(_grams_path(self.path))
        self._grams, self._last = (), 0
        if header is None or not header[1]:
            return
        with _grams_path(self.path).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._grams = memoryview(mapped)[_HEADER.size :].cast("Q")
        self._last = header[0]

    def postings(self, value: int, limit: int) -> tuple[list[int], int]:
        """Ids of files with a hash, at most `limit` of them, and how many there are in all."""
        grams = self._grams
        low = bisect_left(grams, value << 32)
        high = bisect_left(grams, value + 1 << 32, low)
        found = [
            file for g in grams[low : min(high, low + limit)] if (file := g & _LOW) in self.files
        ]
        for file, own in self.newer.items():
            at = bisect_left(own, value)
            if at < len(own) and own[at] == value:
                found.append(file)
                high += 1
        return found, high - low

    def definitions(self, name: str, limit: int) -> list[Located]:
        """Definitions of a name anywhere, in the order of files."""
        return self._located("name = ? ORDER BY file, line LIMIT ?", name, limit)

    def members(self, file: int, container: str, limit: int) -> list[Located]:
        """What is defined in one class of one file."""
        return self._located("file = ? AND container = ? LIMIT ?", file, container, limit)

    def imports(self, file: int) -> list[Import]:
        rows = self._all("SELECT module, name, local FROM imports WHERE file = ?", file)
        return [Import(*row) for row in rows]

    def importers(self, name: str, limit: int) -> list[tuple[int, str]]:
        """(file, module) of imports that take a name from anywhere."""
        return self._all("SELECT file, module FROM imports WHERE name = ? LIMIT ?", name, limit)

    def _located(self, where: str, *values: object) -> list[Located]:
        """Remembered until the files change: the next keystroke asks for the same names."""
        known = self._answers
        found = known.get((where, *values))
        if found is None:
            rows = self._all(
                "SELECT file, name, kind, line, end_line, container, signature FROM symbols WHERE "
                + where,
                *values,
            )
            found = [Located(row[0], Definition(*row[1:])) for row in rows]
            if len(known) < MAX_ANSWERS:
                known[where, *values] = found
        return found

    def _all(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            return self.db.execute(query, values).fetchall()

    def close(self) -> None:
        """Ends database access. The array stays mapped as long as a search still reads it."""
        with self._lock:
            self.db.close()
        self._grams = ()
