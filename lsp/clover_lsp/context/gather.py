"""One place → everything the model would read there, from immutable snapshots."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from clover_engine.api import CancelToken
from clover_engine.line_ends import to_lf
from clover_engine.privacy.secrets import redact_parts
from clover_engine.privacy.uris import to_path
from clover_lsp.context import candidates as find
from clover_lsp.context.buffers import Buffer, Buffers
from clover_lsp.context.diff import Hunk
from clover_lsp.context.edits import EditLog, Group
from clover_lsp.context.focus import Focus
from clover_lsp.context.index import Index
from clover_lsp.context.known import Known
from clover_lsp.context.lookup import Query, Source, own_sources, search
from clover_lsp.context.paths import same_notebook
from clover_lsp.context.rank import Rejected, choose
from clover_lsp.context.roots import Roots
from clover_lsp.context.sources import candidates, read_sources
from clover_lsp.context.store import Reader
from clover_lsp.context.symbols import word_hash
from clover_lsp.context.types import Context, Lookup, Place, Problem, ScoredSnippet

LOG = logging.getLogger(__name__)

EDIT_SNIPPETS = 6
CELL_CHARS = 6000
"""Of a notebook's other cells, the last so many characters are read."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A context, and what was left out of it."""

    context: Context
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True)
class Memory:
    """What the room knows; its threads replace entries, nothing is changed in place."""

    roots: Roots
    buffers: Buffers
    edits: EditLog
    problems: Mapping[str, tuple[Problem, ...]]
    hunks: Mapping[Path, list[Hunk]]


class Gatherer:
    """Any thread, several at once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def explain(self, place: Place, budget_tokens: int, cancel: CancelToken | None) -> Explained:
        """The context, and why other candidates are not in it.

        An index that cannot be read is told so (`Index.unreadable`) and done without.
        """
        memory = self._memory
        withheld = memory.roots.withheld(place.uri)
        if withheld:
            return Explained(Context(replace(place, prefix="", suffix=""), withheld=withheld))
        prefix, suffix = redact_parts(place.prefix, place.suffix)
        safe = replace(place, prefix=prefix, suffix=suffix)
        buffer = memory.buffers.get(place.uri)
        focus = Focus(to_lf(prefix), to_lf(suffix), buffer.symbols if buffer else None)
        index, path = memory.roots.locate(place.uri)
        if to_path(place.uri) is None:  # an unsaved document belongs to the first folder
            index = next(iter(memory.roots.indexes), None)
        others = self._others(place.uri, index)
        try:
            pool = self._candidates(safe, focus, others, index, path)
            lookups = () if _stopped(cancel) else _lookups(safe, others, index, path)
        except sqlite3.Error as error:
            if index is None:
                raise
            index.unreadable(error)
            pool = self._candidates(safe, focus, others, None, path)
            lookups = _lookups(safe, others, None, path)
        if _stopped(cancel):
            return Explained(Context(safe))
        snippets, rejected = choose(pool, focus.known_lines, budget_tokens)
        return Explained(Context(safe, tuple(snippets), lookups), tuple(rejected))

    def _candidates(
        self,
        place: Place,
        focus: Focus,
        others: list[tuple[str, Buffer]],
        index: Index | None,
        path: str,
    ) -> list[ScoredSnippet]:
        reader = index.reader if index else None
        rare = _rarity(focus, reader)
        cells = [b for _, b in others if same_notebook(b.uri, place.uri)]
        open_ = [(p, b) for p, b in others if not same_notebook(b.uri, place.uri)]
        pool = find.notebook_cells(cells, path, CELL_CHARS)
        pool += find.open_windows(open_, focus, rare)
        pool += find.edits(self._other_edits(place.uri, index))
        problems = self._memory.problems.get(place.uri, ())
        pool += find.problems(problems, place.prefix.count("\n"), path, place.language)
        if index is not None:
            pool += find.changes(self._memory.hunks.get(index.root, ()), focus, path)
        if index is not None and reader is not None:
            pool += find.definitions(Known(reader, dict(open_)), focus, path)
            pool += find.usages(reader, index.root, focus, rare, path)
        return pool

    def _others(self, uri: str, index: Index | None) -> list[tuple[str, Buffer]]:
        """Other open documents that may be read, latest focus first, with a path to show.

        A file that is open under several names counts once.
        """
        found = []
        seen = {_real(uri)}
        for buffer in self._memory.buffers.latest_first():
            if buffer.uri == uri:
                continue
            real, cell = _real(buffer.uri), same_notebook(buffer.uri, uri)
            if (cell or real not in seen) and not self._memory.roots.withheld(buffer.uri):
                seen.add(real)
                found.append((self._shown(buffer.uri, index), buffer))
        return found

    def _other_edits(self, uri: str, index: Index | None) -> list[tuple[str, Group]]:
        roots = self._memory.roots
        groups = [g for g in self._memory.edits.recent(EDIT_SNIPPETS) if g.uri != uri]
        return [(self._shown(g.uri, index), g) for g in groups if not roots.withheld(g.uri)]

    def _shown(self, uri: str, index: Index | None) -> str:
        """A document's path as seen from a folder: below it, or out of it through `..`.

        Two folders of the workspace may hold files of the same relative path.
        """
        where, path = self._memory.roots.locate(uri)
        if where is None or index is None or where is index:
            return path
        return Path(os.path.relpath(where.root / path, index.root)).as_posix()


@lru_cache(1024)
def _real(uri: str) -> str:
    """What a document is, whatever name it is open under: its real path, or its URI."""
    path = to_path(uri)
    return uri if path is None else os.path.realpath(path)


def _rarity(focus: Focus, reader: Reader | None) -> dict[str, float]:
    """The weight of each name near the cursor: how near, times how rare in the repository."""
    if reader is None:
        return {name: focus.weights[name] for name in focus.names}
    total = 1 + len(reader.files)
    return {
        name: focus.weights[name]
        * math.log(1 + total / (1 + reader.postings(word_hash(name), 0)[1]))
        for name in focus.names
    }


def _lookups(
    place: Place, others: list[tuple[str, Buffer]], index: Index | None, path: str
) -> tuple[Lookup, ...]:
    query = Query(to_lf(place.prefix), to_lf(place.suffix))
    if not query.answerable:
        return ()
    sources = own_sources(query, path)
    sources += [Source(p, b.safe_text, 1) for p, b in others[: find.MAX_OPEN]]
    reader = index.reader if index else None
    if index is not None and reader is not None:
        open_paths = {p for p, _ in others}
        sources += read_sources(index.root, candidates(reader, query, path, open_paths))
    found = search(query, sources)
    if "\r\n" in place.prefix or "\r\n" in place.suffix:
        return tuple(replace(f, text=f.text.replace("\n", "\r\n")) for f in found)
    return found


def _stopped(cancel: CancelToken | None) -> bool:
    return cancel is not None and cancel.cancelled
