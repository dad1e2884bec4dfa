"""Data between the server, the context room and the suggestions. Immutable.

Text is `str` with the document's own line ends; offsets are counted in characters (code points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from clover_engine.api import CancelToken

SnippetKind = Literal["definition", "import", "reference", "open", "edit", "diff", "diagnostic"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cursor is, in one version of one document."""

    uri: str
    language: str
    """The client's language id ("python", "typescriptreact", …)."""
    prefix: str
    """All text before the cursor."""
    suffix: str
    """All text after it."""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a document: characters [start, end) of the text before became `new`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A diagnostic of the client. Lines start at 0."""

    line: int
    message: str
    severity: Literal["error", "warning", "information", "hint"]
    source: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class ScoredSnippet:
    """A piece of other text. `score` is comparable within one context; `reason` is for people."""

    text: str
    path: str
    """Relative to its root, posix separators."""
    first_line: int
    """1-based."""
    kind: SnippetKind
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What followed the same text elsewhere: a draft for the engine, or a suggestion by itself."""

    text: str
    """From the cursor on; may span lines; never empty."""
    matched: int
    """How many tokens before the cursor are the same there (the evidence)."""
    count: int
    """How many places agree on the first line of `text`."""
    rivals: int
    """How many places with the same evidence continue differently."""
    path: str
    followed: int = 0
    """How many tokens after `text` are the same as those after the cursor (more evidence)."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything the model would read for one place."""

    place: Place
    snippets: tuple[ScoredSnippet, ...] = ()
    """Best first, within the token budget, without duplicates and without secrets."""
    lookups: tuple[Lookup, ...] = ()
    """Best first."""
    withheld: str = ""
    """Why nothing may be read here (a secret or ignored file); no suggestion is made then."""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """For the status item: `state` "off" means that the setting says so."""

    state: Literal["off", "indexing", "ready", "failed"]
    files: int = 0
    pending: int = 0
    bytes: int = 0
    detail: str = ""
    limited: str = ""
    """What is not indexed or not watched because there is too much of it, for people."""


class ContextRoom(Protocol):
    """What the server asks of the context room (`room.Room` is the real one).

    Every call but `gather` returns within a millisecond: work happens on the room's own threads.
    `gather` takes at most a few milliseconds and may run on any thread.
    """

    def start(self) -> None: ...

    def close(self) -> None: ...

    def set_roots(self, roots: Sequence[str]) -> None:
        """Folders of the workspace, as paths."""

    def opened(self, uri: str, language: str, text: str, version: int) -> None: ...

    def changed(self, uri: str, text: str, version: int, edits: Sequence[Edit]) -> None: ...

    def saved(self, uri: str) -> None: ...

    def closed(self, uri: str) -> None: ...

    def focused(self, uri: str) -> None: ...

    def diagnosed(self, uri: str, problems: Sequence[Problem]) -> None: ...

    def files_changed(self, paths: Sequence[str]) -> None:
        """Files that the client saw change (workspace/didChangeWatchedFiles)."""

    def gather(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Context: ...

    def withheld(self, uri: str) -> str:
        """Why nothing of this document may be read, in words; "" if it may."""

    def recent_edits(self, limit: int) -> Sequence[tuple[str, str, str]]:
        """(uri, text before, text after) of the latest grouped edits, newest first."""

    def status(self) -> IndexStatus: ...
