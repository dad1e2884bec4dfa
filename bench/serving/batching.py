"""A discrete-event simulation of a server with continuous batching. No randomness of its own.

Time is simulated seconds. All running jobs advance together, step by step; jobs join and leave
between steps, as in SGLang's scheduler. A step also reads up to `chunk` tokens of new prompts.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

StepTime = Callable[[int, int], float]
"""Seconds of a step with that many decoding jobs and prompt tokens read."""


class Clock:
    """Runs actions in the order of their times; equal times in the order they were given."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), action))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = until


@dataclass(slots=True, eq=False)
class Job:
    """One request: prompt tokens to read, then `steps` steps; `done` is called at its end."""

    prompt: int
    steps: int
    done: Callable[[], None]
    cancelled: bool = False
    worked: float = 0.0
    """Its share of the server's time so far: a step's time divided by its jobs."""


@dataclass(slots=True)
class Totals:
    """Seconds of work, and how many of them went into jobs that were cancelled."""

    busy_s: float = 0.0
    aborted_s: float = 0.0
    finished: int = 0
    aborted: int = 0


@dataclass(slots=True)
class Server:
    """First come, first served into a batch of at most `most` jobs."""

    clock: Clock
    step_s: StepTime
    most: int
    chunk: int = 8192
    totals: Totals = field(default_factory=Totals)
    _waiting: deque[Job] = field(default_factory=deque)
    _running: list[Job] = field(default_factory=list)
    _busy: bool = False

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        if not self._busy:
            self._step()

    def cancel(self, job: Job) -> None:
        """The job leaves at the end of the step that runs."""
        job.cancelled = True

    @property
    def in_flight(self) -> int:
        return len(self._running) + sum(not job.cancelled for job in self._waiting)

    def _step(self) -> None:
        self._running = [job for job in self._running if not self._left(job)]
        while self._waiting and len(self._running) < self.most:
            job = self._waiting.popleft()
            if not self._left(job):
                self._running.append(job)
        self._busy = bool(self._running)
        if not self._busy:
            return
        left, decoding = self.chunk, []
        for job in self._running:
            read = min(left, job.prompt)
            job.prompt -= read
            left -= read
            if not job.prompt:
                decoding.append(job)
        seconds = self.step_s(len(decoding), self.chunk - left)
        self.totals.busy_s += seconds
        for job in self._running:
            job.worked += seconds / len(self._running)
        self.clock.after(seconds, lambda: self._end(decoding))

    def _left(self, job: Job) -> bool:
        if job.cancelled:
            self.totals.aborted += 1
            self.totals.aborted_s += job.worked
        return job.cancelled

    def _end(self, decoding: list[Job]) -> None:
        finished = []
        for job in decoding:
            job.steps -= 1
            if job.steps <= 0 and not job.cancelled:
                finished.append(job)
        if finished:
            self.totals.finished += len(finished)
            gone = set(map(id, finished))
            self._running = [job for job in self._running if id(job) not in gone]
        self._step()
        for job in finished:
            job.done()
