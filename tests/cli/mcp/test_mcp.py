"""The tools, called by the SDK's own client: in memory, and over a real process."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from tests.cli.broken import BROKEN

from clover_code.desk import Desk
from clover_code.mcp.server import make_server

CHECK = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
TOOLS = {"fix", "apply", "undo", "check", "context", "infill", "decide"}


def with_client(server: Any, use: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Client(server) as client:
            await use(client)

    asyncio.run(main())


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0].text)  # type: ignore[union-attr]


def test_fix_apply_undo(desk: Desk, repository: Path) -> None:
    told: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        assert total is not None and 0 <= done <= total
        told.append(message or "")

    async def use(client: Client) -> None:
        answer = await client.call_tool("fix", {"check": CHECK}, progress_callback=progress)
        found: Any = answer.structured_content
        assert found["status"] == "fixed" and not found["applied"], found
        assert "-    return items[len(items)]" in found["patch"]
        assert found["failures"][0]["test"].endswith("test_last") and found["explanation"]
        assert (repository / "shop.py").read_text() == BROKEN
        assert any(message.startswith("baseline: running") for message in told)
        done = await call(client, "apply", patch_id=found["patch_id"])
        assert done["applied"] and done["files"] == ["shop.py"]
        assert (await call(client, "check", check=CHECK))["status"] == "passed"
        again = await refusal(client, "apply", patch_id=found["patch_id"])
        assert "shop.py" in again
        undone = await call(client, "undo", id=done["id"])
        assert undone["undone"] and (repository / "shop.py").read_text() == BROKEN

    with_client(make_server(desk, "1"), use)


def test_check_tells_the_failure(desk: Desk, repository: Path) -> None:
    async def use(client: Client) -> None:
        found = await call(client, "check", check=CHECK)
        assert found["status"] == "failed" and "IndexError" in found["output"]
        assert [failure["kind"] for failure in found["failures"]] == ["IndexError"]
        assert "not a folder" in await refusal(client, "check", check=CHECK, folder="/")
        assert "nowhere" in await refusal(client, "check", check="nowhere -x")

    with_client(make_server(desk, "1"), use)


def test_context_infill_decide(desk: Desk) -> None:
    async def use(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        found = await call(client, "context", place="test_shop.py:5:12")
        assert any("def last" in snippet["text"] for snippet in found["snippets"])
        hidden = await call(client, "context", place=".env:1:9")
        assert "secrets" in hidden["withheld"] and not hidden["snippets"]
        assert (await call(client, "infill", place="shop.py:2:12"))["text"] == "items[-1]"
        assert "secrets" in await refusal(client, "infill", place=".env:1:9")
        assert "not in" in await refusal(client, "infill", place="../../x.py:1:1")
        questions = [{"text": "Which?", "options": ["this", "that"]}]
        answers = (await call(client, "decide", material="m", questions=questions))["answers"]
        assert answers[0]["answer"] == "this" and sum(answers[0]["probabilities"]) == 1
        wrong = [{"text": "Which?", "options": ["only"]}]
        assert "options" in await refusal(client, "decide", material="m", questions=wrong)
        assert "no patch 'x'" in await refusal(client, "apply", patch_id="x")

    with_client(make_server(desk, "1"), use)


def process(repository: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "clover_code", "mcp", "--engine", "none"],
        cwd=repository,
        env={**os.environ, "CLOVER_CACHE_DIR": str(repository.parent / "cache")},
    )


def test_a_real_process(repository: Path) -> None:
    async def use(client: Client) -> None:
        assert client.server_info.name == "clover-code"
        assert (await call(client, "check", check=CHECK))["status"] == "failed"
        assert "no fix to undo" in await refusal(client, "undo")
        assert "no model" in await refusal(client, "infill", place="shop.py:2:12")

    with_client(process(repository), use)


SLOW = """\
import time


def test_last():
    while True:
        with open({mark!r}, "a") as file:
            file.write("x")
        time.sleep(0.02)
"""


def test_a_cancelled_call_ends_its_check(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "running"
    (repository / "test_shop.py").write_text(SLOW.format(mark=str(mark)))

    async def use(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("check", {"check": CHECK}))
            while not mark.exists():
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        before = -1
        while before != (before := mark.stat().st_size):
            await anyio.sleep(1)
        assert "no patch" in await refusal(client, "apply", patch_id="x")

    with_client(process(repository), use)


def test_a_call_that_takes_too_long_says_so(desk: Desk, repository: Path, tmp_path: Path) -> None:
    (repository / "test_shop.py").write_text(SLOW.format(mark=str(tmp_path / "running")))

    async def use(client: Client) -> None:
        found = await call(client, "check", check=CHECK, timeout_s=1)
        assert found["status"] == "timeout", found

    with_client(make_server(desk, "1"), use)


@pytest.mark.parametrize("folder", [Path("/"), Path("/nowhere")])
def test_a_folder_that_cannot_be_served(command: Any, folder: Path) -> None:
    ran = command("mcp", "--root", str(folder))
    assert ran.code == 2 and str(folder) in ran.err
