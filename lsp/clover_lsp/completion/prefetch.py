"""The suggestion after the one that is shown: computed while the user reads it.

Starts a moment after an offer, in the background: any interactive request goes first, and any
change of a document other than the acceptance itself stops it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

from clover_engine.line_ends import to_lf
from clover_lsp.completion.compute import Ask, Computer, Suggested
from clover_lsp.completion.host import Host
from clover_lsp.completion.tiers import strong_computer
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.context.types import Place
from clover_lsp.documents.documents import Snapshot
from clover_lsp.suggest.reuse import Remembered, Shown
from clover_lsp.suggest.scene import accepted

DELAY_S = 0.15
"""After an offer; who goes on typing by then is not waiting for the suggestion after it."""

Find = Callable[[Computer, Ask, Ticket], Suggested]


@dataclass(slots=True)
class _Run:
    place: Place
    """After the acceptance, with LF line ends."""
    text: str
    """The document after the acceptance, with LF line ends."""
    ticket: Ticket
    task: asyncio.Task[None] | None = None
    is_running: bool = False


class Prefetch:
    """At most one at a time. Event loop only."""

    def __init__(self, server: Host, shown: Shown, find: Find) -> None:
        self._server = server
        self._shown = shown
        self._find = find
        self._run: _Run | None = None

    def after(self, snapshot: Snapshot, offset: int, place: Place, offered: Remembered) -> None:
        """Prepares for the acceptance of what was just offered at `place` (LF line ends)."""
        self.stop()
        if not self._server.settings.completion.prefetch:
            return
        suggestion = offered.suggestion
        before, beyond = suggestion.replace_before, suggestion.replace_after
        head, tail = snapshot.text[: offset - before], snapshot.text[offset + beyond :]
        run = self._run = _Run(
            accepted(place, suggestion.text, before, beyond),
            to_lf(head) + suggestion.text + to_lf(tail),
            Ticket(place.uri),
        )
        run.task = self._server.start_task(self._work(run))

    def stop(self) -> None:
        if self._run is not None:
            self._run.ticket.end()
            self._run = None

    def changed(self, snapshot: Snapshot) -> None:
        """A document changed: only the acceptance itself lets the prefetch go on."""
        run = self._run
        if run is not None and (snapshot.uri != run.place.uri or to_lf(snapshot.text) != run.text):
            self.stop()

    async def join(self, place: Place, ticket: Ticket) -> None:
        """If just this place (LF line ends) is being prefetched, waits for that."""
        run = self._run
        if run is None or run.task is None or not run.is_running:
            return
        mine = run.place
        if (mine.uri, mine.prefix, mine.suffix) == (place.uri, place.prefix, place.suffix):
            await ticket.unless_over(asyncio.shield(run.task))

    async def _work(self, run: _Run) -> None:
        if not await run.ticket.pause(DELAY_S):
            return
        server = self._server
        computer = strong_computer(server, run.place.language)
        if computer is None:
            return
        server.metrics.prefetches += 1
        run.is_running = True
        try:
            ask = Ask(run.place, origin="prefetch")
            work = functools.partial(self._find, computer, ask, run.ticket)
            found = await run.ticket.unless_over(server.workers.later(work))
        finally:
            run.is_running = False
        if found is not None and found.suggestions:
            self._shown.put(run.place, found.suggestions, time.monotonic())
