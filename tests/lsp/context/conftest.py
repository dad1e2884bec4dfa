"""Rooms on real folders, with real indexing processes and a cache of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_lsp.context.room import Room, RoomOptions
from clover_lsp.context.types import Context, Place

WAIT_S = 60.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for indexes; the user's own git ignore file is out of the way."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture
def open_room(cache: Path) -> Iterator[Callable[..., Room]]:
    """``open_room(root, watch=True)`` returns a started room that has read the folders."""
    rooms: list[Room] = []

    def start(*roots: Path, **options: Any) -> Room:
        room = Room(RoomOptions(**{"watch": False, "git_diff": False, **options}))
        rooms.append(room)
        room.start()
        room.set_roots([str(root) for root in roots])
        assert room.wait(WAIT_S)
        return room

    yield start
    for room in rooms:
        room.close()


def gather(room: Room, path: Path, text: str, budget: int = 2000) -> Context:
    """Opens the file with this text and asks at its `|`."""
    prefix, _, suffix = text.partition("|")
    uri = path.as_uri()
    room.opened(uri, "", prefix + suffix, 1)
    assert room.wait(WAIT_S)
    return room.gather(Place(uri, "", prefix, suffix), budget)
