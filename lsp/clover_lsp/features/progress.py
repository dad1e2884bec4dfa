"""Work-done progress of the server's own making, with a cancel button, from any thread."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from lsprotocol import types

from clover_engine.api import CancelToken

if TYPE_CHECKING:
    from clover_lsp.server import CloverServer

log = logging.getLogger(__name__)
_CREATE_S = 2.0
"""A client that does not answer gets no progress; the work goes on."""


class WorkDone:
    """One progress bar, or none where the client shows none. `report` may come from any thread."""

    def __init__(self, server: CloverServer, token: str | None) -> None:
        self._server, self._token = server, token
        self._loop = asyncio.get_running_loop()
        self.message = ""

    def report(self, message: str, percentage: int | None = None) -> None:
        self._loop.call_soon_threadsafe(self._report, message, percentage)

    def _report(self, message: str, percentage: int | None) -> None:
        if self._token is not None and message != self.message:
            self.message = message
            self._server.work_done_progress.report(
                self._token, types.WorkDoneProgressReport(message=message, percentage=percentage)
            )


@asynccontextmanager
async def work_done(
    server: CloverServer, title: str, cancel: CancelToken
) -> AsyncIterator[WorkDone]:
    """Shows progress while the block runs; the client's cancel button sets `cancel`."""
    token = await _create(server)
    if token is None:
        yield WorkDone(server, None)
        return
    server.work_done_progress.tokens[token].add_done_callback(_stopper(cancel))
    server.work_done_progress.begin(
        token, types.WorkDoneProgressBegin(title=title, cancellable=True, percentage=0)
    )
    done = WorkDone(server, token)
    try:
        yield done
    finally:
        server.work_done_progress.end(token, types.WorkDoneProgressEnd(message=done.message))
        server.work_done_progress.tokens.pop(token, None)


def _stopper(cancel: CancelToken) -> Callable[[object], None]:
    def stop(_: object) -> None:
        cancel.cancel()

    return stop


async def _create(server: CloverServer) -> str | None:
    if not server.capabilities.work_done_progress:
        return None
    token = f"clover-{uuid.uuid4().hex}"
    try:
        await asyncio.wait_for(server.work_done_progress.create_async(token), _CREATE_S)
    except Exception as error:
        log.info("no progress bar: %s", error)
        return None
    return token
