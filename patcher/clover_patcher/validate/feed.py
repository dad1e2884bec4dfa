"""Hands candidates out one by one, while proposers make more of them in threads of their own."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Literal

from clover_patcher.progress import Clock
from clover_patcher.types import Candidate

_AHEAD = 1
"""Batches that wait to be tried while the next one is made: few, since later ones know more."""
_POLL_S = 0.05

Verdict = Literal["try", "put off", "stop"]


class Feed:
    """Candidates of several streams of batches, each made in a thread of its own.

    Batches are handed out in the order in which they are ready, one stream's in its own order.
    """

    def __init__(self, *streams: Iterable[list[Candidate]]) -> None:
        self._batch: deque[Candidate] = deque()
        self._put_off: list[Candidate] = []
        self._held: list[threading.Semaphore] = []
        self._going = len(streams)
        self._queue: queue.Queue[_Batch | BaseException | None] = queue.Queue()
        self._stopped = threading.Event()
        for stream in streams:
            threading.Thread(target=self._make, args=(stream,), daemon=True).start()

    def candidates(
        self, clock: Clock, verdict: Callable[[Candidate], Verdict] = lambda _: "try"
    ) -> Iterator[Candidate | None]:
        """Candidates until there are no more or the clock's deadline has passed; None now and
        then while the next one is being made.

        `verdict` may put a candidate off for a later call, or end this one before it. A later
        call goes on where this one ended. Raises whatever the making of batches raised.
        """
        self._batch.extendleft(reversed(self._put_off))
        self._put_off.clear()
        while self._held:
            self._held.pop().release()
        while (self._going or self._batch) and (left := clock.deadline - time.monotonic()) > 0:
            if not self._batch:
                if not self._fill(min(left, _POLL_S)):
                    yield None
                continue
            wanted = verdict(self._batch[0])
            if wanted == "stop":
                return
            candidate = self._batch.popleft()
            if wanted == "try":
                yield candidate
            else:
                self._put_off.append(candidate)

    def awaited(
        self, clock: Clock, wanted: Callable[[Candidate], bool], is_over: Callable[[], bool]
    ) -> Iterator[Candidate | None]:
        """The wanted candidates alone, as `candidates` does, until `is_over` or the deadline.

        All others stay for a later call, and hardly any more of those are made meanwhile.
        """
        while (left := clock.deadline - time.monotonic()) > 0:
            at = next((i for i, each in enumerate(self._batch) if wanted(each)), None)
            if at is not None:
                candidate = self._batch[at]
                del self._batch[at]
                yield candidate
            elif is_over() or not self._going:
                return
            elif not self._fill(min(left, _POLL_S), hold=True):
                yield None

    @property
    def exhausted(self) -> bool:
        """Whether every candidate has been handed out."""
        return not (self._going or self._batch or self._put_off)

    def stop(self) -> None:
        """Makes no more batches; does not wait for those being made."""
        self._stopped.set()

    def _fill(self, timeout: float, *, hold: bool = False) -> bool:
        """Waits for the next batch, at most `timeout` seconds; False where none came.

        `hold`: no further one is made beyond it yet.
        """
        with suppress(queue.Empty):
            item = self._queue.get(timeout=timeout)
            if isinstance(item, BaseException):
                raise item
            if item is None:
                self._going -= 1
            else:
                self._batch.extend(item.candidates)
                if hold:
                    self._held.append(item.room)
                else:
                    item.room.release()
            return True
        return False

    def _make(self, stream: Iterable[list[Candidate]]) -> None:
        room = threading.Semaphore(_AHEAD)
        try:
            for batch in stream:
                while not room.acquire(timeout=_POLL_S):
                    if self._stopped.is_set():
                        return
                if self._stopped.is_set():
                    return
                self._queue.put(_Batch(batch, room))
            self._queue.put(None)
        except BaseException as exc:  # handed to the reader, who raises it
            self._queue.put(exc)


class _Batch:
    """Candidates, and the room that becomes free once they are taken."""

    __slots__ = ("candidates", "room")

    def __init__(self, candidates: list[Candidate], room: threading.Semaphore) -> None:
        self.candidates, self.room = candidates, room
