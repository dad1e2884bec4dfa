"""Trying candidates on several runners at once, fed by a thread that thinks up more of them."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Literal, Protocol

from clover_patcher.progress import Clock
from clover_patcher.types import Candidate, Edit, Outcome, Validation

_AHEAD = 1
"""Batches that wait to be tried while the next one is made: few, since later ones know more."""
_POLL_S = 0.05

Verdict = Literal["try", "put off", "stop"]


class CanRun(Protocol):
    """The part of a runner that trying candidates needs."""

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome: ...


class Pool:
    """Runs candidates on all runners in parallel; one candidate occupies one runner."""

    def __init__(self, runners: Sequence[CanRun]) -> None:
        self._size = len(runners)
        self._idle: queue.SimpleQueue[CanRun] = queue.SimpleQueue()
        for runner in runners:
            self._idle.put(runner)
        self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="validate")

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def run(self, candidates: Iterator[Candidate]) -> Iterator[Validation]:
        """Yields validations as they finish, in no particular order.

        Candidates are taken from the iterator only when a runner is free for them.
        """
        pending: set[Future[Validation]] = set()
        more = True
        while more or pending:
            while more and len(pending) < self._size:
                candidate = next(candidates, None)
                if candidate is None:
                    more = False
                else:
                    pending.add(self._threads.submit(self._validate, candidate))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()

    def _validate(self, candidate: Candidate) -> Validation:
        runner = self._idle.get()
        try:
            return Validation(candidate, runner.run([candidate.edit]))
        finally:
            self._idle.put(runner)


class Feed:
    """Makes batches in a thread of its own and hands the candidates out one by one."""

    def __init__(self, batches: Iterable[list[Candidate]]) -> None:
        self._batch: deque[Candidate] = deque()
        self._put_off: list[Candidate] = []
        self._ended = False
        self._queue: queue.Queue[list[Candidate] | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._make, args=(batches,), daemon=True)
        self._thread.start()

    def candidates(
        self, clock: Clock, verdict: Callable[[Candidate], Verdict] = lambda _: "try"
    ) -> Iterator[Candidate]:
        """Candidates until there are no more or the clock's deadline has passed.

        `verdict` may put a candidate off for a later call, or end this one before it. A later
        call goes on where this one ended. Raises whatever the making of batches raised.
        """
        self._batch.extendleft(reversed(self._put_off))
        self._put_off.clear()
        while (
            not (self._ended and not self._batch)
            and (left := clock.deadline - time.monotonic()) > 0
        ):
            if not self._batch:
                self._fill(left)
                continue
            said = verdict(self._batch[0])
            if said == "stop":
                return
            candidate = self._batch.popleft()
            if said == "try":
                yield candidate
            else:
                self._put_off.append(candidate)

    @property
    def exhausted(self) -> bool:
        """Whether every candidate has been handed out."""
        return self._ended and not self._batch and not self._put_off

    def stop(self) -> None:
        """Makes no more batches; does not wait for the one being made."""
        self._stopped.set()

    def _fill(self, timeout: float) -> None:
        """Waits for the next batch, at most `timeout` seconds."""
        with suppress(queue.Empty):
            item = self._queue.get(timeout=timeout)
            if isinstance(item, BaseException):
                raise item
            if item is None:
                self._ended = True
            else:
                self._batch.extend(item)

    def _make(self, batches: Iterable[list[Candidate]]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as exc:  # handed to the reader, who raises it
            self._put(exc)

    def _put(self, item: list[Candidate] | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False
