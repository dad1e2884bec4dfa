"""From a request to what the client gets: reuse, wait, compute, check that it still fits.

Event loop only; the computation itself runs on a worker thread. One request a document is current:
a newer one ends the older one and with it the engine, within one of its steps. So does a change of
the document that no suggestion can survive.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from lsprotocol import types

from clover_engine.line_ends import to_lf
from clover_lsp.completion.compute import Ask, Computer, Suggested
from clover_lsp.completion.follow_up import FollowUp
from clover_lsp.completion.host import Host
from clover_lsp.completion.metrics import Measured
from clover_lsp.completion.offers import Offer
from clover_lsp.completion.prefetch import Prefetch
from clover_lsp.completion.tiers import computer
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.context.types import Edit, Place
from clover_lsp.documents.documents import Snapshot
from clover_lsp.suggest.debounce import Debounce
from clover_lsp.suggest.reuse import Remembered, Shown
from clover_lsp.suggest.types import Popup

log = logging.getLogger(__name__)

GRACE_S = 0.25
"""How long after the engine's own deadline an answer is waited for."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request of the client, with the document as it was then."""

    snapshot: Snapshot
    offset: int
    place: Place
    popup: Popup | None = None
    invoked: bool = False

    def typed_since(self, now: str) -> str | None:
        """What was typed at the cursor since; None where anything else changed."""
        before, at = self.snapshot.text, self.offset
        more = len(now) - len(before)
        if more < 0 or now[:at] != before[:at] or now[at + more :] != before[at:]:
            return None
        return now[at : at + more]


@dataclass(frozen=True, slots=True)
class Answer:
    """One suggestion for the client: replace the range by `text` (LF line ends)."""

    id: str
    range: types.Range
    text: str
    typed: str
    """What stands in the range now, up to the cursor."""


class Completer:
    """One for all documents of a server."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._shown = Shown()
        self._debounce = Debounce()
        self._undecided: str | None = None
        self._prefetch = Prefetch(server, self._shown, find)
        self._follow_up = FollowUp(server, self._shown, find)
        self._current: dict[str, Question] = {}
        server.buffers.on_change(self._changed)
        server.buffers.on_close(self._closed)

    def ask(
        self, snapshot: Snapshot, offset: int, popup: Popup | None, invoked: bool
    ) -> tuple[Question, Ticket]:
        """Fixes what is asked, and ends the document's request before. Pass both to `answer`."""
        place = self._server.place(snapshot, offset)
        question = Question(snapshot, offset, place, popup, invoked)
        ticket = self._server.tickets.take(snapshot.uri)
        self._current[snapshot.uri] = question
        return question, ticket

    def accepted(self, id: str) -> None:
        """The user took a suggestion: waiting less is worth it."""
        self._undecided = None
        self._debounce.decided(True)

    async def answer(self, question: Question, ticket: Ticket) -> list[Answer]:
        """What to show, best first. Never raises but for the task's own cancellation."""
        measured = self._server.metrics.begin()
        try:
            return await self._answer(question, ticket, measured)
        except asyncio.CancelledError:
            measured.end("superseded")
            raise
        except Exception:
            log.exception("no suggestion")
            measured.end("failed")
            return []
        finally:
            ticket.end()
            self._server.tickets.done(ticket)
            if self._current.get(question.snapshot.uri) is question:
                del self._current[question.snapshot.uri]

    async def _answer(self, question: Question, ticket: Ticket, measured: Measured) -> list[Answer]:
        if not self._server.settings.suggests(question.place.language):
            measured.end("nothing")
            return []
        place = lf(question.place)
        await self._prefetch.join(place, ticket)
        old = self._shown.get(place, time.monotonic(), question.popup)
        if old and not question.invoked and not ticket.is_over:
            measured.end("reused")
            return self._offer(question, old[:1], "", question.snapshot, measured)
        before = time.monotonic()
        is_wanted = await ticket.pause(self._delay_s(question))
        measured.waited_s = time.monotonic() - before
        found = await self._compute(question, ticket, measured) if is_wanted else None
        if found is None:
            measured.end("superseded" if ticket.is_over else "nothing")
            return []
        return self._checked(question, found, measured)

    def _checked(
        self, question: Question, suggested: Suggested, measured: Measured
    ) -> list[Answer]:
        """Drops what the document has outgrown; what was typed through meanwhile stays."""
        current = self._server.documents.get(question.snapshot.uri)
        typed = None if current is None else question.typed_since(current.text)
        if current is None or typed is None:
            measured.end("stale" if suggested.suggestions else "nothing")
            return []
        stored = self._shown.put(lf(question.place), suggested.suggestions, time.monotonic())
        fitting = [
            remembered
            for remembered in stored
            if remembered.suggestion.text[remembered.suggestion.replace_before :].startswith(typed)
        ]
        if suggested.is_quick and fitting and not typed:
            self._follow_up.after(lf(question.place), suggested.suggestions)
        self._debounce.answered(suggested.engine_s)
        measured.end("offered" if fitting else "stale" if stored else "nothing")
        return self._offer(question, fitting, typed, current, measured)

    def _delay_s(self, question: Question) -> float:
        longest = self._server.settings.completion.debounce_ms / 1000
        return min(longest, self._debounce.wait_s(question.place, question.invoked))

    async def _compute(
        self, question: Question, ticket: Ticket, measured: Measured
    ) -> Suggested | None:
        server = self._server
        removed = server.buffers.log.removed(question.snapshot.uri)
        ask = Ask(question.place, question.popup, question.invoked, removed)
        means = computer(server, question.place.language, invoked=question.invoked)
        work = asyncio.ensure_future(
            server.workers.now(functools.partial(find, means, ask, ticket))
        )
        work.add_done_callback(functools.partial(_measure, ticket, measured))
        limit = server.settings.completion.deadline_ms / 1000 + GRACE_S
        return await ticket.unless_over(work, limit)

    def _offer(
        self,
        question: Question,
        stored: Sequence[Remembered],
        typed: str,
        current: Snapshot,
        measured: Measured,
    ) -> list[Answer]:
        if stored and not question.invoked and not typed:
            self._prefetch.after(question.snapshot, question.offset, lf(question.place), stored[0])
        answers = [self._one(question, r, typed, current, measured) for r in stored]
        if answers and self._undecided not in (None, answers[0].id):
            self._debounce.decided(False)
        self._undecided = answers[0].id if answers else self._undecided
        return answers

    def _one(
        self,
        question: Question,
        remembered: Remembered,
        typed: str,
        current: Snapshot,
        measured: Measured,
    ) -> Answer:
        suggestion = remembered.suggestion
        id = self._server.offers.id_of(remembered.identity)
        text, ms = suggestion.text, 1000 * measured.total_s
        origin, model = suggestion.origin, suggestion.model
        offer = Offer(id, current.uri, current.language, origin, text, ms, model)
        self._server.offers.offered(offer)
        cursor = question.offset + len(typed)
        start = question.offset - suggestion.replace_before
        span = current.range(start, cursor + suggestion.replace_after)
        return Answer(id, span, text, current.text[start:cursor])

    def _changed(self, before: Snapshot, after: Snapshot, edits: tuple[Edit, ...]) -> None:
        self._debounce.typed(time.monotonic())
        self._prefetch.changed(after)
        self._follow_up.stop()
        question = self._current.get(after.uri)
        if question is not None and question.typed_since(after.text) is None:
            self._server.tickets.end(after.uri)

    def clear(self) -> None:
        """Forgets every suggestion of the open documents; they are asked for anew."""
        self._prefetch.stop()
        self._follow_up.stop()
        for snapshot in self._server.documents:
            self._shown.forget_document(snapshot.uri)

    def _closed(self, uri: str) -> None:
        self._server.tickets.end(uri)
        self._shown.forget_document(uri)
        self._prefetch.stop()
        self._follow_up.stop()


def lf(place: Place) -> Place:
    """The place with LF line ends: suggestions have those, so that they can be compared."""
    prefix, suffix = to_lf(place.prefix), to_lf(place.suffix)
    if prefix is place.prefix and suffix is place.suffix:
        return place
    return Place(place.uri, place.language, prefix, suffix, place.version)


def find(computer: Computer, ask: Ask, ticket: Ticket) -> Suggested:
    """The computation on a worker thread; nothing where the ticket ended before it began."""
    found = Suggested() if ticket.is_over else computer.find(ask, ticket.cancel)
    if not found.suggestions and found.reason:
        log.info("no suggestion: %s", found.reason)
    return found


def _measure(ticket: Ticket, measured: Measured, work: asyncio.Future[Suggested]) -> None:
    if work.cancelled() or work.exception() is not None:
        return
    found = work.result()
    measured.engine_s = found.engine_s
    if ticket.ended_at is not None and found.engine_ended > ticket.ended_at:
        measured.stopped_s = found.engine_ended - ticket.ended_at
