"""Pieces of a sequence that follow each other through the layers, on several threads.

A piece may enter a layer when the piece before it has left that layer: what a layer remembers of a
sequence is always complete up to the piece it works on, and no layer is split into parallel parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


class Waves:
    """Up to `threads` pieces at once; the calling thread is one of the threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, pieces: int, layers: int, step: Callable[[int, int], None]) -> None:
        """Calls step(piece, layer) for all, each in its turn; raises the first exception of one,
        after which no further step begins."""
        workers = min(self.threads, pieces)
        turn = _Turns(pieces)
        inference = torch.is_inference_mode_enabled()

        def work(first: int) -> None:
            with torch.inference_mode(inference):
                for piece in range(first, pieces, workers):
                    for layer in range(layers):
                        if not turn.wait(piece, layer):
                            return
                        try:
                            step(piece, layer)
                        except BaseException as error:
                            turn.fail(error)
                            return
                        turn.leave(piece)

        self._on_threads(work, workers)
        if turn.error is not None:
            raise turn.error

    def share(self, part: Callable[[int], None]) -> None:
        """Calls part(0) … part(threads - 1) side by side; raises the exception of one."""
        self._on_threads(part, self.threads)

    def _on_threads(self, work: Callable[[int], None], workers: int) -> None:
        if self._pool is None and workers > 1:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="prefill")
        others = [self._pool.submit(work, i) for i in range(1, workers)] if self._pool else []
        work(0)
        for other in others:
            other.result()


class _Turns:
    """How many layers each piece has left, and whether a step failed."""

    def __init__(self, pieces: int) -> None:
        self.error: BaseException | None = None
        self._left = [0] * pieces
        self._changed = threading.Condition()

    def wait(self, piece: int, layer: int) -> bool:
        """Waits until `piece` may enter `layer`; False if it never will."""
        with self._changed:
            if piece:
                self._changed.wait_for(lambda: self._left[piece - 1] > layer or self.error)
            return self.error is None

    def leave(self, piece: int) -> None:
        with self._changed:
            self._left[piece] += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()
