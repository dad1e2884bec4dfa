"""How long some work may take, looked at in its loops."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from clover_engine.api import CancelToken

T = TypeVar("T")


class OutOfTime(Exception):
    """The work took too long, or is not wanted any more."""


class Limit:
    """For work on one thread, from the moment the limit is made there.

    `cpu_s` are seconds of the thread's own processor time, so that a busy machine does not change
    the result; `cancel` ends the work at the next look.
    """

    def __init__(self, cpu_s: float = math.inf, cancel: CancelToken | None = None) -> None:
        self._end = time.thread_time() + cpu_s
        self._cancel = cancel

    def check(self) -> None:
        """Raises `OutOfTime` if the work has to end."""
        if self._cancel is not None and self._cancel.cancelled:
            raise OutOfTime("cancelled")
        if time.thread_time() > self._end:
            raise OutOfTime("it took too long")

    def each(self, items: Iterable[T], step: int = 1) -> Iterator[T]:
        """The items, with a look at the limit before each, or before every `step`-th one."""
        for number, item in enumerate(items):
            if number % step == 0:
                self.check()
            yield item
