"""Does the check fail, and does it fail the same way each time? Only then can it be repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from clover_patcher.check.command import Check
from clover_patcher.check.runners import Runner
from clover_patcher.errors import BaselineError, UsageError
from clover_patcher.types import Outcome

_CANNOT_RUN = {
    "pytest": frozenset({"exit 3", "exit 4", "exit 5"}),
    "python": frozenset[str](),
    "lint": frozenset[str](),
    "command": frozenset({"exit 126", "exit 127"}),
}
"""How a check ends that never came to the program: wrong options, no tests, no such command."""


def reproduce(check: Check, starts: Sequence[Callable[[], Runner]]) -> tuple[Outcome, list[Runner]]:
    """The same failure twice, and the runners that show it without disturbing each other.

    `starts` make the runners; all of them run the check at the same time. Where they disagree,
    the first one says twice, alone, what the failure is, and is the only one to go on with.

    Raises `UsageError` where the check never came to test anything, `BaselineError` where it
    passes or fails in different ways.
    """
    with ThreadPoolExecutor(len(starts)) as threads:
        begun = list(threads.map(_first_run, starts))
    runners = [runner for runner, _ in begun]
    outcomes = [outcome for _, outcome in begun]
    _require_runnable(check, outcomes[0])
    if len({outcome.signature for outcome in outcomes}) > 1:
        runners = runners[:1]
        outcomes = [runners[0].baseline()]
    if len(outcomes) == 1:
        outcomes.append(runners[0].baseline())
    _require_same_failure(outcomes)
    return outcomes[0], runners


def _first_run(start: Callable[[], Runner]) -> tuple[Runner, Outcome]:
    runner = start()
    return runner, runner.baseline()


def _require_runnable(check: Check, outcome: Outcome) -> None:
    for failure in outcome.failures:
        if outcome.status == "error" and failure.kind in _CANNOT_RUN[check.kind]:
            said = failure.message or failure.kind
            raise UsageError(f"the check cannot run: {said}; correct the command {check.display!r}")


def _require_same_failure(outcomes: Sequence[Outcome]) -> None:
    passed = [outcome.status == "passed" for outcome in outcomes]
    if all(passed):
        raise BaselineError("the check passes already: there is nothing to repair")
    if any(passed):
        raise BaselineError("the check is flaky: it passed once and failed once, unchanged")
    if len({outcome.signature for outcome in outcomes}) > 1:
        raise BaselineError("the check is flaky: it failed in two ways, unchanged")
