"""The indexing process: ``python -m clover_lsp.context.worker STORE ROOT [EXCLUDE …]``.

It parses and writes, so that the server's own process never holds its interpreter's lock for
that. One JSON object a line in, one a line out:

- ``{"id": 1, "op": "scan"}``: bring the store in line with the folder. Progress lines
  ``{"id": 1, "done": …, "pending": …}`` come on the way.
- ``{"id": 2, "op": "update", "paths": […]}``: these files (relative) changed, came or went.
- ``{"id": 3, "op": "parse", "language": "python", "text": …}``: the text's symbols.

Every request ends with one object that has ``ok``. Short requests are served between the files of
a scan. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from clover_engine.privacy.ignore import IgnoreRules
from clover_engine.privacy.secrets import has_secret
from clover_lsp.context.grammars import grammar_of
from clover_lsp.context.store import Writer
from clover_lsp.context.symbols import Symbols, grams, parse, unfit
from clover_lsp.context.walk import MAX_FILES, WalkedFile, folders, walk
from clover_lsp.context.watch import MAX_FOLDERS

MAX_FILES_VARIABLE = "CLOVER_MAX_INDEXED_FILES"
"""Environment variable with another limit than `MAX_FILES`."""
BATCH = 64
"""Files of one transaction."""
COMPACT_AFTER = 100
"""So many files may be newer than the array of hashes before it is written again."""
_PROGRESS_S = 0.2
_IGNORE_FILES = (".gitignore", ".cloverignore", "exclude")

Message = dict[str, Any]


class Worker:
    """Serves the requests for one root."""

    def __init__(
        self, store: Path, root: Path, exclude: list[str], answer: Callable[[Message], None]
    ) -> None:
        self.root, self.exclude, self.answer = root, exclude, answer
        self._real_root = os.path.realpath(root)
        self.rules = IgnoreRules(root, exclude)
        self.writer = Writer(store)
        self.requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Serves until the queue holds None."""
        while (message := self.requests.get()) is not None:
            self.serve(message)

    def serve(self, message: Message) -> None:
        """Answers one request; an error of it is an answer too."""
        try:
            found = getattr(self, f"_{message['op']}")(message)
        except Exception as error:
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.answer({"id": message["id"], **found})

    def _parse(self, message: Message) -> Message:
        symbols = parse(message["text"].encode("utf-8", "replace"), message["language"])
        return {"ok": True, "symbols": _plain(symbols)}

    def _update(self, message: Message) -> Message:
        paths = [p for p in message["paths"] if isinstance(p, str)]
        if any(p.rpartition("/")[2] in _IGNORE_FILES for p in paths):
            self.rules = IgnoreRules(self.root, self.exclude)
        with self._transaction():
            for path in paths:
                self._index(path)
        return {"ok": True, "paths": paths, "compacted": self._compact(COMPACT_AFTER)}

    def _scan(self, message: Message) -> Message:
        self.rules = IgnoreRules(self.root, self.exclude)
        known = self.writer.known()
        most = int(os.environ.get(MAX_FILES_VARIABLE, MAX_FILES))
        found = list(itertools.islice(walk(self.rules), most + 1))
        is_limited = len(found) > most
        found = found[:most]
        stale = [f for f in found if known.get(f.path, ())[1:] != (f.mtime_ns, f.size)]
        gone = known.keys() - {f.path for f in found}
        with self._transaction():
            self.writer.drop(gone)
        self._index_all(stale, message["id"])
        changed = len(stale) + len(gone)
        compacted = self._compact(COMPACT_AFTER if changed < COMPACT_AFTER else 0)
        inside = list(itertools.islice(folders(self.rules), MAX_FOLDERS + 1))
        answer = {"ok": True, "changed": changed, "compacted": compacted, "folders": inside}
        if is_limited:
            answer["limited"] = f"only {most} files are indexed: open a smaller folder"
        return answer

    def _index_all(self, files: list[WalkedFile], id_: int) -> None:
        told = 0.0
        for at in range(0, len(files), BATCH):
            with self._transaction():
                for found in self._still_stale(files[at : at + BATCH]):
                    self._index(found.path, allowed=True)
            self._serve_waiting()
            now = time.monotonic()
            if now - told > _PROGRESS_S:
                told = now
                done = min(at + BATCH, len(files))
                self.answer({"id": id_, "done": done, "pending": len(files) - done})

    def _still_stale(self, files: list[WalkedFile]) -> list[WalkedFile]:
        """Without those that another server's process has indexed in the meantime."""
        known = self.writer.known([f.path for f in files])
        return [f for f in files if known.get(f.path, ())[1:] != (f.mtime_ns, f.size)]

    def _serve_waiting(self) -> None:
        """Short requests that came during a scan; a further scan waits for its turn."""
        later = []
        with contextlib.suppress(queue.Empty):
            while True:
                message = self.requests.get_nowait()
                if message is None:
                    raise SystemExit(0)
                if message["op"] == "scan":
                    later.append(message)
                else:
                    self.serve(message)
        for message in later:
            self.requests.put(message)

    def _index(self, path: str, allowed: bool = False) -> None:
        """Takes one file in, or out if it is gone or may not be read."""
        full = self.root / path
        try:
            if not allowed and (self._is_linked(path) or self.rules.reason(path)):
                raise PermissionError
            stat = full.stat()
            data = full.read_bytes() if stat.st_size <= 1_000_000 else b""
        except OSError:
            self.writer.drop([path])
            return
        kept = (stat.st_mtime_ns, stat.st_size)
        language = grammar_of(path)
        if not data or unfit(data):
            self.writer.put(path, kept, language, False, Symbols(), grams(b""))
            return
        secret = has_secret(data.decode("utf-8", "replace"))
        self.writer.put(path, kept, language, secret, parse(data, language), grams(data))

    def _is_linked(self, path: str) -> bool:
        """Whether a link leads to the file: what it stands for has a name of its own."""
        return os.path.realpath(self.root / path) != os.path.join(self._real_root, path)

    def _compact(self, limit: int) -> bool:
        due = self.writer.newer_than_grams() > limit
        if due:
            self.writer.write_grams()
        return due

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.writer.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.writer.db.execute("ROLLBACK")
            raise
        self.writer.db.execute("COMMIT")


def _plain(symbols: Symbols) -> Message:
    return {
        "definitions": [astuple(d) for d in symbols.definitions],
        "imports": [astuple(i) for i in symbols.imports],
    }


def main(arguments: list[str]) -> int:
    """Serves standard input until it ends."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    os.dup2(2, 1)  # a stray print must not corrupt the protocol
    lock = threading.Lock()

    def answer(message: Message) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            out.write(json.dumps(message) + "\n")
            out.flush()

    worker = Worker(Path(arguments[0]), Path(arguments[1]), arguments[2:], answer)

    def read() -> None:
        for line in sys.stdin.buffer:
            worker.requests.put(json.loads(line))
        worker.requests.put(None)

    threading.Thread(target=read, daemon=True).start()
    worker.run()
    worker.writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
