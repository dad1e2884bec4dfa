"""From all that is proposed for a place to what is shown: calibrated, distinct, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clover_engine.api import InfillResult
from clover_engine.gate import SHOWN_CONFIDENCE, model_probability
from clover_engine.line_ends import to_lf
from clover_lsp.context.confidence import confidence
from clover_lsp.context.types import Lookup, Place
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.shape import Plan
from clover_lsp.suggest.text import first_line
from clover_lsp.suggest.types import Draft, Origin, Popup, Suggestion

SURE = 0.9
"""Probability from which a look-up is shown without asking the model."""
SEVERAL = 5
"""Suggestions that are offered where the user asked for them."""


def model_drafts(result: InfillResult, origin: Origin = "model") -> list[Draft]:
    """An engine's texts with the probability that they are right."""
    return [
        Draft(
            choice.text,
            model_probability(choice.confidence, choice.text, result.model),
            origin,
            choice.finish_reason in ("eom", "stop"),
            result.model,
        )
        for choice in result.choices
    ]


def lookup_drafts(lookups: Iterable[Lookup], plan: Plan) -> list[Draft]:
    """What stands elsewhere, with the probability that it is right here too; one line, unless
    several are wanted."""
    drafts = []
    for found in lookups:
        text = to_lf(found.text)
        drafts.append(
            Draft(text if plan.multiline else first_line(text), confidence(found), "lookup")
        )
    return drafts


def is_sure(drafts: Iterable[Draft]) -> bool:
    """Is one of them so probable that the model need not be asked?"""
    return any(draft.confidence >= SURE for draft in drafts)


def engine_drafts(lookups: Sequence[Lookup], plan: Plan, limit: int = 4) -> tuple[str, ...]:
    """Look-ups for `InfillRequest.drafts`: they begin where `plan.prefix` ends."""
    return tuple(plan.must_start_with + to_lf(found.text) for found in lookups[:limit])


def choose(
    drafts: Iterable[Draft],
    place: Place,
    plan: Plan,
    popup: Popup | None = None,
    deleted: Sequence[str] = (),
    *,
    invoked: bool = False,
    least: float = SHOWN_CONFIDENCE,
    kept: Sequence[Suggestion] = (),
) -> tuple[Suggestion, ...]:
    """What to show, best first: one text, or several different ones where `invoked`.

    `least`: the probability of being right below which a text is not shown by itself; asked for,
    all are. `kept`: what is left of a suggestion that is shown already (`reuse.Shown.get`); it
    stays first. Two drafts that come to the same text count once, with the higher probability.
    """
    found: dict[str, Suggestion] = {s.text: s for s in kept}
    for draft in sorted(drafts, key=lambda d: -d.confidence):
        if not invoked and draft.confidence < least:
            break
        suggestion = polish(draft, place, plan, popup, deleted)
        if suggestion is not None:
            found.setdefault(suggestion.text, suggestion)
        if not invoked and found:
            break
    return tuple(found.values())[: SEVERAL if invoked else 1]
