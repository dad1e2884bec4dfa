"""A hole → texts for it, as clover's own editors are given them; prompts and conversations.

A hole goes the way of a keystroke (`clover_lsp.completion`): the repository's context, look-ups,
the model, what fits between the text around, and the gate. A client may only insert, so nothing
after the cursor is replaced.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from clover_code.gateway.asked import Continuation, Hole
from clover_engine.api import CancelToken, Engine, InfillRequest, InfillResult, Snippet
from clover_engine.errors import EngineError, Unsupported
from clover_engine.gate import SHOWN_CONFIDENCE
from clover_engine.generation import GenerateRequest, GenerateResult, OnPiece, TextEngine
from clover_engine.languages import language_of
from clover_engine.privacy.secrets import redact
from clover_lsp.completion.compute import Ask, Computer
from clover_lsp.context.room import Room
from clover_lsp.context.types import Context, ContextRoom, Place, ScoredSnippet
from clover_lsp.settings.settings import CompletionSettings, ContextSettings, MultiLine, Settings
from clover_lsp.suggest.types import Popup

UNSAVED = "untitled:gateway"
"""The document of a client that does not say which one it is."""
MOST_OPEN = 8
"""So many documents count as open, the latest ones."""
INSERT = Popup("", 0, 0)
"""Suggestions only insert: they replace nothing around the cursor."""
_EXTRA_SCORE = 1.0
_MOST_EXTRA = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What the user of the gateway chose."""

    root: Path | None = None
    """The repository whose context is added; None: none is."""
    lines: MultiLine = "auto"
    """auto: up to the end of the line, or of a block that begins; never: one line always."""
    min_confidence: float = SHOWN_CONFIDENCE
    budget_tokens: int = 512
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Filled:
    """Texts for a hole, best first; perhaps none, with the reason."""

    texts: tuple[str, ...] = ()
    origin: str = ""
    """Who made the first one: model or lookup."""
    confidence: float = 0.0
    reason: str = ""
    seconds: float = 0.0
    model: str = ""
    tokens: int = 0
    cut: bool = False
    """The text was longer than the client wanted."""


class Filler:
    """Any thread, several at once."""

    def __init__(self, engine: Engine | None, room: Room, options: Options) -> None:
        self.engine, self.room, self.options = engine, room, options
        self._open: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def fill(self, hole: Hole, cancel: CancelToken) -> Filled:
        """Raises what the engine raises."""
        begun = time.monotonic()
        if hole.max_tokens == 0:  # clients warm a cache that way
            return Filled(reason="nothing was asked for")
        meter = _Meter(self.engine) if self.engine is not None else None
        room = _WithExtra(self.room, hole.extra)
        place = self._place(hole)
        self._opened(place)
        computer = Computer(
            self._settings(hole), cast(ContextRoom, room), cast("Engine | None", meter)
        )
        found = computer.find(Ask(place, INSERT, invoked=hole.n > 1), cancel)
        if meter is not None and meter.error is not None and not found.suggestions:
            raise meter.error
        chosen = found.suggestions[: hole.n]
        first = chosen[0] if chosen else None
        ended = [_ended(each.text, hole.stop) for each in chosen]
        return Filled(
            texts=tuple(text for text, _ in ended),
            origin=first.origin if first else "",
            confidence=first.confidence if first else 0.0,
            reason="" if first else found.reason,
            seconds=time.monotonic() - begun,
            model=meter.model if meter else "",
            tokens=meter.tokens if meter else 0,
            cut=any(cut for _, cut in ended),
        )

    def go_on(self, asked: Continuation, cancel: CancelToken) -> InfillResult:
        """Continues a text by the engine alone."""
        request = InfillRequest(
            asked.prompt,
            max_tokens=max(1, asked.max_tokens),
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            n=asked.n,
            mode="threshold" if asked.n > 1 else "speculative",
            stop=asked.stop,
        )
        return self._engine().infill(request, cancel)

    def converse(
        self, request: GenerateRequest, cancel: CancelToken, on_piece: OnPiece | None = None
    ) -> GenerateResult:
        """Raises `Unsupported` where the engine only fills holes."""
        engine = self._engine()
        if not isinstance(engine, TextEngine):
            raise Unsupported("this engine only fills holes: choose a coder model or a server")
        return engine.generate(request, cancel, on_piece)

    def _engine(self) -> Engine:
        if self.engine is None:
            raise Unsupported("there is no model (--engine none): only holes can be filled")
        return self.engine

    def _place(self, hole: Hole) -> Place:
        """The hole in its document, which the repository tells where the client does not."""
        path = hole.path or self.room.whose(hole.prefix, hole.suffix)
        if not path:
            others = (language_of(each.path).id for each in hole.extra if each.path)
            return Place(UNSAVED, next(others, ""), hole.prefix, hole.suffix)
        uri = (self.options.root or Path.cwd()).joinpath(path).absolute().as_uri()
        return Place(uri, language_of(path).id, hole.prefix, hole.suffix)

    def _opened(self, place: Place) -> None:
        """Tells the room what the client has open; it parses that for the next request."""
        with self._lock:
            self._open[place.uri] = None
            self._open.move_to_end(place.uri)
            if len(self._open) > MOST_OPEN:
                self.room.closed(self._open.popitem(last=False)[0])
        self.room.opened(place.uri, place.language, place.prefix + place.suffix, 0)

    def _settings(self, hole: Hole) -> Settings:
        options = self.options
        completion = CompletionSettings(
            multi_line=options.lines,
            max_tokens=hole.max_tokens,
            min_confidence=options.min_confidence,
            deadline_ms=int(options.deadline_s * 1000),
            alternatives=hole.n,
        )
        context = ContextSettings(budget_tokens=options.budget_tokens)
        return Settings(completion=completion, context=context)


@dataclass(slots=True)
class _Meter:
    """The engine, with what a computation made of it: it swallows errors, and tokens count here."""

    inner: Engine
    error: EngineError | None = None
    model: str = ""
    tokens: int = 0

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        try:
            result = self.inner.infill(request, cancel)
        except EngineError as error:
            self.error = error
            raise
        self.model, self.tokens = result.model, self.tokens + result.stats.tokens
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True, slots=True)
class _WithExtra:
    """The context room, and the texts that the client sent after what the room finds."""

    inner: ContextRoom
    extra: Sequence[Snippet]

    def gather(
        self, place: Place, budget_tokens: int, cancel: CancelToken | None = None
    ) -> Context:
        context = self.inner.gather(place, budget_tokens, cancel)
        if context.withheld or not self.extra:
            return context
        known = {snippet.path for snippet in context.snippets}
        sent = (each for each in self.extra if each.path not in known and each.text.strip())
        more = tuple(
            ScoredSnippet(redact(each.text), each.path, 1, "open", _EXTRA_SCORE, "sent along")
            for each in islice(sent, _MOST_EXTRA)
        )
        return replace(context, snippets=context.snippets + more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _ended(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop string in it, and whether there is one."""
    places = [at for mark in stop if (at := text.find(mark)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def described(filled: Filled) -> Mapping[str, Any]:
    """What is told beside each answer, for people who ask why."""
    return {
        "origin": filled.origin,
        "confidence": round(filled.confidence, 3),
        "reason": filled.reason,
    }
