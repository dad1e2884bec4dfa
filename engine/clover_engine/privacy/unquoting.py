"""An engine that is told nothing which a failure quotes from files that may not be read.

A repair shows the engine only files that it may read; but messages of failures and what a check
printed quote others. Code in fences is the repair's own; all else of a conversation is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from clover_engine.generation import (
    Converses,
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    TextEngine,
)
from clover_engine.privacy.quotes import hide_quotes

_CODE = re.compile(r"^(```(?!text\b)\w+\n.*?^```\s*?$)", re.M | re.S)
"""A fence with the name of a language; one of `text`, or of nothing, holds what was printed."""


def unquoting(engine: Engine, top: Path, is_withheld: Callable[[str], bool]) -> Engine:
    """The engine for a repair of the repository at `top`. `is_withheld` takes paths below it."""
    if isinstance(engine, TextEngine):
        return _UnquotingText(engine, top, is_withheld)
    return _Unquoting(engine, top, is_withheld)


def unquoting_talk(engine: Converses, top: Path, is_withheld: Callable[[str], bool]) -> Converses:
    """The same for what does nothing but converse."""
    return _UnquotingTalk(engine, top, is_withheld)


class _UnquotingTalk:
    """Holds conversations."""

    def __init__(self, inner: Converses, top: Path, is_withheld: Callable[[str], bool]) -> None:
        self._talk, self._top, self._is_withheld = inner, top, is_withheld

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        messages = tuple(replace(m, content=self._hidden(m.content)) for m in request.messages)
        return self._talk.generate(replace(request, messages=messages), cancel, on_piece)

    def _hidden(self, text: str) -> str:
        return _hidden(text, self._top, self._is_withheld)


def _hidden(text: str, top: Path, is_withheld: Callable[[str], bool]) -> str:
    parts = _CODE.split(text)
    parts[::2] = [hide_quotes(part, top, is_withheld) for part in parts[::2]]
    return "".join(parts)


class _Unquoting:
    """Fills holes."""

    def __init__(self, inner: Engine, top: Path, is_withheld: Callable[[str], bool]) -> None:
        self._inner, self._top, self._is_withheld = inner, top, is_withheld

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        snippets = tuple(replace(s, text=self._hidden(s.text)) for s in request.snippets)
        return self._inner.infill(replace(request, snippets=snippets), cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self._inner.score(request, cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._inner.cloze(request, cancel)

    def health(self) -> Health:
        return self._inner.health()

    def close(self) -> None:
        self._inner.close()

    def _hidden(self, text: str) -> str:
        return _hidden(text, self._top, self._is_withheld)


class _UnquotingText(_Unquoting):
    """Holds conversations too."""

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        talk = _UnquotingTalk(self._text, self._top, self._is_withheld)
        return talk.generate(request, cancel, on_piece)

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        questions = tuple(replace(q, text=self._hidden(q.text)) for q in request.questions)
        safe = replace(request, material=self._hidden(request.material), questions=questions)
        return self._text.decide(safe, cancel)

    @property
    def _text(self) -> TextEngine:
        assert isinstance(self._inner, TextEngine)
        return self._inner
