"""Where the time of suggestions goes, for `bench.editor.lsp` and the log. Kept in memory only."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["offered", "reused", "nothing", "superseded", "stale", "failed"]
KEPT = 20_000


@dataclass(slots=True)
class Measured:
    """One request. `own_ms` is what remains for the server itself."""

    begun: float = field(default_factory=time.monotonic)
    waited_s: float = 0.0
    """Debounce: on purpose."""
    engine_s: float = 0.0
    stopped_s: float | None = None
    """From the cancellation to the engine's return, where it was running then."""
    outcome: Outcome = "nothing"
    total_s: float = 0.0

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.total_s = time.monotonic() - self.begun

    def as_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in asdict(self).items() if k != "begun"}
        return {**plain, "own_s": max(0.0, self.total_s - self.waited_s - self.engine_s)}


class Metrics:
    """The latest requests. Event loop only."""

    def __init__(self) -> None:
        self._requests: deque[Measured] = deque(maxlen=KEPT)
        self.prefetches = 0
        self.follow_ups = 0

    def begin(self) -> Measured:
        measured = Measured()
        self._requests.append(measured)
        return measured

    def take(self) -> dict[str, Any]:
        """All requests since the last call."""
        found = [measured.as_json() for measured in self._requests]
        self._requests.clear()
        prefetches, self.prefetches = self.prefetches, 0
        follow_ups, self.follow_ups = self.follow_ups, 0
        return {"requests": found, "prefetches": prefetches, "follow_ups": follow_ups}
