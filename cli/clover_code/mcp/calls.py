"""One tool call: work on a thread, told about as it goes on, ended when the client cancels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from clover_code.errors import UserError
from clover_engine.api import CancelToken
from clover_engine.errors import EngineError
from clover_patcher.errors import PatcherError
from clover_patcher.progress import Stage

T = TypeVar("T")


async def called(
    context: Context[Any, Any], seconds: float, work: Callable[[CancelToken, Told], T]
) -> T:
    """The work's result within about `seconds`; what is wrong is a `ToolError` in words."""
    cancel = CancelToken()
    told = Told(context, seconds)
    task = asyncio.ensure_future(asyncio.to_thread(work, cancel, told))
    late = asyncio.get_running_loop().call_later(seconds, cancel.cancel)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancel.cancel()
        with anyio.CancelScope(shield=True):  # the copies of the tree are removed first
            await asyncio.wait((task,))
        raise
    except (PatcherError, EngineError, UserError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        if cancel.cancelled:
            words += f" (the time for this call, {seconds:g} s, was over)"
        raise ToolError(words) from error
    finally:
        late.cancel()
        await told.done()


class Told:
    """The patcher's events as progress: seconds of those that the call may take."""

    def __init__(self, context: Context[Any, Any], seconds: float) -> None:
        self._context, self._seconds = context, seconds
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._sent: list[Future[None]] = []

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        spent = min(time.monotonic() - self._began, self._seconds)
        tried = f" ({numbers['tried']:.0f} tried)" if "tried" in numbers else ""
        report = self._context.report_progress(spent, self._seconds, f"{stage}: {message}{tried}")
        self._sent.append(asyncio.run_coroutine_threadsafe(report, self._loop))

    async def done(self) -> None:
        """Waits until the client was told all of it."""
        for sent in self._sent:
            if not sent.done():
                await asyncio.wait((asyncio.wrap_future(sent),))
