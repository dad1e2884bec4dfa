"""Says in words what failed, why this place, and why this patch."""

from __future__ import annotations

from collections.abc import Sequence

from clover_patcher.propose.templates import PRIORS
from clover_patcher.request import Explanation
from clover_patcher.types import Candidate, Location, Outcome, TestFailure

_SHOWN = 3
_SUSPECTS = 10
"""So many suspicious lines are kept for people to look at."""


def describe_failures(outcome: Outcome) -> str:
    """One line about what a failing check reports."""
    named = [failure for failure in outcome.failures if failure.nodeid]
    if not named:
        kind = outcome.failures[0].kind if outcome.failures else outcome.status
        return f"the check fails ({kind})"
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    if all(failure.nodeid.endswith(f":{failure.kind}") for failure in named):  # diagnostics
        return ", ".join(f"{f.nodeid} ({f.message})" for f in named[:_SHOWN]) + more
    shown = ", ".join(_describe(failure) for failure in named[:_SHOWN])
    return f"{shown}{more} of {len(named) + outcome.passed} tests"


def explain(
    candidate: Candidate,
    baseline: Outcome,
    locations: Sequence[Location],
    tried: int,
    passing: int,
) -> Explanation:
    """Why the patch is what it is: the failure, the place, the change, the evidence.

    `tried` and `passing` count the candidates; `locations` are best first.
    """
    place = f"{candidate.path}:{candidate.line}"
    rank = _rank(candidate, locations)
    ranked = f", number {rank} of {len(locations)} lines" if rank else ""
    others = f"; {passing - 1} of the others pass it too" if passing > 1 else ""
    return Explanation(
        failure=f"Failing before: {describe_failures(baseline)}",
        place=f"{place} was suspected because {_reasons(candidate, locations)}{ranked}",
        change=f"The change ({candidate.kind}) gives `{_one_line(candidate.text)}`",
        proposer=candidate.origin.words,
        validation=(
            "The whole check passes with it in a fresh copy of the tree, from a cold start, "
            f"after {tried} candidate{'s' * (tried != 1)} {'were' if tried != 1 else 'was'} "
            f"tried{others}"
        ),
        tests=tuple(failure.nodeid for failure in baseline.failures if failure.nodeid),
        kind=candidate.kind,
        prior=PRIORS.get(candidate.kind, 0.0),
        logprob=candidate.logprob,
        place_rank=rank,
        suspects=tuple(locations[:_SUSPECTS]),
        num_suspects=len(locations),
    )


def _describe(failure: TestFailure) -> str:
    return f"{failure.nodeid} ({failure.kind})"


def _one_line(text: str) -> str:
    """A change of several lines in one, with a sign for the line ends."""
    return " ⏎ ".join(line.strip() for line in text.strip().splitlines())


def _rank(candidate: Candidate, locations: Sequence[Location]) -> int | None:
    place = (candidate.path, candidate.line)
    return next((n for n, at in enumerate(locations, 1) if (at.path, at.line) == place), None)


def _reasons(candidate: Candidate, locations: Sequence[Location]) -> str:
    """The reasons of the location nearest to the change."""
    near = [at for at in locations if at.path == candidate.path]
    if not near:
        return "the failing tests run it"
    nearest = min(near, key=lambda at: abs(at.line - candidate.line))
    return "; ".join(nearest.reasons) or "the failing tests run it"
