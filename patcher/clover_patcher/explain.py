"""Says in words what failed, why this place, and why this patch."""

from __future__ import annotations

from collections.abc import Sequence

from .types import Candidate, Location, Outcome, TestFailure

_SHOWN = 3


def describe_failures(outcome: Outcome) -> str:
    """One line about what a failing check reports."""
    named = [failure for failure in outcome.failures if failure.nodeid]
    if not named:
        kind = outcome.failures[0].kind if outcome.failures else outcome.status
        return f"the check fails ({kind})"
    shown = ", ".join(_describe(failure) for failure in named[:_SHOWN])
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"{shown}{more} of {len(named) + outcome.passed} tests"


def explain(
    candidate: Candidate,
    baseline: Outcome,
    locations: Sequence[Location],
    tried: int,
    passing: int,
) -> str:
    """Why the patch is what it is: the failure, the place, the change, the evidence."""
    parts = [f"Failing before: {describe_failures(baseline)}."]
    place = f"{candidate.edit.path}:{candidate.line}"
    parts.append(f"{place} was suspected because {_reasons(candidate, locations)}.")
    change = f"The change ({candidate.kind}) gives `{candidate.text.strip()}`"
    if candidate.logprob is not None:
        change += f", which the model gives a log-probability of {candidate.logprob:.2f}"
    parts.append(change + ".")
    others = f"; {passing - 1} of the others pass it too" if passing > 1 else ""
    parts.append(
        f"The whole check passes with it in a fresh copy of the tree, from a cold start, after "
        f"{tried} candidates were tried{others}."
    )
    return " ".join(parts)


def _describe(failure: TestFailure) -> str:
    return f"{failure.nodeid} ({failure.kind})"


def _reasons(candidate: Candidate, locations: Sequence[Location]) -> str:
    """The reasons of the location nearest to the change."""
    near = [at for at in locations if at.path == candidate.edit.path]
    if not near:
        return "the failing tests run it"
    nearest = min(near, key=lambda at: abs(at.line - candidate.line))
    return "; ".join(nearest.reasons) or "the failing tests run it"
