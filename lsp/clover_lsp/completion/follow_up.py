"""The strong model's text for a place where something else was shown at once.

It is computed in the background while the user reads or types on, and remembered behind what is
shown: it comes up when the user's next characters disagree with that, and never replaces a text on
the screen. The model has read the place by then, too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

from clover_lsp.completion.compute import Ask
from clover_lsp.completion.host import Host
from clover_lsp.completion.prefetch import DELAY_S, Find
from clover_lsp.completion.tiers import strong_computer
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.context.types import Place
from clover_lsp.suggest.reuse import Shown
from clover_lsp.suggest.types import Suggestion


class FollowUp:
    """At most one at a time. Event loop only."""

    def __init__(self, server: Host, shown: Shown, find: Find) -> None:
        self._server, self._shown, self._find = server, shown, find
        self._ticket: Ticket | None = None

    def after(self, place: Place, answered: Sequence[Suggestion]) -> None:
        """`place` (LF line ends) was answered without the strong model."""
        self.stop()
        if self._server.settings.completion.prefetch:
            self._ticket = Ticket(place.uri)
            self._server.start_task(self._work(self._ticket, place, tuple(answered)))

    def stop(self) -> None:
        if self._ticket is not None:
            self._ticket.end()
            self._ticket = None

    async def _work(self, ticket: Ticket, place: Place, answered: tuple[Suggestion, ...]) -> None:
        server = self._server
        if not await ticket.pause(DELAY_S):
            return
        computer = strong_computer(server, place.language)
        if computer is None:
            return
        server.metrics.follow_ups += 1
        work = functools.partial(self._find, computer, Ask(place), ticket)
        found = await ticket.unless_over(server.workers.later(work))
        if found is not None:
            texts = {suggestion.text for suggestion in answered}
            others = [s for s in found.suggestions if s.text not in texts]
            self._shown.add(place, others, time.monotonic())
