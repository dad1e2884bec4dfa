"""The agent's side of the protocol: sessions, prompts, cancellation."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
)

from clover_code.acp import repairs, words
from clover_code.acp.editor import Editor
from clover_code.acp.prompts import COMMANDS, Prompt, commands_update, read_prompt
from clover_code.desk import Desk, Models
from clover_code.errors import UserError
from clover_engine.api import CancelToken
from clover_engine.errors import EngineError, RequestCancelled
from clover_patcher.errors import Cancelled, PatcherError

log = logging.getLogger(__name__)

_NO_CHECK = ("none", "no", "-")


@dataclass(slots=True)
class Session:
    """One conversation of an editor."""

    id: str
    cwd: Path
    check: str | None = None
    """What the user said that the check is: "" for none, None where nothing was said."""
    desk: Desk | None = None
    cancel: CancelToken | None = None
    """Of the prompt that is worked on."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class CloverAgent:
    """Implements `acp.interfaces.Agent`."""

    def __init__(self, models: Models, version: str) -> None:
        self._models, self._version = models, version
        self._sessions: dict[str, Session] = {}
        self._can = ClientCapabilities()
        self._client: Client | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        self._can = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="clover-code", title="Clover", version=self._version),
            agent_capabilities=AgentCapabilities(
                load_session=False,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """There is nothing to log in to."""

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        if not os.path.isabs(cwd) or not os.path.isdir(cwd):
            raise RequestError.invalid_params({"cwd": "the absolute path of a folder"})
        session = Session(uuid.uuid4().hex, Path(cwd))
        self._sessions[session.id] = session
        # The client learns the session's id from the answer, which leaves first.
        task = asyncio.ensure_future(self._advertise(session.id))
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return NewSessionResponse(session_id=session.id)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        if session.cancel is not None:
            raise RequestError.invalid_request({"message": "the last prompt is being worked on"})
        assert self._client is not None
        session.cancel = cancel = CancelToken()
        editor = Editor(self._client, session_id, self._can, cancel)
        try:
            await asyncio.to_thread(self._work, session, editor, read_prompt(prompt))
        finally:
            cancelled = cancel.cancelled
            cancel.cancel()
            session.cancel = None
            await editor.close()
        return PromptResponse(stop_reason="cancelled" if cancelled else "end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.cancel is not None:
            session.cancel.cancel()

    async def close_session(self, session_id: str, **_: Any) -> None:
        await self.cancel(session_id)
        session = self._sessions.pop(session_id, None)
        if session is not None and session.desk is not None:
            await asyncio.to_thread(session.desk.close)

    def stop(self) -> None:
        """Ends whatever is worked on; the client is gone."""
        for session in self._sessions.values():
            if session.cancel is not None:
                session.cancel.cancel()

    def close(self) -> None:
        for session in self._sessions.values():
            if session.desk is not None:
                session.desk.close()

    async def _advertise(self, session_id: str) -> None:
        assert self._client is not None
        await self._client.session_update(session_id, commands_update())

    def _session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise RequestError.invalid_params({"sessionId": "no such session"})
        return self._sessions[session_id]

    # On the thread that works

    def _work(self, session: Session, editor: Editor, prompt: Prompt) -> None:
        """What goes wrong is said in words; a cancelled prompt ends without any."""
        try:
            session.desk = session.desk or Desk(session.cwd, self._models)
            self._carry_out(session.desk, session, editor, prompt)
        except (Cancelled, RequestCancelled) as error:
            if not editor.cancel.cancelled:
                editor.say(f"Stopped: {error}")
        except (PatcherError, EngineError, UserError) as error:
            if not editor.cancel.cancelled:
                editor.say(" ".join(str(error).split()))
        except Exception as error:
            log.exception("a prompt failed")
            editor.say(f"Unexpected {type(error).__name__}: see the agent's log. {error}")

    def _carry_out(self, desk: Desk, session: Session, editor: Editor, prompt: Prompt) -> None:
        if prompt.command in ("fix", "check"):
            if prompt.words in _NO_CHECK:
                session.check = ""
                editor.say("Changes are made without a check from now on.")
                return
            check = repairs.require_check(desk, session.check or "", prompt.words)
            session.check = check
            (repairs.fix if prompt.command == "fix" else repairs.run_check)(
                desk, editor, prompt, check
            )
        elif prompt.command:
            _OTHERS[prompt.command](desk, editor, prompt)
        elif not prompt.words:
            editor.say(_HELP)
        else:
            known = session.check
            words.carry_out(desk, editor, prompt, desk.detected_check() if known is None else known)


_OTHERS: dict[str, Callable[[Desk, Editor, Prompt], None]] = {
    "undo": repairs.undo,
    "edit": words.edit,
    "message": words.message,
}
_HELP = "Say what to do, or:\n" + "".join(
    f"- `/{name} {hint}`: {description}\n" for name, (description, hint) in COMMANDS.items()
)
