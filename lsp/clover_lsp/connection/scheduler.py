"""Who works when: own threads for blocking work, and one current request a document.

pygls's thread pool stays unused: its stdin reader would share it. Interactive work has threads of
its own, so that a fix or a prefetch can never make a keystroke wait for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clover_engine.api import CancelToken

T = TypeVar("T")


class Workers:
    """Threads for blocking work. Nothing here outlives `close` for long."""

    def __init__(self) -> None:
        self.interactive = ThreadPoolExecutor(4, thread_name_prefix="clover-now")
        self.background = ThreadPoolExecutor(4, thread_name_prefix="clover-later")

    async def now(self, work: Callable[[], T]) -> T:
        """Runs work that a user waits for; the loop goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.interactive, work)

    async def later(self, work: Callable[[], T]) -> T:
        """Runs work that may take long (a fix, a prefetch)."""
        return await asyncio.get_running_loop().run_in_executor(self.background, work)

    def close(self) -> None:
        for pool in (self.interactive, self.background):
            pool.shutdown(wait=False, cancel_futures=True)


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
