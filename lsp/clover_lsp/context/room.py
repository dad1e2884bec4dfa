"""The context room: what the editor has open, and the repository's index, as one `Context`.

Three kinds of threads: the server's, which call in and wait for nothing; the room's own, which
starts processes, reads git and hands out parsing; and one per folder that reads the indexing
process's answers. `gather` reads immutable snapshots that the others replace.
"""

from __future__ import annotations

import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clover_engine.api import CancelToken
from clover_engine.privacy.uris import to_path
from clover_lsp.context.buffers import Buffer, Buffers
from clover_lsp.context.diff import Hunk, changed
from clover_lsp.context.edits import EditLog
from clover_lsp.context.gather import Explained, Gatherer, Memory
from clover_lsp.context.grammars import grammar_of
from clover_lsp.context.index import Index
from clover_lsp.context.roots import Roots
from clover_lsp.context.symbols import MAX_BYTES
from clover_lsp.context.types import Context, Edit, IndexStatus, Place, Problem
from clover_lsp.context.whose import whose

LOG = logging.getLogger(__name__)

PARSE_DELAY_S = 0.3
"""A buffer is parsed once it has been quiet for so long."""
DIFF_DELAY_S = 1.0
TICK_S = 15.0
_CLOSE_S = 1.0
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """What the settings say about context."""

    exclude: tuple[str, ...] = ()
    """Globs in .gitignore syntax of files that nobody may read; they add to the defaults."""
    index: bool = True
    """Index the workspace. Without it, open documents are all that is read."""
    watch: bool = True
    """Watch the workspace's folders for changes made outside of the editor."""
    git_diff: bool = True
    """Show the model uncommitted changes of other files."""
    cache_dir: Path | None = None
    """Where indexes are kept; None for the platform's folder (see `clover_engine.folders`)."""


class Room:
    """Implements `types.ContextRoom`."""

    def __init__(self, options: RoomOptions | None = None) -> None:
        self.options = options or RoomOptions()
        self._roots = Roots(self._new_index, self.options.exclude)
        self._buffers, self._edits = Buffers(), EditLog()
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._hunks: dict[Path, list[Hunk]] = {}
        self._gatherer = Gatherer(
            Memory(self._roots, self._buffers, self._edits, self._problems, self._hunks)
        )
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._later: dict[str, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    # The life of the room

    def start(self) -> None:
        """Starts the background thread; what was told before is remembered."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="context-room", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the threads and processes; waits for a moment only."""
        self._closed.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def wait(self, timeout_s: float) -> bool:
        """Waits until all that was told is taken in: for commands and tests, not for servers.

        False if that did not happen in time. An index that failed counts as taken in.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            passed = threading.Event()
            self._jobs.put(passed.set)
            if not passed.wait(end - time.monotonic()):
                return False
            if not self._later and not any(index.busy for index in self._roots.indexes):
                return True
            time.sleep(_POLL_S)
        return False

    def set_roots(self, roots: Sequence[str]) -> None:
        """Folders of the workspace, as paths; a folder within another one is part of that one."""
        self._jobs.put(partial(self._start_indexes, self._roots.set(roots)))

    def status(self) -> IndexStatus:
        if not self.options.index:
            return IndexStatus("off", detail="switched off in the settings")
        return self._roots.status()

    # What the editor tells

    def opened(self, uri: str, language: str, text: str, version: int) -> None:
        self._buffers.put(Buffer(uri, language, text, version), front=True)
        self._soon(f"parse {uri}", 0.0, partial(self._parse, uri))

    def changed(self, uri: str, text: str, version: int, edits: Sequence[Edit]) -> None:
        known = self._buffers.get(uri)
        language = known.language if known else ""
        old = self._buffers.put(Buffer(uri, language, text, version))
        if old is not None:
            self._edits.record(uri, old.text, text, edits)
        self._soon(f"parse {uri}", PARSE_DELAY_S, partial(self._parse, uri))

    def saved(self, uri: str) -> None:
        path = to_path(uri)
        if path is not None:
            self.files_changed([str(path)])

    def closed(self, uri: str) -> None:
        self._buffers.remove(uri)
        self._problems.pop(uri, None)

    def focused(self, uri: str) -> None:
        self._buffers.focus(uri)
        self._jobs.put(self._poll)

    def diagnosed(self, uri: str, problems: Sequence[Problem]) -> None:
        self._problems[uri] = tuple(problems)

    def files_changed(self, paths: Sequence[str]) -> None:
        self._roots.forget()
        self._jobs.put(partial(self._files_changed, tuple(paths)))

    # What it gives

    def gather(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Context:
        return self._gatherer.explain(place, budget_tokens, cancel).context

    def explain(self, place: Place, budget_tokens: int) -> Explained:
        """`gather`, with the candidates that were not taken and why."""
        return self._gatherer.explain(place, budget_tokens, None)

    def withheld(self, uri: str) -> str:
        """Why nothing of this document may be read, in words; "" if it may."""
        return self._roots.withheld(uri)

    def whose(self, prefix: str, suffix: str) -> str:
        """The path of the workspace's file that has the lines around a cursor; "" if none has."""
        for index in self._roots.indexes:
            try:
                path = whose(index, prefix, suffix)
            except sqlite3.Error as error:
                index.unreadable(error)
                continue
            if path:
                return str(index.root / path)
        return ""

    def recent_edits(self, limit: int) -> Sequence[tuple[str, str, str]]:
        """(uri, lines before, lines after) of the latest grouped edits, newest first.

        Documents that are withheld have none. Secrets are not redacted: the text is for comparing
        with what the document holds.
        """
        groups = [g for g in self._edits.recent(limit) if not self._roots.withheld(g.uri)]
        return [(group.uri, *group.lines()) for group in groups]

    # The background thread

    def _work(self) -> None:
        while not self._closed.is_set():
            try:
                job = self._jobs.get(timeout=self._wait_s())
            except queue.Empty:
                job = self._tick
            if job is not None:
                self._run(job)
            now = time.monotonic()
            for key in [k for k, (due, _) in self._later.items() if due <= now]:
                self._run(self._later[key][1])
                del self._later[key]  # only now: `wait` takes an empty one for nothing to do
        for index in self._roots.indexes:
            index.close()

    def _run(self, job: Callable[[], None]) -> None:
        """One failing job must not end the room."""
        try:
            job()
        except Exception:
            LOG.exception("a background job of the context room failed")

    def _wait_s(self) -> float:
        due = min((due for due, _ in self._later.values()), default=math.inf)
        return max(0.0, min(TICK_S, due - time.monotonic()))

    def _soon(self, key: str, delay_s: float, job: Callable[[], None]) -> None:
        """Runs a job after a delay; a newer one of the same key replaces it."""

        def note() -> None:
            self._later[key] = (time.monotonic() + delay_s, job)

        self._jobs.put(note)

    def _new_index(self, root: Path) -> Index:
        options = self.options
        return Index(root, options.exclude, options.cache_dir, options.watch)

    def _start_indexes(self, left: list[Index]) -> None:
        for index in left:
            index.close()
            self._hunks.pop(index.root, None)
        for index in self._roots.indexes:
            index.rules.reason("warm")  # reads the ignore files here, not in the first `gather`
            if self.options.index:
                index.start()
            self._diff_soon(index)

    def _files_changed(self, paths: tuple[str, ...]) -> None:
        by_index: dict[Index, list[str]] = {}
        for name in paths:
            found = self._roots.index_of(Path(name))
            if found is not None:
                by_index.setdefault(found[0], []).append(found[1])
        for index, inside in by_index.items():
            if self.options.index:
                index.update(inside)
            self._diff_soon(index)

    def _diff_soon(self, index: Index) -> None:
        if self.options.git_diff:
            self._soon(f"diff {index.root}", DIFF_DELAY_S, partial(self._diff, index))

    def _diff(self, index: Index) -> None:
        if index in self._roots.indexes:
            self._hunks[index.root] = changed(index.root, index.rules)

    def _parse(self, uri: str) -> None:
        """Has the indexing process parse an open document."""
        buffer = self._buffers.get(uri)
        indexes = self._roots.indexes
        if buffer is None or not indexes or not self.options.index:
            return
        index, path = self._roots.locate(uri)
        language = grammar_of(path, buffer.language)
        if language and len(buffer.text) <= MAX_BYTES and not self._roots.withheld(uri):
            done = partial(self._buffers.parsed, uri)
            (index or indexes[0]).parse(buffer.text, language, done)

    def _poll(self) -> None:
        if self.options.index:
            for index in self._roots.indexes:
                index.poll()

    def _tick(self) -> None:
        for index in self._roots.indexes:
            index.tidy()
