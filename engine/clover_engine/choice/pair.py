"""Two embedded models for repairs: a small one that scores, a large one that converses.

Templates want hundreds of quick scores, a rewrite wants one long answer. In one worker they would
wait for each other, and a coder model takes seconds where clover-nano takes milliseconds.
"""

from __future__ import annotations

import os

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Engine,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.checkpoint.catalog import installed_coder
from clover_engine.checkpoint.known import DEFAULT_CHECKPOINT
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
)
from clover_engine.worker.local import LocalEngine


class Pair:
    """`small` fills, scores and says how it is; `large` converses and decides."""

    def __init__(self, small: Engine, large: LocalEngine) -> None:
        self._small, self._large = small, large

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        return self._small.infill(request, cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self._small.score(request, cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._small.cloze(request, cancel)

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        return self._large.generate(request, cancel, on_piece)

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        return self._large.decide(request, cancel)

    def health(self) -> Health:
        return self._small.health()

    def close(self) -> None:
        self._small.close()
        self._large.close()


def for_repairs(engine: Engine) -> Engine:
    """The engine, or a `Pair` with clover-nano where it is a large model of this machine.

    Where the user completes with a small coder and has got a larger one too, that one converses;
    not where CLOVER_CHECKPOINT names the model.
    """
    if not isinstance(engine, LocalEngine) or engine.checkpoint.suffix != ".gguf":
        return engine
    best = installed_coder()
    if best not in (None, engine.checkpoint) and not os.environ.get("CLOVER_CHECKPOINT"):
        engine.close()
        engine = LocalEngine(best)
    return Pair(LocalEngine(DEFAULT_CHECKPOINT), engine)
