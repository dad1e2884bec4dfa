"""Who goes first: calls that a user waits for, before repairs and prefetches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from clover_engine.api import CancelToken
from clover_engine.errors import RequestCancelled

_YIELD_CHECK_S = 0.05


class Linked(CancelToken):
    """Cancelled by itself or by the caller's token."""

    __slots__ = ("_outer",)

    def __init__(self, outer: CancelToken | None) -> None:
        super().__init__()
        self._outer = outer

    @property
    def preempted(self) -> bool:
        return self._event.is_set()

    @property
    def given_up(self) -> bool:
        return self._outer is not None and self._outer.cancelled

    @property
    def cancelled(self) -> bool:
        return self._event.is_set() or self.given_up


class Turns:
    """Interactive calls first. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._interactive = 0
        self._background: set[Linked] = set()

    @contextlib.contextmanager
    def interactive(self) -> Iterator[None]:
        with self._changed:
            self._interactive += 1
            for token in self._background:
                token.cancel()
        try:
            yield
        finally:
            with self._changed:
                self._interactive -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def background(self, outer: CancelToken | None) -> Iterator[Linked]:
        """Waits until no interactive call runs; the token is set when one comes."""
        token = Linked(outer)
        with self._changed:
            while self._interactive:
                if token.given_up:
                    raise RequestCancelled("cancelled while waiting for its turn")
                self._changed.wait(_YIELD_CHECK_S)
            self._background.add(token)
        try:
            yield token
        finally:
            with self._changed:
                self._background.discard(token)
