"""From all that is proposed for a place to what is shown: calibrated, distinct, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clover_engine.api import InfillResult
from clover_engine.gate import SHOWN_CONFIDENCE, model_probability
from clover_engine.line_ends import to_lf
from clover_lsp.context.confidence import confidence
from clover_lsp.context.types import Lookup, Place
from clover_lsp.suggest.joint import joint, proposer
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


def proposed(
    drafts: Iterable[Draft],
    place: Place,
    plan: Plan,
    popup: Popup | None = None,
    deleted: Sequence[str] = (),
) -> list[Suggestion]:
    """Every different text that is fit for the place, the most probable first; what is known of
    one from all who proposed it (`joint.py`)."""
    fit = [polish(draft, place, plan, popup, deleted) for draft in drafts]
    found = [suggestion for suggestion in fit if suggestion is not None]
    sure = joint((proposer(s), s.text, s.confidence) for s in found)
    first: dict[str, Suggestion] = {}
    for suggestion in sorted(found, key=lambda s: -s.confidence):
        first.setdefault(suggestion.text, replace(suggestion, confidence=sure[suggestion.text]))
    return sorted(first.values(), key=lambda s: -s.confidence)


def choose(
    suggestions: Iterable[Suggestion],
    *,
    invoked: bool = False,
    least: float = SHOWN_CONFIDENCE,
    kept: Sequence[Suggestion] = (),
) -> tuple[Suggestion, ...]:
    """What to show of what is `proposed`: one text, or several where `invoked`.

    `least`: the probability of being right below which a text is not shown by itself; asked for,
    all are. `kept`: what is left of a suggestion that is shown already (`reuse.Shown.get`); it
    stays first.
    """
    found: dict[str, Suggestion] = {s.text: s for s in kept}
    for suggestion in suggestions:
        if not invoked and (found or suggestion.confidence < least):
            break
        found.setdefault(suggestion.text, suggestion)
    return tuple(found.values())[: SEVERAL if invoked else 1]
