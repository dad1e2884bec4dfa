"""A prompt that is cancelled, at any moment, leaves the tree whole and the agent ready."""

from __future__ import annotations

import asyncio
import random
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.acp.client import Client, Talk, copies_of, in_session
from tests.cli.broken import BROKEN, TEST

CHECK = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
LAST = 14
"""A repair of this project tells about so much, permission included."""


async def cancelled_after(talk: Talk, news: int, pause_s: float) -> str:
    """Asks for a repair and cancels a moment after so many updates; why the prompt ended."""
    reached = asyncio.Event()
    left = news

    def count(update: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            reached.set()

    talk.client.on_update = count
    asked = asyncio.ensure_future(talk.ask(f"/fix {CHECK}"))
    waiting = asyncio.ensure_future(reached.wait())
    await asyncio.wait((asked, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.sleep(pause_s)
    await talk.agent.cancel(session_id=talk.session)
    return await asyncio.wait_for(asked, 60)


def left_behind(repository: Path) -> list[Path]:
    """Copies of the tree that are still there, and changes that were begun and not finished."""
    records = repository / ".git" / "clover"
    unfinished = [*records.glob("new/*"), *records.glob("pending/*"), *records.glob("staged-*")]
    return [*copies_of(repository).iterdir(), *unfinished]


def works(text: str) -> bool:
    """Whether it is a whole, repaired program: there is more than one."""
    names: dict[str, Any] = {}
    exec(text, names)
    return bool(names["last"]([1, 2, 3]) == 3)


@pytest.mark.parametrize(
    "moments", [3, pytest.param(50, marks=pytest.mark.long)], ids=lambda count: f"{count} moments"
)
def test_the_tree_is_whole(repository: Path, moments: int) -> None:
    random_numbers = random.Random(moments)
    shop, test = repository / "shop.py", repository / "test_shop.py"
    ended: dict[str, int] = {}

    async def use(talk: Talk) -> None:
        for _ in range(moments):
            news, pause_s = random_numbers.randint(0, LAST), random_numbers.random() * 0.3
            why = await cancelled_after(talk, news, pause_s)
            ended[why] = ended.get(why, 0) + 1
            is_broken = shop.read_text() == BROKEN
            assert is_broken or works(shop.read_text()), news
            assert test.read_text() == TEST, news
            assert why == "cancelled" or not is_broken, (news, talk.client.said)
            assert not left_behind(repository), news
            shop.write_text(BROKEN)
        await talk.ask("/undo nothing-like-it")
        assert "no fix begins" in talk.client.said

    in_session(repository, use, Client(), seconds=20 * moments)
    assert ended.get("cancelled"), ended
