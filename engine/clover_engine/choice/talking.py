"""An engine that converses: the one in use, or an installed coder model beside it.

The shipped model only fills holes. Where a coder model is installed too (`clover-code model get`),
conversations go to that one, in a process of its own that starts with the first of them.
"""

from __future__ import annotations

import threading

from clover_engine.api import CancelToken, Engine
from clover_engine.checkpoint.catalog import installed_coder
from clover_engine.errors import Unsupported
from clover_engine.generation import (
    Converses,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    TextEngine,
)
from clover_engine.worker.local import LocalEngine


class Talking:
    """Converses through `engine`, else through the best coder model of this machine.

    Raises `Unsupported` where there is neither. `close` ends the coder model alone.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._coder: LocalEngine | None = None
        self._lock = threading.Lock()

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        if (other := self._instead()) is not None:
            return other.generate(request, cancel, on_piece)
        if not isinstance(self._engine, Converses):
            raise Unsupported("this engine only fills holes: ask another one")
        try:
            return self._engine.generate(request, cancel, on_piece)
        except Unsupported:
            other = self._beside()
            if other is None:
                raise
            return other.generate(request, cancel, on_piece)

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """The same for decisions."""
        if (other := self._instead()) is not None:
            return other.decide(request, cancel)
        if not isinstance(self._engine, TextEngine):
            raise Unsupported("this engine only fills holes: ask another one")
        try:
            return self._engine.decide(request, cancel)
        except Unsupported:
            other = self._beside()
            if other is None:
                raise
            return other.decide(request, cancel)

    def close(self) -> None:
        """Ends the coder model's process."""
        with self._lock:
            if self._coder is not None:
                self._coder.close()

    def _instead(self) -> LocalEngine | None:
        """The coder model, where it is clear without asking that the engine cannot converse."""
        if isinstance(self._engine, LocalEngine) and self._engine.only_fills_holes:
            return self._beside()
        return None

    def _beside(self) -> LocalEngine | None:
        with self._lock:
            if self._coder is None:
                path = installed_coder()
                self._coder = LocalEngine(path) if path else None
            return self._coder
