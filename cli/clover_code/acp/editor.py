"""The client as a worker thread sees it: told in order what happens, asked for permission.

The thread that works calls these methods; what they send leaves on the event loop, one after the
other. A question is asked after all that was told before it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any, TypeVar

from acp import RequestError, helpers
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    PermissionOption,
    PlanEntryStatus,
    ToolCallLocation,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
)

from clover_engine.api import CancelToken
from clover_patcher.edits import FileChange
from clover_patcher.errors import Cancelled

T = TypeVar("T")
_POLL_S = 0.1
ALLOW, REJECT = "allow", "reject"


class Editor:
    """One prompt's view of the client."""

    def __init__(
        self, client: Client, session: str, can: ClientCapabilities, cancel: CancelToken
    ) -> None:
        """Made on the event loop."""
        self._client, self._session, self.cancel = client, session, cancel
        self.reads = bool(can.fs and can.fs.read_text_file)
        self.writes = bool(can.fs and can.fs.write_text_file)
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Any] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._sender = asyncio.ensure_future(self._send())

    # On the event loop

    async def _send(self) -> None:
        while True:
            update = await self._updates.get()
            try:
                await self._client.session_update(self._session, update)
            finally:
                self._updates.task_done()

    async def close(self) -> None:
        """Everything that was told has left, then nothing more does."""
        flushed = asyncio.ensure_future(self._updates.join())
        await asyncio.wait((flushed, self._sender), return_when=asyncio.FIRST_COMPLETED)
        flushed.cancel()
        self._sender.cancel()

    # On the thread that works

    def say(self, text: str) -> None:
        """A part of the answer."""
        self._tell(helpers.update_agent_message_text(text))

    def think(self, text: str) -> None:
        """What the model writes on the way."""
        self._tell(helpers.update_agent_thought_text(text))

    def plan(self, steps: Sequence[tuple[str, PlanEntryStatus]]) -> None:
        self._tell(
            helpers.update_plan([helpers.plan_entry(text, status=status) for text, status in steps])
        )

    def begin(
        self, title: str, kind: ToolKind, path: Path | None = None, line: int | None = None
    ) -> ToolCall:
        """A tool call that is under way."""
        id = f"call-{next(self._numbers)}"
        places = [ToolCallLocation(path=str(path), line=line)] if path else None
        self._tell(
            helpers.start_tool_call(id, title, kind=kind, status="in_progress", locations=places)
        )
        return ToolCall(self, id)

    def read(self, path: Path) -> str | None:
        """The file's text as the editor has it, unsaved changes included; None where it cannot
        say."""
        if not self.reads:
            return None
        try:
            asked = self._asked(lambda: self._client.read_text_file(self._session, str(path)))
        except RequestError:
            return None
        return asked.content

    def write(self, path: Path, text: str) -> None:
        """Has the editor write the file. Raises `RequestError` where it does not."""
        self._asked(lambda: self._client.write_text_file(self._session, str(path), text))

    def may(self, call: ToolCall, title: str, allow: str, reject: str) -> bool:
        """Whether the user allows what the tool call is about to do."""
        options = [
            PermissionOption(option_id=ALLOW, name=allow, kind="allow_once"),
            PermissionOption(option_id=REJECT, name=reject, kind="reject_once"),
        ]
        about = ToolCallUpdate(tool_call_id=call.id, title=title, status="pending")
        answer = self._asked(lambda: self._client.request_permission(self._session, about, options))
        outcome = answer.outcome
        if not isinstance(outcome, AllowedOutcome):
            self.cancel.cancel()  # the user stopped the turn
            raise Cancelled("stopped: nothing was changed")
        return outcome.option_id == ALLOW

    def update(self, update: Any) -> None:
        self._tell(update)

    def _tell(self, update: Any) -> None:
        self._loop.call_soon_threadsafe(self._updates.put_nowait, update)

    def _asked(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The client's answer. Raises `Cancelled` when the turn is, `RequestError` as it says."""

        async def in_order() -> T:
            await self._updates.join()
            return await ask()

        future = asyncio.run_coroutine_threadsafe(in_order(), self._loop)
        while True:
            try:
                return future.result(_POLL_S)
            except Late:
                if self.cancel.cancelled:
                    future.cancel()
                    raise Cancelled("stopped: nothing was changed") from None


class ToolCall:
    """One entry of the client's list of what the agent does."""

    def __init__(self, editor: Editor, id: str) -> None:
        self._editor, self.id = editor, id

    def title(self, text: str) -> None:
        self._editor.update(helpers.update_tool_call(self.id, title=text))

    def show(self, root: Path, changes: Sequence[FileChange], line: int | None = None) -> None:
        """The diffs, and the places that they are about."""
        content = [_diff(root, change) for change in changes]
        places = [
            ToolCallLocation(path=str(root / change.path), line=line if not number else None)
            for number, change in enumerate(changes)
        ]
        self._editor.update(helpers.update_tool_call(self.id, content=content, locations=places))

    def end(self, text: str = "", *, ok: bool = True) -> None:
        """How it ended; a text replaces what was shown."""
        status: ToolCallStatus = "completed" if ok else "failed"
        content = [helpers.tool_content(helpers.text_block(text))] if text else None
        self._editor.update(helpers.update_tool_call(self.id, status=status, content=content))


def _diff(root: Path, change: FileChange) -> Any:
    new = change.after.decode("utf-8", "replace")
    old = None if change.created else change.before.decode("utf-8", "replace")
    return helpers.tool_diff_content(str(root / change.path), new, old)
