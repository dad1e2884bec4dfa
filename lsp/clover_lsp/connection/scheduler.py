"""Who works when: own threads for blocking work, and one current request a document.

pygls's thread pool stays unused: its stdin reader would share it. Each kind of work has threads of
its own, so that a next edit, a quick fix, a repair or a prefetch can never make a keystroke wait
for a thread; `SWITCH_S` says how long one may hold the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clover_engine.api import CancelToken
from clover_lsp.isolated.client import Helper

T = TypeVar("T")

SWITCH_S = 0.001
"""Python's switch interval in the server. A completion changes threads a few times, and at each
waits for whoever computes: with Python's own 5 ms that adds up to what a user sees."""


class Workers:
    """Threads for blocking work, by its kind. Nothing here outlives `close` for long.

    Next edits, quick fixes and repairs compute in helper processes; their threads only wait.
    """

    def __init__(self) -> None:
        self.interactive = ThreadPoolExecutor(4, thread_name_prefix="clover-now")
        self.edits = ThreadPoolExecutor(2, thread_name_prefix="clover-edits")
        self.actions = ThreadPoolExecutor(4, thread_name_prefix="clover-actions")
        self.repairs = ThreadPoolExecutor(4, thread_name_prefix="clover-repairs")
        self.edit_helper = Helper()
        self.action_helper = Helper()
        self.helpers: set[Helper] = set()
        """Those of the repairs that run."""
        self.background = ThreadPoolExecutor(4, thread_name_prefix="clover-later")

    async def now(self, work: Callable[[], T]) -> T:
        """Runs what a completion needs; the loop goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.interactive, work)

    async def edit(self, work: Callable[[], T]) -> T:
        """Runs the search for a next edit."""
        return await asyncio.get_running_loop().run_in_executor(self.edits, work)

    async def act(self, work: Callable[[], T]) -> T:
        """Runs what a user asked for by hand: a quick fix, a selection written anew."""
        return await asyncio.get_running_loop().run_in_executor(self.actions, work)

    async def repair(self, work: Callable[[], T]) -> T:
        """Runs a repair, which may take minutes."""
        return await asyncio.get_running_loop().run_in_executor(self.repairs, work)

    async def later(self, work: Callable[[], T]) -> T:
        """Runs work that nobody waits for (a prefetch, a model that loads)."""
        return await asyncio.get_running_loop().run_in_executor(self.background, work)

    def close(self) -> None:
        for pool in (self.interactive, self.edits, self.actions, self.repairs, self.background):
            pool.shutdown(wait=False, cancel_futures=True)
        for helper in (self.edit_helper, self.action_helper, *self.helpers):
            helper.close()


class Ticket:
    """One request for one document. `cancel` is what the engine looks at."""

    __slots__ = ("_over", "cancel", "ended_at", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cancel = CancelToken()
        self.ended_at: float | None = None
        """When `end` was first called (monotonic seconds)."""
        self._over: asyncio.Event | None = None

    @property
    def is_over(self) -> bool:
        """A newer request came, or the client cancelled."""
        return self.cancel.cancelled

    def end(self) -> None:
        """Stops the engine within one step; event loop only."""
        if self.ended_at is None:
            self.ended_at = time.monotonic()
        self.cancel.cancel()
        if self._over is not None:
            self._over.set()

    async def unless_over(self, work: Awaitable[T], timeout_s: float | None = None) -> T | None:
        """The result of `work`, or None as soon as the ticket ends or the time is over.

        Work that is left behind goes on by itself; its exception is dropped.
        """
        self._over = self._over or asyncio.Event()
        running = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._over.wait())
        running.add_done_callback(_drop_exception)
        try:
            if not self.is_over:
                await asyncio.wait(
                    {running, over}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            over.cancel()
        return running.result() if running.done() and not self.is_over else None

    async def pause(self, seconds: float) -> bool:
        """Waits; False as soon as the ticket ends."""
        self._over = self._over or asyncio.Event()
        if not self.is_over and seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), seconds)
        return not self.is_over


def _drop_exception(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()


class Tickets:
    """The newest request of a document wins: taking a ticket ends the one before."""

    def __init__(self) -> None:
        self._current: dict[str, Ticket] = {}

    def take(self, key: str) -> Ticket:
        self.end(key)
        ticket = self._current[key] = Ticket(key)
        return ticket

    def end(self, key: str) -> None:
        """Ends the document's request, if there is one."""
        old = self._current.pop(key, None)
        if old is not None:
            old.end()

    def done(self, ticket: Ticket) -> None:
        if self._current.get(ticket.key) is ticket:
            del self._current[ticket.key]

    def end_all(self) -> None:
        for key in list(self._current):
            self.end(key)
