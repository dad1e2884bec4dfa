"""The context room until the real one is ready: it lets nothing be read, secrets least of all."""

from __future__ import annotations

from collections.abc import Sequence

from clover_engine.api import CancelToken
from clover_lsp.context.types import Context, Edit, IndexStatus, Place, Problem

OPENING = "the workspace is still being opened"


class ClosedRoom:
    """A `ContextRoom` that withholds everything. `reason` is what it says."""

    def __init__(self, reason: str = OPENING) -> None:
        self.reason = reason

    def start(self) -> None: ...

    def close(self) -> None: ...

    def set_roots(self, roots: Sequence[str]) -> None: ...

    def opened(self, uri: str, language: str, text: str, version: int) -> None: ...

    def changed(self, uri: str, text: str, version: int, edits: Sequence[Edit]) -> None: ...

    def saved(self, uri: str) -> None: ...

    def closed(self, uri: str) -> None: ...

    def focused(self, uri: str) -> None: ...

    def diagnosed(self, uri: str, problems: Sequence[Problem]) -> None: ...

    def files_changed(self, paths: Sequence[str]) -> None: ...

    def gather(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Context:
        return Context(place, withheld=self.reason)

    def withheld(self, uri: str) -> str:
        return self.reason

    def recent_edits(self, limit: int) -> Sequence[tuple[str, str, str]]:
        return ()

    def status(self) -> IndexStatus:
        return IndexStatus("indexing", detail=self.reason)
