"""Stopping a run from outside: a token that follows the caller's, and a watch that acts on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from clover_engine.api import CancelToken

_POLL_S = 0.03


class CanStop(Protocol):
    """What a cancelled run must end: a check that is running."""

    def stop(self) -> None: ...


class LinkedToken(CancelToken):
    """Cancelled with its parent, or alone: cancelling it leaves the parent as it is."""

    __slots__ = ("_parent",)

    def __init__(self, parent: CancelToken | None = None) -> None:
        super().__init__()
        self._parent = parent

    @property
    def cancelled(self) -> bool:
        return super().cancelled or (self._parent is not None and self._parent.cancelled)


@contextmanager
def stopped_by(token: CancelToken, running: Sequence[CanStop]) -> Iterator[None]:
    """While it is entered, whatever is in `running` is stopped once the token is cancelled."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_S):
            if token.cancelled:
                for one in list(running):
                    one.stop()

    thread = threading.Thread(target=watch, name="cancel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
