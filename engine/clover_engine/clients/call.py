"""One call of an engine: its time and its cancel token, over all the HTTP requests it takes."""

from __future__ import annotations

import time
from typing import Any

from clover_engine.api import CancelToken
from clover_engine.clients.http import Events, HttpTransport


class Call:
    """Made where the engine's method begins: the deadline counts from then."""

    def __init__(
        self, http: HttpTransport, deadline_s: float | None, cancel: CancelToken | None
    ) -> None:
        self.http, self.cancel = http, cancel
        self._began = time.monotonic()
        self._deadline_s = deadline_s

    @property
    def seconds(self) -> float:
        """Since the call began."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float | None:
        """Until the deadline, at least 0; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self.seconds)

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
