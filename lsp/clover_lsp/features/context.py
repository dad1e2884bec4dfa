"""Opens the context room for the workspace, and opens it anew when its settings change."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clover_lsp.context.closed_room import ClosedRoom
from clover_lsp.server import CloverServer
from clover_lsp.settings.settings import ContextSettings, Settings
from clover_lsp.status import Report

if TYPE_CHECKING:
    from clover_lsp.context.room import Room

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Context:
    server: CloverServer
    is_ready: bool = False
    opened_with: ContextSettings | None = None

    def ready(self) -> None:
        self.is_ready = True
        self.configured(self.server.settings)

    def configured(self, settings: Settings) -> None:
        """Only what the room is built with makes a new one; the budget is asked each time."""
        wanted, before = settings.context, self.opened_with
        if not self.is_ready:
            return
        if before is None or (before.index, before.ignore) != (wanted.index, wanted.ignore):
            self.opened_with = wanted
            self.server.start_task(self._open(wanted))

    async def _open(self, settings: ContextSettings) -> None:
        """Grammars and stores take a while to import: not on the loop."""
        try:
            room = await self.server.workers.later(lambda: make_room(settings))
        except Exception as error:
            log.exception("the context room cannot be opened")
            self.server.buffers.use(ClosedRoom(f"the context room failed: {error}"))
            report = Report("Error", "nothing can be suggested: see the log")
            self.server.status.report("context", report)
            return
        if self.opened_with is settings:
            room.set_roots(self.server.roots)
            room.start()
            self.server.buffers.use(room)


def make_room(settings: ContextSettings) -> Room:
    """The real room; raises what its imports raise."""
    from clover_lsp.context.room import Room, RoomOptions

    return Room(RoomOptions(exclude=settings.ignore, index=settings.index))


def register(server: CloverServer) -> None:
    context = _Context(server)
    server.on_ready(context.ready)
    server.on_settings(context.configured)
