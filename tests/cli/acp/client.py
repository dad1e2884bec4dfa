"""The official SDK's client on a real `clover-code acp`: it remembers all that it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    WriteTextFileResponse,
)

CAN = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))


class Client:
    """Answers permissions with `answer` ("allow", "reject" or "cancelled"); has open buffers."""

    def __init__(self, answer: str = "allow") -> None:
        self.answer = answer
        self.buffers: dict[str, str] = {}
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.on_update: Callable[[Any], None] = lambda update: None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.on_update(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=self.answer)
        return RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        text = self.buffers.get(path)
        return ReadTextFileResponse(content=Path(path).read_text() if text is None else text)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        self.buffers[path] = content
        Path(path).write_text(content)
        return WriteTextFileResponse()

    def on_connect(self, conn: Any) -> None: ...

    @property
    def said(self) -> str:
        """The agent's messages, joined."""
        return "".join(u.content.text for u in self.of("agent_message_chunk"))

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]


class Talk:
    """One session."""

    def __init__(self, agent: Any, client: Client, session: str) -> None:
        self.agent, self.client, self.session = agent, client, session

    async def ask(self, *blocks: Any) -> str:
        """A prompt; why it ended. What was told is in the client alone for this prompt."""
        self.client.updates.clear()
        self.client.asked.clear()
        prompt = [acp.text_block(each) if isinstance(each, str) else each for each in blocks]
        answer = await self.agent.prompt(session_id=self.session, prompt=prompt)
        return str(answer.stop_reason)


def copies_of(folder: Path) -> Path:
    """Where the agent of `talking` makes its copies of the tree."""
    place = folder.parent / "copies"
    place.mkdir(exist_ok=True)
    return place


@contextlib.asynccontextmanager
async def talking(
    folder: Path, client: Client, can: ClientCapabilities = CAN, **fake: Any
) -> AsyncIterator[Talk]:
    """A session of a new agent whose model is scripted."""
    worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(fake)]
    env = {
        **os.environ,
        "CLOVER_WORKER": shlex.join(worker),
        "CLOVER_CACHE_DIR": str(folder.parent / "cache"),
        "TMPDIR": str(copies_of(folder)),
    }
    command = [sys.executable, "-P", "-m", "clover_code", "acp"]
    async with acp.spawn_agent_process(
        client,  # type: ignore[arg-type]
        *command,
        env=env,
        cwd=folder,
    ) as (agent, process):
        hello = await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=can
        )
        assert hello.protocol_version == 1 and hello.agent_info.name == "clover-code"
        session = await agent.new_session(cwd=str(folder), mcp_servers=[])
        yield Talk(agent, client, session.session_id)


def in_session(
    folder: Path,
    use: Callable[[Talk], Any],
    client: Client | None = None,
    seconds: float = 120.0,
    **fake: Any,
) -> Client:
    """Runs a test's conversation."""
    client = client or Client()

    async def main() -> None:
        async with talking(folder, client, **fake) as talk:
            await asyncio.wait_for(use(talk), seconds)

    asyncio.run(main())
    return client
