"""The index of one root as the server sees it: its state, its reader, its process, its watch."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from clover_engine.privacy.ignore import IgnoreRules
from clover_lsp.context.client import IndexProcess, Message
from clover_lsp.context.store import Reader, remove, store_path
from clover_lsp.context.symbols import Definition, Import, Symbols
from clover_lsp.context.types import IndexStatus
from clover_lsp.context.walk import enters
from clover_lsp.context.watch import Watch

LOG = logging.getLogger(__name__)

MAX_UPDATE = 200
"""More changed files than this at once (another branch, say) are a reason to scan instead."""
IDLE_S = 60.0
"""The process ends after so long without work."""
POLL_S = 30.0
"""Where files are not watched, a scan follows a change of focus at most this often."""
_IGNORE_FILES = frozenset({".gitignore", ".cloverignore"})


class Index:
    """`rules`, `reader`, `status` and `unreadable` are for any thread, the rest for the room's own
    background thread (and the callbacks of the indexing process)."""

    def __init__(
        self, root: Path, exclude: Sequence[str], folder: Path | None, watched: bool
    ) -> None:
        self.root = root
        self._exclude = tuple(exclude)
        self._store = store_path(root, folder)
        self._process = IndexProcess(self._store, root, self._exclude)
        self._watch = Watch(root, self._seen, self._enters) if watched else None
        self._lock = threading.Lock()
        self._rules: IgnoreRules | None = None
        self._reader: Reader | None = None
        self._retired: Reader | None = None
        self._state = IndexStatus("indexing")
        self._retries = 1
        self._scanning = self._closed = self._started = self._damaged = False
        self._scan_again = False
        self._last_scan = self._last_use = 0.0
        self._limited = ""

    @property
    def rules(self) -> IgnoreRules:
        """Read on first use, again after an ignore file changed."""
        rules = self._rules
        if rules is None:
            rules = self._rules = IgnoreRules(self.root, self._exclude)
        return rules

    @property
    def reader(self) -> Reader | None:
        """None until there is something to read."""
        return self._reader

    @property
    def busy(self) -> bool:
        return self._scanning or self._process.busy

    def status(self) -> IndexStatus:
        state, reader = self._state, self._reader
        watched = self._watch.detail if self._watch is not None else ""
        limited = "; ".join(filter(None, (self._limited, watched)))
        if reader is None:
            return replace(state, limited=limited)
        files, size = len(reader.files), reader.source_bytes
        return replace(state, files=files, bytes=size, limited=limited)

    def start(self) -> None:
        """Serves what an earlier run left at once, and brings it up to date. Once."""
        if self._started:
            return
        self._started = True
        self._open_reader()
        self.scan()

    def scan(self) -> None:
        """Compares the whole folder with the index."""
        with self._lock:
            self._scan_again = self._scanning
            if self._scanning or self._closed:
                return
            self._scanning = True
        self._last_scan = time.monotonic()
        self._send({"op": "scan"}, self._scanned)

    def update(self, paths: Sequence[str]) -> None:
        """These files (relative) changed, came or went."""
        if any(path.rpartition("/")[2] in _IGNORE_FILES for path in paths):
            self._rules = None
            self.scan()
        elif len(paths) > MAX_UPDATE:
            self.scan()
        elif paths:
            self._send({"op": "update", "paths": list(paths)}, self._updated)

    def parse(self, text: str, language: str, done: Callable[[Symbols], None]) -> None:
        """Symbols of a buffer; `done` runs on another thread, or never."""

        def parsed(message: Message) -> None:
            if message.get("ok"):
                found = message["symbols"]
                done(
                    Symbols(
                        tuple(Definition(*d) for d in found["definitions"]),
                        tuple(Import(*i) for i in found["imports"]),
                    )
                )

        self._send({"op": "parse", "language": language, "text": text}, parsed)

    def poll(self) -> None:
        """Looks for changes that nobody reported, where files are not watched."""
        watching = self._watch is not None and self._watch.active
        if not watching and time.monotonic() - self._last_scan > POLL_S:
            self.scan()

    def tidy(self) -> None:
        """Lets the process go once it is idle. Called now and then."""
        if time.monotonic() - self._last_use > IDLE_S:
            self._process.rest()

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        self._process.close()
        with self._lock:
            for reader in (self._reader, self._retired):
                if reader is not None:
                    reader.close()
            self._reader = self._retired = None

    def unreadable(self, error: Exception) -> None:
        """A read failed: the index is built again, on a thread of its own."""
        with self._lock:
            if self._closed or self._damaged:
                return
            self._damaged = True
        LOG.warning("the index of %s cannot be read: %s", self.root, error)
        threading.Thread(target=self._rebuild, args=(error,), daemon=True).start()

    def _rebuild(self, error: Exception) -> None:
        """Throws the store away and builds it again, once until a scan succeeds."""
        if self._retries <= 0 or self._closed:
            self._state = IndexStatus("failed", detail=f"the index cannot be used: {error}")
            return
        self._retries -= 1
        self._process.close()
        self._swap(None)
        remove(self._store)
        self._process = IndexProcess(self._store, self.root, self._exclude)
        self._state = IndexStatus("indexing", detail="rebuilding a damaged index")
        self._scanning = False
        self.scan()

    def _send(self, message: Message, callback: Callable[[Message], None]) -> None:
        self._last_use = time.monotonic()
        try:
            self._process.send(message, callback)
        except OSError as error:
            callback({"ok": False, "error": f"cannot start the indexing process: {error}"})

    def _scanned(self, message: Message) -> None:
        if "ok" not in message:
            self._state = IndexStatus("indexing", message["done"], message["pending"])
            return
        with self._lock:
            self._scanning, again = False, self._scan_again
            self._scan_again = False
        if not message["ok"]:
            self._failed(str(message.get("error", "")))
            return
        self._retries, self._damaged = 1, False
        if message["changed"] or message["compacted"] or self._reader is None:
            self._open_reader()
        self._state, self._limited = IndexStatus("ready"), str(message.get("limited", ""))
        if self._watch is not None and not self._closed:
            self._watch.start(message["folders"])
            if self._watch.detail:
                self._state = IndexStatus("ready", detail=self._watch.detail)
        if again:
            self.scan()

    def _updated(self, message: Message) -> None:
        reader = self._reader
        if not message.get("ok"):
            self._failed(str(message.get("error", "")))
        elif message["compacted"] or reader is None:
            self._open_reader()
        else:
            with contextlib.suppress(sqlite3.Error):
                reader.refresh(message["paths"])

    def _failed(self, error: str) -> None:
        if self._closed:
            return
        if error.startswith("DatabaseError"):
            self._damaged = False
            self.unreadable(sqlite3.DatabaseError(error))
            return
        LOG.warning("indexing %s failed: %s", self.root, error)
        self._state = IndexStatus("failed", detail=error)

    def _open_reader(self) -> None:
        try:
            reader = Reader(self._store) if self._store.exists() else None
        except (sqlite3.Error, OSError) as error:
            LOG.info("no index of %s to start from: %s", self.root, error)
            reader = None
        self._swap(reader)
        if reader is not None and reader.files and self._state.state == "indexing":
            self._state = IndexStatus("ready", detail="checking for changes")

    def _swap(self, reader: Reader | None) -> None:
        """The reader before the last is closed only now: a search may still have used it."""
        with self._lock:
            if self._retired is not None:
                self._retired.close()
            self._retired, self._reader = self._reader, reader

    def _enters(self, folder: str) -> bool:
        return enters(self.rules, folder)

    def _seen(self, paths: Sequence[str]) -> None:
        self.update(paths)
