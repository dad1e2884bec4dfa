"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S = 60.0

T = TypeVar("T")


def until(look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
    """What `look` returns once it is truthy; AssertionError after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
    return found
