"""One call of an engine: its time and its cancel token, over all the HTTP requests it takes."""

from __future__ import annotations

import time
from typing import Any

from clover_engine.api import CancelToken
from clover_engine.clients.http import Events, HttpTransport


class Deadline:
    """The time that one call has taken and has left; None seconds mean without end."""

    def __init__(self, deadline_s: float | None) -> None:
        self.began = time.monotonic()
        self._end = None if deadline_s is None else self.began + deadline_s

    def __call__(self) -> float | None:
        """Seconds until it, at least 0; None without one."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    @property
    def spent(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.began


class Call:
    """Made where the engine's method begins: the deadline counts from then."""

    def __init__(
        self, http: HttpTransport, deadline_s: float | None, cancel: CancelToken | None
    ) -> None:
        self.http, self.cancel = http, cancel
        self._deadline = Deadline(deadline_s)

    @property
    def seconds(self) -> float:
        """Since the call began."""
        return self._deadline.spent

    @property
    def left_s(self) -> float | None:
        """Until the deadline, at least 0; None without one."""
        return self._deadline()

    def check(self) -> None:
        """Raises what a request would at once: cancelled, late, or closed."""
        self.http.check(self.cancel, self.left_s)

    def ask(self, method: str, path: str, body: Any = None, retry: bool = False) -> Any:
        """`HttpTransport.json` within this call."""
        return self.http.json(
            method, path, body, cancel=self.cancel, deadline_s=self.left_s, retry=retry
        )

    def events(self, path: str, body: Any) -> Events:
        """`HttpTransport.events` within this call."""
        return self.http.events(path, body, cancel=self.cancel, deadline_s=self.left_s)


def valid(text: str) -> str:
    """`text` with question marks for what UTF-8 cannot hold (lone surrogates)."""
    return text.encode("utf-8", "replace").decode("utf-8")
