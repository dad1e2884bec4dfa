"""One place → suggestions. Runs on a worker thread; knows nothing of the protocol.

Plan → context → look-up → the quick model → the strong model, each asked only where what is there
is not sure enough → fit for the place → gate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from clover_engine.api import CancelToken, Engine, InfillRequest, Snippet
from clover_engine.errors import EngineError
from clover_lsp.context.types import Context, ContextRoom, Place
from clover_lsp.settings.settings import Settings
from clover_lsp.suggest.choose import (
    choose,
    engine_drafts,
    is_sure,
    lookup_drafts,
    model_drafts,
    proposed,
)
from clover_lsp.suggest.scene import at_popup
from clover_lsp.suggest.shape import Plan, Skip, plan
from clover_lsp.suggest.types import Draft, Origin, Popup, Suggestion

SAMPLING_TEMPERATURE = 0.8
QUICK_IS_ENOUGH = 0.6
"""Probability from which a look-up or the quick model's text is shown without waiting for the
strong model."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for. `deleted`: texts that must not come back."""

    place: Place
    popup: Popup | None = None
    invoked: bool = False
    deleted: tuple[str, ...] = ()
    origin: Origin = "model"


@dataclass(slots=True)
class Suggested:
    """Suggestions, best first; or the reason for none."""

    suggestions: tuple[Suggestion, ...] = ()
    reason: str = ""
    engine_s: float = 0.0
    engine_ended: float = 0.0
    """When the engine returned (monotonic seconds)."""
    is_quick: bool = False
    """The strong model was not asked: what was there already is sure enough."""


class Computer:
    """The means for one computation; immutable, so that settings cannot change midway."""

    def __init__(
        self,
        settings: Settings,
        context: ContextRoom,
        engine: Engine | None,
        quick: Engine | None = None,
    ) -> None:
        """`quick`: a small model to be asked before `engine`, where there is one."""
        self._settings = settings
        self._context = context
        self._engine = engine
        self._quick = quick

    def find(self, ask: Ask, cancel: CancelToken) -> Suggested:
        """Never raises for what the engine raises; a cancelled computation finds nothing."""
        here = at_popup(ask.place, ask.popup)
        shape = self._shape(here, ask.invoked)
        if isinstance(shape, Skip):
            return Suggested(reason=shape.reason)
        context = self._context.gather(here, self._settings.context.budget_tokens, cancel)
        if context.withheld or cancel.cancelled:
            return Suggested(reason=context.withheld)
        if (context.place.prefix, context.place.suffix) != (here.prefix, here.suffix):
            # The room took secrets out: the model gets the place without them.
            shape = self._shape(context.place, ask.invoked)
            if isinstance(shape, Skip):
                return Suggested(reason=shape.reason)
        found = Suggested()
        drafts = lookup_drafts(context.lookups, shape) if self._settings.completion.lookup else []

        def sure() -> float:
            """Nothing at all is below every gate, also one that lets all through."""
            return max((s.confidence for s in self._proposed(ask, shape, drafts)), default=-1.0)

        if not is_sure(drafts) or ask.invoked:
            for engine in self._engines(ask, sure, found):
                drafts += self._generated(engine, ask, shape, context, cancel, found)
        found.suggestions = self._chosen(ask, self._proposed(ask, shape, drafts))
        if not found.suggestions:
            found.reason = found.reason or "nothing sure enough"
        return found

    def _shape(self, place: Place, invoked: bool) -> Plan | Skip:
        never = self._settings.completion.multi_line == "never"
        return plan(place, lines="single" if never else "auto", invoked=invoked)

    def _engines(self, ask: Ask, sure: Callable[[], float], found: Suggested) -> Iterator[Engine]:
        """Whom to ask, one after the other; `sure`: how probable the best text is by then.

        Good look-ups answer alone while the model loads. Where the user asked, the strong model has
        to answer.
        """
        if self._quick is not None:
            yield self._quick
            found.is_quick = not ask.invoked and sure() >= QUICK_IS_ENOUGH
        if self._engine is None or found.is_quick:
            return
        if ask.invoked or self._engine.health().ready or sure() < self._least:
            yield self._engine

    def _generated(
        self,
        engine: Engine,
        ask: Ask,
        shape: Plan,
        context: Context,
        cancel: CancelToken,
        suggested: Suggested,
    ) -> list[Draft]:
        """A model's texts; a failure of it leaves the others' (the status tells of it)."""
        request = self._request(shape, context)
        begun = time.monotonic()
        drafts: list[Draft] = []
        samples = ask.invoked and engine is self._engine
        try:
            drafts += model_drafts(engine.infill(request, cancel), ask.origin)
            if samples and not cancel.cancelled and self._settings.completion.alternatives > 1:
                others = engine.infill(self._sampled(request), cancel)
                drafts += model_drafts(others, ask.origin)
        except EngineError as error:
            suggested.reason = str(error)
        suggested.engine_ended = time.monotonic()
        suggested.engine_s += suggested.engine_ended - begun
        return drafts

    def _request(self, shape: Plan, context: Context) -> InfillRequest:
        completion = self._settings.completion
        return InfillRequest(
            prefix=shape.prefix,
            suffix=shape.suffix,
            snippets=tuple(Snippet(s.text, s.path) for s in context.snippets),
            max_tokens=min(shape.max_tokens, completion.max_tokens),
            mode="speculative",
            stop=shape.stop,
            must_start_with=shape.must_start_with,
            drafts=engine_drafts(context.lookups, shape),
            deadline_s=completion.deadline_ms / 1000,
        )

    def _sampled(self, request: InfillRequest) -> InfillRequest:
        """Other texts for the same place; drafts and speculation are for the likeliest one."""
        return replace(
            request,
            mode="threshold",
            drafts=(),
            temperature=SAMPLING_TEMPERATURE,
            n=self._settings.completion.alternatives - 1,
        )

    @property
    def _least(self) -> float:
        return self._settings.completion.min_confidence

    def _proposed(self, ask: Ask, shape: Plan, drafts: list[Draft]) -> list[Suggestion]:
        return proposed(drafts, ask.place, shape, ask.popup, ask.deleted)

    def _chosen(self, ask: Ask, suggestions: list[Suggestion]) -> tuple[Suggestion, ...]:
        chosen = choose(suggestions, invoked=ask.invoked, least=self._least)
        return chosen[: self._settings.completion.alternatives]
