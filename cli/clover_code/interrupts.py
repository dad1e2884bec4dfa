"""Ctrl-C and termination signals as a request to end in order."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clover_engine.api import CancelToken

_PATIENCE_S = 2.0
"""How long an interrupted run may take to end by itself."""


@contextmanager
def interruptible() -> Iterator[CancelToken]:
    """Ctrl-C and termination signals end the run in order, so that the copies are removed.

    Where that takes long, and at a second signal, the program unwinds from wherever it is.
    """
    cancel = CancelToken()

    def stop(number: int, _: Any) -> None:
        if cancel.cancelled:
            raise KeyboardInterrupt
        cancel.cancel()
        late = threading.Timer(_PATIENCE_S, _thread.interrupt_main, (number,))
        late.daemon = True
        late.start()
        timers.append(late)

    timers: list[threading.Timer] = []
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows lacks the last
    wanted = [getattr(signal, name) for name in names if hasattr(signal, name)]
    heard = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield cancel
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
