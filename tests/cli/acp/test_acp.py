"""The agent, asked by the official SDK's client over the real process."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

import acp
import pytest
from acp.schema import ClientCapabilities
from tests.cli.acp.client import Client, Talk, in_session, talking
from tests.cli.broken import BROKEN

CHECK = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
ANSWER = "```python\ndef last(items):\n    return items[-1]\n```\n"


def status(repository: Path) -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=True
    ).stdout


def test_fix_and_undo(repository: Path) -> None:
    shop = repository / "shop.py"

    async def use(talk: Talk) -> None:
        client = talk.client
        assert await talk.ask(f"/fix {CHECK}") == "end_turn"
        assert "items[len(items)]" not in shop.read_text(), client.said
        assert len(client.asked) == 1 and "shop.py" in client.asked[0].title
        calls = client.of("tool_call")
        assert [call.kind for call in calls] == ["execute", "edit"]
        diffs = [
            c for u in client.of("tool_call_update") for c in u.content or [] if c.type == "diff"
        ]
        assert [diff.path for diff in diffs] == [str(shop)]
        assert diffs[0].old_text == BROKEN and diffs[0].new_text == shop.read_text()
        plans = client.of("plan")
        assert [entry.status for entry in plans[-1].entries] == ["completed"] * 3
        assert "Failing before" in client.said and "/undo" in client.said
        assert await talk.ask("/check") == "end_turn"
        assert "passes" in client.said
        assert await talk.ask("/undo") == "end_turn"
        assert shop.read_text() == BROKEN and "Undone" in client.said
        await talk.ask("/undo")
        assert "no fix to undo" in client.said

    in_session(repository, use)


def test_commands_are_offered_after_the_session_is_known(repository: Path) -> None:
    """Clients drop what is about a session that they do not know yet."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "session/new",
            "params": {"cwd": str(repository), "mcpServers": []},
        },
    ]
    import json

    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "clover_code", "acp", "--engine", "none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    for message in messages:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    assert [answer.get("id") for answer in answers] == [1, 2, None]
    update = answers[2]["params"]["update"]
    assert update["sessionUpdate"] == "available_commands_update"
    names = {command["name"] for command in update["availableCommands"]}
    assert names == {"fix", "edit", "check", "undo", "message"}


@pytest.mark.parametrize("answer", ["reject", "cancelled"])
def test_without_permission_nothing_changes(repository: Path, answer: str) -> None:
    async def use(talk: Talk) -> None:
        wanted = "cancelled" if answer == "cancelled" else "end_turn"
        assert await talk.ask("/edit shop.py:1-2 take the last one") == wanted
        assert len(talk.client.asked) == 1

    in_session(repository, use, Client(answer), answers=[ANSWER])
    assert (repository / "shop.py").read_text() == BROKEN and not status(repository)


def test_unsaved_changes_are_edited_in_the_editor(repository: Path) -> None:
    """The buffer counts, not the file; the editor writes, and what else is unsaved stays."""
    shop = repository / "shop.py"
    client = Client()
    client.buffers[str(shop)] = BROKEN + "\n\nRATE = 2\n"

    async def use(talk: Talk) -> None:
        await talk.ask("/edit shop.py:1-2 take the last one")
        assert "unsaved changes" in talk.client.said, talk.client.said

    in_session(repository, use, client, answers=[ANSWER])
    assert shop.read_text() == "def last(items):\n    return items[-1]\n\n\nRATE = 2\n"


@pytest.mark.long
def test_unsaved_changes_are_what_is_repaired(repository: Path) -> None:
    """The buffer has the fault, the file on disk has not."""
    shop = repository / "shop.py"
    shop.write_text("def last(items):\n    return items[-1]\n")
    client = Client()
    client.buffers[str(shop)] = BROKEN + "\n\nRATE = 2\n"

    async def use(talk: Talk) -> None:
        await talk.ask(f"/check {CHECK}")
        assert "fails" in talk.client.said
        await talk.ask("/fix")
        assert "unsaved changes" in talk.client.said, talk.client.said

    in_session(repository, use, client)
    assert "RATE = 2" in shop.read_text() and "items[len(items)]" not in shop.read_text()


def test_without_the_editor_s_files_the_disk_counts(repository: Path) -> None:
    async def main() -> None:
        client = Client()
        async with talking(repository, client, ClientCapabilities(), answers=[ANSWER]) as talk:
            await talk.ask("/edit shop.py:1-2 take the last one")
            assert "Applied" in client.said, client.said

    asyncio.run(main())
    assert (repository / "shop.py").read_text() == "def last(items):\n    return items[-1]\n"


def test_an_edit_of_a_linked_selection(repository: Path) -> None:
    shop = repository / "shop.py"

    async def use(talk: Talk) -> None:
        link = acp.resource_link_block("shop.py", f"{shop.as_uri()}#L1:2")
        assert await talk.ask("/edit ", link, " take the last one") == "end_turn"
        assert shop.read_text() == "def last(items):\n    return items[-1]\n", talk.client.said
        start = talk.client.of("tool_call")[0]
        assert start.kind == "edit" and start.locations[0].line == 1
        await talk.ask("/edit nonsense")
        assert "FILE:FROM-TO" in talk.client.said

    in_session(repository, use, answers=[ANSWER])


def test_plain_words_are_carried_out_in_a_copy(repository: Path) -> None:
    shop = repository / "shop.py"
    answers = [f"EDIT shop.py::last\n{ANSWER}", "DONE it takes the last one now"]

    async def use(talk: Talk) -> None:
        await talk.ask("/check " + CHECK)
        assert await talk.ask("make last return the last item") == "end_turn"
        assert "items[-1]" in shop.read_text(), talk.client.said
        kinds = [call.kind for call in talk.client.of("tool_call")]
        assert "edit" in kinds and talk.client.asked
        assert talk.client.of("agent_thought_chunk")

    in_session(repository, use, answers=answers)


def test_a_commit_message(repository: Path) -> None:
    async def use(talk: Talk) -> None:
        await talk.ask("/message")
        assert "git add" in talk.client.said
        (repository / "shop.py").write_text("X = 1\n")
        subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
        await talk.ask("/message")
        assert "Name the rate" in talk.client.said

    in_session(repository, use, answers=["Name the rate"])


def test_what_cannot_be_done_is_said(repository: Path, tmp_path: Path) -> None:
    async def use(talk: Talk) -> None:
        await talk.ask("  ")
        assert "/fix" in talk.client.said
        await talk.ask("/fix nowhere -x")
        assert "nowhere" in talk.client.said and "not found" in talk.client.said
        for wrong in ("relative", "/nowhere"):
            with pytest.raises(acp.RequestError):
                await talk.agent.new_session(cwd=wrong, mcp_servers=[])
        with pytest.raises(acp.RequestError):
            await talk.agent.prompt(session_id="x", prompt=[acp.text_block("hello")])
        other = await talk.agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        await talk.agent.prompt(session_id=other.session_id, prompt=[acp.text_block("/undo")])
        assert "git" in talk.client.said

    in_session(repository, use)
