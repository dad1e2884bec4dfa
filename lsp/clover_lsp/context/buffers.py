"""The editor's open documents, latest focus first, with what is derived from each text once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property

from clover_engine.line_ends import to_lf
from clover_engine.privacy.secrets import redact
from clover_lsp.context.symbols import Symbols, identifiers

WINDOW_LINES = 30
MAX_WINDOWS = 80
"""Of a larger document only so many windows are looked at, from its beginning."""
MAX_CHARS = 2_000_000
"""Larger documents are no context for others."""


@dataclass(frozen=True)
class Window:
    """A run of lines of a document, not redacted; lines start at 0."""

    first_line: int
    text: str
    words: frozenset[str]


@dataclass(frozen=True)
class Buffer:
    """One version of one open document."""

    uri: str
    language: str
    text: str
    version: int
    symbols: Symbols | None = field(default=None, compare=False)
    """Of this version or a slightly older one; None until it was parsed."""
    order: int = 0
    """How many documents were opened before this one: the order of a notebook's cells."""

    @cached_property
    def safe_text(self) -> str:
        """Redacted, with LF line ends."""
        return redact(to_lf(self.text))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """Overlapping windows of the redacted text."""
        if len(self.text) > MAX_CHARS:
            return ()
        lines = self.safe_text.split("\n")
        step = WINDOW_LINES // 2
        found = []
        for first in range(0, max(1, len(lines) - step), step)[:MAX_WINDOWS]:
            text = "\n".join(lines[first : first + WINDOW_LINES])
            if words := frozenset(identifiers(text)):
                found.append(Window(first, text, words))
        return tuple(found)


class Buffers:
    """All open documents; any thread. Buffers are immutable and replaced as a whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_uri: dict[str, Buffer] = {}
        self._opened = 0

    def put(self, buffer: Buffer, front: bool = False) -> Buffer | None:
        """Stores a version and returns the one before it."""
        with self._lock:
            old = self._by_uri.get(buffer.uri)
            if old is None:
                self._opened += 1
                buffer = replace(buffer, order=self._opened)
            else:
                buffer = replace(buffer, order=old.order, symbols=buffer.symbols or old.symbols)
            if front:
                self._by_uri.pop(buffer.uri, None)
            self._by_uri[buffer.uri] = buffer
            return old

    def parsed(self, uri: str, symbols: Symbols) -> None:
        with self._lock:
            buffer = self._by_uri.get(uri)
            if buffer is not None:
                self._by_uri[uri] = replace(buffer, symbols=symbols)

    def get(self, uri: str) -> Buffer | None:
        return self._by_uri.get(uri)

    def focus(self, uri: str) -> None:
        with self._lock:
            buffer = self._by_uri.pop(uri, None)
            if buffer is not None:
                self._by_uri[uri] = buffer

    def remove(self, uri: str) -> None:
        with self._lock:
            self._by_uri.pop(uri, None)

    def latest_first(self) -> list[Buffer]:
        with self._lock:
            return list(reversed(self._by_uri.values()))
