"""Validates candidates on several runners at once."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from clover_patcher.types import Candidate, Edit, Outcome, Validation


class CanRun(Protocol):
    """The part of a runner that trying candidates needs."""

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome: ...


class Validator:
    """Runs candidates on all runners in parallel; one candidate occupies one runner."""

    def __init__(self, runners: Sequence[CanRun]) -> None:
        self._size = len(runners)
        self._idle: queue.SimpleQueue[CanRun] = queue.SimpleQueue()
        for runner in runners:
            self._idle.put(runner)
        self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="validate")

    def __enter__(self) -> Validator:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def run(self, candidates: Iterator[Candidate | None]) -> Iterator[Validation]:
        """Yields validations as they finish, in no particular order.

        Candidates are taken from the iterator only when a runner is free for them. None from it
        says that none is ready yet: what has finished is yielded meanwhile.
        """
        pending: set[Future[Validation]] = set()
        more = True
        while more or pending:
            is_ready = True
            while more and is_ready and len(pending) < self._size:
                try:
                    candidate = next(candidates)
                except StopIteration:
                    more = False
                    break
                is_ready = candidate is not None
                if candidate is not None:
                    pending.add(self._threads.submit(self._validate, candidate))
            if not pending:
                continue
            timeout = None if is_ready else 0.0
            done, pending = wait(pending, timeout, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()

    def _validate(self, candidate: Candidate) -> Validation:
        runner = self._idle.get()
        try:
            return Validation(candidate, runner.run(candidate.edits))
        finally:
            self._idle.put(runner)
