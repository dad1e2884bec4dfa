"""One place → suggestions. Runs on a worker thread; knows nothing of the protocol.

Plan → context → look-up, or the model with the look-ups as drafts → fit for the place → gate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from clover_engine.api import CancelToken, Engine, InfillRequest, InfillResult, Snippet
from clover_lsp.context.types import Context, ContextRoom, Lookup, Place
from clover_lsp.settings import Settings
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.scene import at_popup
from clover_lsp.suggest.shape import Lines, Plan, Skip, plan
from clover_lsp.suggest.types import Draft, Origin, Popup, Suggestion
from clover_lsp.text import to_lf

SAMPLING_TEMPERATURE = 0.8
SURE = 0.9
DRAFTS = 4
"""Look-ups that are handed to the engine to verify."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for. `deleted`: texts that must not come back."""

    place: Place
    popup: Popup | None = None
    invoked: bool = False
    deleted: tuple[str, ...] = ()
    origin: Origin = "model"


@dataclass(slots=True)
class Found:
    """Suggestions, best first; or the reason for none."""

    suggestions: list[Suggestion] = field(default_factory=list)
    reason: str = ""
    engine_s: float = 0.0
    engine_ended: float = 0.0
    """When the engine returned (monotonic seconds)."""


class Computer:
    """The means for one computation; immutable, so that settings cannot change midway."""

    def __init__(self, settings: Settings, context: ContextRoom, engine: Engine | None) -> None:
        self._settings = settings
        self._context = context
        self._engine = engine

    def find(self, ask: Ask, cancel: CancelToken) -> Found:
        """Raises what the engine raises; a cancelled computation finds nothing."""
        here = at_popup(ask.place, ask.popup)
        lines: Lines = "single" if self._settings.completion.multi_line == "never" else "auto"
        shape = plan(here, lines=lines, invoked=ask.invoked)
        if isinstance(shape, Skip):
            return Found(reason=shape.reason)
        context = self._context.gather(here, self._settings.context.budget_tokens, cancel)
        if context.withheld or cancel.cancelled:
            return Found(reason=context.withheld)
        if (context.place.prefix, context.place.suffix) != (here.prefix, here.suffix):
            # The room took secrets out: the model gets the place without them.
            shape = plan(context.place, lines=lines, invoked=ask.invoked)
            if isinstance(shape, Skip):
                return Found(reason=shape.reason)
        found = Found()
        drafts = self._looked_up(context)
        if self._needs_model(ask, drafts) and self._engine is not None:
            drafts += self._generated(ask, shape, context, cancel, found)
        self._fit(ask, shape, drafts, found)
        return found

    def _looked_up(self, context: Context) -> list[Draft]:
        if not self._settings.completion.lookup:
            return []
        return lookup_drafts(context.lookups)

    def _needs_model(self, ask: Ask, drafts: list[Draft]) -> bool:
        return ask.invoked or not is_sure(drafts)

    def _generated(
        self, ask: Ask, shape: Plan, context: Context, cancel: CancelToken, found: Found
    ) -> list[Draft]:
        request = self._request(ask, shape, context)
        begun = time.monotonic()
        try:
            drafts = self._ask_engine(request, ask.origin, cancel)
            if ask.invoked and not cancel.cancelled and self._settings.completion.alternatives > 1:
                drafts += self._ask_engine(self._sampled(request), ask.origin, cancel)
            return drafts
        finally:
            found.engine_ended = time.monotonic()
            found.engine_s = found.engine_ended - begun

    def _ask_engine(
        self, request: InfillRequest, origin: Origin, cancel: CancelToken
    ) -> list[Draft]:
        assert self._engine is not None
        result: InfillResult = self._engine.infill(request, cancel)
        whole = ("eom", "stop")
        return [
            Draft(choice.text, choice.confidence, origin, choice.finish_reason in whole)
            for choice in result.choices
        ]

    def _request(self, ask: Ask, shape: Plan, context: Context) -> InfillRequest:
        completion = self._settings.completion
        return InfillRequest(
            prefix=shape.prefix,
            suffix=shape.suffix,
            snippets=tuple(Snippet(s.text, s.path) for s in context.snippets),
            max_tokens=min(shape.max_tokens, completion.max_tokens),
            mode="speculative",
            stop=shape.stop,
            drafts=tuple(to_lf(lookup.text) for lookup in context.lookups[:DRAFTS]),
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

    def _fit(self, ask: Ask, shape: Plan, drafts: list[Draft], found: Found) -> None:
        """Fits the drafts to the place; what is not sure enough or doubled is left out."""
        least = 0.0 if ask.invoked else self._settings.completion.min_confidence
        seen: set[str] = set()
        for draft in drafts:
            if draft.confidence < least:
                continue
            suggestion = polish(draft, ask.place, shape, ask.popup, ask.deleted)
            if suggestion is not None and suggestion.text not in seen:
                seen.add(suggestion.text)
                found.suggestions.append(suggestion)
        limit = self._settings.completion.alternatives if ask.invoked else 1
        found.suggestions = found.suggestions[:limit]
        if not found.suggestions:
            found.reason = found.reason or "nothing sure enough"


def lookup_drafts(lookups: Sequence[Lookup]) -> list[Draft]:
    return [
        Draft(
            to_lf(found.text),
            min(1.0, found.matched / 8) * found.count / (found.count + found.rivals),
            "lookup",
        )
        for found in lookups
    ]


def is_sure(drafts: Sequence[Draft]) -> bool:
    return any(draft.confidence >= SURE for draft in drafts)
