"""What a function in a helper process has of the server: its cancellation, its model, its ear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)


@dataclass(frozen=True)
class Outside:
    """`ask(name, *arguments)` calls one of the functions that the server gave by name, and waits;
    `tell` does not wait. Any thread of the helper."""

    cancel: CancelToken
    ask: Callable[..., Any]
    tell: Callable[..., None]
    has_engine: bool = False

    @property
    def engine(self) -> RemoteEngine | None:
        """The server's model, if it gave one."""
        return RemoteEngine(self.ask) if self.has_engine else None


class RemoteEngine:
    """An `Engine` whose calls run in the server. The run's own token ends them, whatever token
    they are given: it is the only one that reaches the server."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        result: InfillResult = self._ask("engine.infill", request)
        return result

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        result: ScoreResult = self._ask("engine.score", request)
        return result

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        result: ClozeResult = self._ask("engine.cloze", request)
        return result

    def health(self) -> Health:
        result: Health = self._ask("engine.health")
        return result

    def close(self) -> None:
        """The server closes it."""
