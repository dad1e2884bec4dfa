"""The context room: what the editor has open, and the repository's index, as one `Context`.

Three kinds of threads: the server's, which call in and wait for nothing; the room's own, which
starts processes, reads git and hands out parsing; and one per root that reads the indexing
process's answers. `gather` reads immutable snapshots that the others replace.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clover_engine.api import CancelToken

from . import candidates as find
from .buffers import Buffer, Buffers
from .diff import Hunk, changed
from .edits import EditLog, Group
from .focus import Focus
from .ignore import IgnoreRules, secret_file, unfit_file
from .index import Index
from .languages import language_of
from .lookup import Query, Source, own_sources, search
from .paths import relative, same_notebook, to_path
from .rank import Rejected, choose
from .redaction import Redacted
from .sources import candidates, read_sources
from .symbols import MAX_BYTES, word_hash
from .types import Context, Edit, IndexStatus, Lookup, Place, Problem, ScoredSnippet

LOG = logging.getLogger(__name__)

PARSE_DELAY_S = 0.3
"""A buffer is parsed once it has been quiet for so long."""
DIFF_DELAY_S = 1.0
TICK_S = 15.0
EDIT_SNIPPETS = 6


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
    cache_dir: Path | None = None
    """Where indexes are kept; None for the platform's folder (see `store.cache_folder`)."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A context, and what was left out of it."""

    context: Context
    rejected: tuple[Rejected, ...] = ()


class Room:
    """Implements `types.ContextRoom`."""

    def __init__(self, options: RoomOptions | None = None) -> None:
        self.options = options or RoomOptions()
        self._buffers = Buffers()
        self._edits = EditLog()
        self._redacted = Redacted()
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._roots: tuple[Path, ...] = ()
        self._indexes: dict[Path, Index] = {}
        self._hunks: dict[Path, list[Hunk]] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._later: dict[str, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    # The life of the room

    def start(self) -> None:
        """Starts the background thread; calls before it are remembered."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="context-room", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the threads and processes; waits for a moment only."""
        self._closed.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(3)

    def set_roots(self, roots: Sequence[str]) -> None:
        """Folders of the workspace, as paths; a folder within another one is part of that one."""
        paths = sorted({Path(os.path.abspath(root)) for root in roots})
        kept: list[Path] = []
        for path in paths:
            if not any(path.is_relative_to(other) for other in kept):
                kept.append(path)
        self._roots = tuple(kept)
        self._jobs.put(partial(self._set_roots, tuple(kept)))

    def status(self) -> IndexStatus:
        """All roots together: the least ready one gives the state."""
        if not self.options.index:
            return IndexStatus("off", detail="switched off in the settings")
        found = [index.status() for index in self._indexes.values()]
        if not found:
            state = IndexStatus("indexing" if self._roots else "ready")
            return state if self._roots else replace(state, detail="no folder is open")
        order = ("failed", "indexing", "ready")
        worst = min(found, key=lambda s: order.index(s.state))
        return IndexStatus(
            worst.state,
            sum(s.files for s in found),
            sum(s.pending for s in found),
            sum(s.bytes for s in found),
            "; ".join(dict.fromkeys(s.detail for s in found if s.detail)),
        )

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
        self._jobs.put(partial(self._files_changed, tuple(paths)))

    def recent_edits(self, limit: int) -> Sequence[tuple[str, str, str]]:
        """(uri, lines before, lines after) of the latest grouped edits, newest first.

        Not redacted: this is the user's own typing, and no model reads it from here.
        """
        return [(group.uri, *group.lines()) for group in self._edits.recent(limit)]

    # What the model gets

    def gather(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Context:
        return self.explain(place, budget_tokens, cancel).context

    def explain(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Explained:
        """`gather`, with the candidates that were not taken and why."""
        withheld = self.withheld(place.uri)
        if withheld:
            blank = replace(place, prefix="", suffix="")
            return Explained(Context(blank, withheld=withheld))
        prefix, suffix = self._redacted.split(place.uri, place.prefix, place.suffix)
        safe = replace(place, prefix=prefix, suffix=suffix)
        buffer = self._buffers.get(place.uri)
        focus = Focus(prefix, suffix, buffer.symbols if buffer else None)
        root, path = self._locate(place.uri)
        index = self._indexes.get(root) if root else None
        try:
            pool = self._candidates(safe, focus, index, path)
            if cancel is not None and cancel.cancelled:
                return Explained(Context(safe))
            lookups = self._lookups(safe, index, path)
        except (sqlite3.Error, ValueError) as error:
            if index is None or not isinstance(error, sqlite3.Error):
                raise
            LOG.warning("the index could not be read: %s", error)
            self._jobs.put(partial(index.damaged, error))
            pool, lookups = self._candidates(safe, focus, None, path), ()
        snippets, rejected = choose(pool, focus.known_lines, budget_tokens)
        return Explained(Context(safe, tuple(snippets), lookups), tuple(rejected))

    def withheld(self, uri: str) -> str:
        """Why nothing of this document may be read, in words; "" if it may."""
        path = to_path(uri)
        if path is None:
            return ""
        for named in dict.fromkeys((path, Path(os.path.realpath(path)))):
            if secret_file(named.as_posix()):
                return f"{path.name} is a file for secrets"
            if unfit_file(named.name):
                return f"{path.name} is a lock file or generated"
            root = self._root_of(named)
            inside = relative(named, root) if root else None
            if root is not None and inside is not None:
                reason = self._rules(root).reason(inside)
                if reason:
                    return reason
        return ""

    def _candidates(
        self, place: Place, focus: Focus, index: Index | None, path: str
    ) -> list[ScoredSnippet]:
        reader = index.reader if index else None
        rare = focus.rarity(lambda name: 1.0)
        if reader is not None:
            total = 1 + len(reader.files)
            rare = focus.rarity(
                lambda name: math.log(1 + total / (1 + reader.postings(word_hash(name), 0)[1]))
            )
        others = self._others(place.uri)
        cells = [b for _, b in others if same_notebook(b.uri, place.uri)]
        open_ = [(p, b) for p, b in others if not same_notebook(b.uri, place.uri)]
        pool = find.notebook_cells(cells, path)
        pool += find.open_windows(open_, focus, rare)
        pool += find.edits(self._other_edits(place.uri))
        line = place.prefix.count("\n")
        pool += find.problems(self._problems.get(place.uri, ()), line, path, place.language)
        if index is not None:
            pool += find.changes(self._hunks.get(index.root, ()), focus, path)
        if reader is not None and index is not None:
            pool += find.definitions(reader, focus, path)
            pool += find.usages(reader, index.root, focus, rare, path)
        return pool

    def _lookups(self, place: Place, index: Index | None, path: str) -> tuple[Lookup, ...]:
        crlf = "\r\n" in place.prefix or "\r\n" in place.suffix
        query = Query(_lf(place.prefix), _lf(place.suffix))
        if not query.answerable:
            return ()
        sources = own_sources(query, path)
        others = self._others(place.uri)
        sources += [Source(p, _lf(b.safe_text), 1) for p, b in others[: find.MAX_OPEN]]
        reader = index.reader if index else None
        if index is not None and reader is not None:
            open_paths = {p for p, _ in others}
            files = candidates(reader, query, path, open_paths)
            sources += read_sources(index.root, files)
        found = search(query, sources)
        if crlf:
            return tuple(replace(f, text=f.text.replace("\n", "\r\n")) for f in found)
        return found

    def _others(self, uri: str) -> list[tuple[str, Buffer]]:
        """Other open documents that may be read, latest focus first, with a path to show."""
        found = []
        seen: set[str] = set()
        own = self._locate(uri)[1]
        for buffer in self._buffers.latest_first():
            path = self._locate(buffer.uri)[1]
            cell = same_notebook(buffer.uri, uri)
            if buffer.uri == uri or (not cell and path in (own, *seen)):
                continue
            if not self.withheld(buffer.uri):
                seen.add(path)
                found.append((path, buffer))
        return found

    def _other_edits(self, uri: str) -> list[tuple[str, Group]]:
        groups = self._edits.recent(EDIT_SNIPPETS)
        found = [(self._locate(g.uri)[1], g) for g in groups if g.uri != uri]
        return [(path, g) for path, g in found if not self.withheld(g.uri)]

    # Roots

    def _locate(self, uri: str) -> tuple[Path | None, str]:
        """The root a document belongs to, and its path there; a name to show if in none."""
        path = to_path(uri)
        if path is None:
            return None, uri
        root = self._root_of(path)
        inside = relative(path, root) if root else None
        return (root, inside) if inside is not None else (None, path.as_posix())

    def _root_of(self, path: Path) -> Path | None:
        return next((root for root in self._roots if path.is_relative_to(root)), None)

    def _rules(self, root: Path) -> IgnoreRules:
        index = self._indexes.get(root)
        if index is None:
            index = self._indexes[root] = self._new_index(root)
        return index.rules

    def _new_index(self, root: Path) -> Index:
        options = self.options
        return Index(root, options.exclude, options.cache_dir, options.watch)

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
            for key in [k for k, (due, _) in list(self._later.items()) if due <= now]:
                self._run(self._later.pop(key)[1])
        for index in self._indexes.values():
            index.close()

    def _run(self, job: Callable[[], None]) -> None:
        """One failing job must not end the room."""
        try:
            job()
        except Exception:
            LOG.exception("a background job of the context room failed")

    def _wait_s(self) -> float:
        due = min((due for due, _ in list(self._later.values())), default=math.inf)
        return max(0.0, min(TICK_S, due - time.monotonic()))

    def _soon(self, key: str, delay_s: float, job: Callable[[], None]) -> None:
        """Runs a job after a delay; a newer one of the same key replaces it."""

        def note() -> None:
            self._later[key] = (time.monotonic() + delay_s, job)

        self._jobs.put(note)

    def _set_roots(self, roots: tuple[Path, ...]) -> None:
        for root in [r for r in self._indexes if r not in roots]:
            self._indexes.pop(root).close()
            self._hunks.pop(root, None)
        for root in roots:
            self._rules(root)
            if self.options.index:
                self._indexes[root].start()
            self._soon(f"diff {root}", DIFF_DELAY_S, partial(self._diff, root))

    def _files_changed(self, paths: tuple[str, ...]) -> None:
        by_root: dict[Path, list[str]] = {}
        for name in paths:
            root = self._root_of(Path(name))
            inside = relative(Path(name), root) if root else None
            if root is not None and inside is not None:
                by_root.setdefault(root, []).append(inside)
        for root, inside_paths in by_root.items():
            self._rules(root)
            if self.options.index:
                self._indexes[root].update(inside_paths)
            self._soon(f"diff {root}", DIFF_DELAY_S, partial(self._diff, root))

    def _diff(self, root: Path) -> None:
        if self.options.git_diff and root in self._indexes:
            self._hunks[root] = changed(root, self._rules(root))

    def _parse(self, uri: str) -> None:
        buffer = self._buffers.get(uri)
        if buffer is None or len(buffer.text) > MAX_BYTES or self.withheld(uri):
            return
        root, path = self._locate(uri)
        language = language_of(path, buffer.language)
        index = self._indexes.get(root) if root else next(iter(self._indexes.values()), None)
        if index is not None and language is not None and self.options.index:
            index.parse(buffer.text, language, partial(self._buffers.parsed, uri))

    def _poll(self) -> None:
        if self.options.index:
            for index in self._indexes.values():
                index.poll()

    def _tick(self) -> None:
        for index in self._indexes.values():
            index.tidy()


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text
