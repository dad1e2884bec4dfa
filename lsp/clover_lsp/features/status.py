"""The status item: which engine answers, and what the index is doing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from clover_lsp.documents.documents import MAX_CHARS, Snapshot
from clover_lsp.server import CloverServer
from clover_lsp.settings.settings import Settings
from clover_lsp.status import Report

STATUS = "clover/status"
"""Request: the params of `didChangeStatus` as they would be sent now, `index` (its state and size,
see `context.types.IndexStatus`), and `answered`: who made the latest suggestion, `origin` and
`model` (null before the first)."""
INDEX_CHECK_S = 2.0


@dataclass(slots=True)
class _Status:
    server: CloverServer
    watch: asyncio.Task[None] | None = None

    def opened(self, snapshot: Snapshot) -> None:
        """Loads the model when the first document that it knows is opened."""
        self.server.show_engine(snapshot.language)
        if self.server.settings.suggests(snapshot.language):
            self.server.workers.background.submit(self.server.engine.warm, snapshot.language)
        if self.watch is None or self.watch.done():
            self.watch = self.server.start_task(self.follow_index())

    def sized(self, snapshot: Snapshot | None) -> None:
        """Says that nothing is suggested for the document at hand where it is too large."""
        if snapshot is not None and snapshot.is_too_large:
            words = f"no suggestions: the document is larger than {MAX_CHARS // 1_000_000} MB"
            self.server.status.report("size", Report("Inactive", words))
        else:
            self.server.status.clear("size")

    def configured(self, settings: Settings) -> None:
        if not settings.completion.enabled:
            self.server.status.report("setting", Report("Inactive", "suggestions are off"))
        else:
            self.server.status.clear("setting")

    async def follow_index(self) -> None:
        """Until the index is ready; looks again with the next document that is opened."""
        while True:
            status = self.server.context.status()
            self.server.status.busy("index", status.state == "indexing")
            if status.state == "failed":
                self.server.status.report("index", Report("Warning", f"index: {status.detail}"))
            elif status.limited:
                self.server.status.report("index", Report("Normal", f"index: {status.limited}"))
            else:
                self.server.status.clear("index")
            if status.state != "indexing":
                return
            await asyncio.sleep(INDEX_CHECK_S)

    def asked(self, _: object) -> dict[str, object]:
        index = asdict(self.server.context.status())
        last = self.server.offers.last
        answered = None if last is None else {"origin": last.origin, "model": last.model}
        return {**self.server.status.params(), "index": index, "answered": answered}


def register(server: CloverServer) -> None:
    status = _Status(server)
    server.buffers.on_open(status.opened)
    server.buffers.on_size(status.sized)
    server.on_settings(status.configured)
    server.feature(STATUS)(status.asked)
