"""A fake engine that converses too."""

from __future__ import annotations

from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
)
from clover_engine.testing.fakes import FakeEngine


class Talker(FakeEngine):
    """Remembers conversations and decisions too."""

    def generate(self, request: GenerateRequest, *_: object) -> GenerateResult:
        self.requests.append(request)  # type: ignore[arg-type]
        return GenerateResult("", "", "eom")

    def decide(self, request: DecisionRequest, *_: object) -> DecisionResult:
        self.requests.append(request)  # type: ignore[arg-type]
        return DecisionResult(())
