"""Does the check fail, and does it fail the same way each time? Only then can it be repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from clover_patcher.check.command import Check
from clover_patcher.check.runners import Runner
from clover_patcher.errors import BaselineError, CannotPass
from clover_patcher.types import Outcome

_CANNOT_RUN = {
    "pytest": frozenset({"exit 3", "exit 4", "exit 5"}),
    "python": frozenset[str](),
    "lint": frozenset[str](),
    "command": frozenset({"exit 126", "exit 127"}),
}
"""How a check ends that never came to the program: wrong options, no tests, no such command."""
_MOST_REPAIRS = 5
"""So often the copies are made more complete before the failure is taken as it is."""


def reproduce(
    check: Check,
    starts: Sequence[Callable[[], Runner]],
    mend: Callable[[Outcome, Runner], bool] = lambda outcome, runner: False,
    hopeless: Callable[[Outcome, Runner], str | None] = lambda outcome, runner: None,
) -> tuple[Outcome, list[Runner]]:
    """The same failure twice, and the runners that show it without disturbing each other.

    `starts` make the runners; all of them run the check at the same time. Where they disagree,
    the first one says twice, alone, what the failure is, and is the only one to go on with.
    `mend` brings in what the copies lack, and says whether that was anything: then all starts
    again. `hopeless` says why no edit can make the check pass, None where one may.

    Raises `CannotPass` where the check never came to test anything or cannot be made to pass,
    `BaselineError` where it passes or fails in different ways, and what `mend` raises.
    """
    for _ in range(_MOST_REPAIRS):
        with ThreadPoolExecutor(len(starts)) as threads:
            begun = list(threads.map(_first_run, starts))
        runners = [runner for runner, _ in begun]
        outcomes = [outcome for _, outcome in begun]
        if not mend(outcomes[0], runners[0]):
            break
        for runner in runners:
            runner.close()
    _require_runnable(check, outcomes[0])
    if why := hopeless(outcomes[0], runners[0]):
        raise CannotPass(why, outcomes[0])
    with ThreadPoolExecutor(len(runners)) as threads:
        list(threads.map(_prepare, runners))
    if len({outcome.signature for outcome in outcomes}) > 1:
        runners = runners[:1]
        outcomes = [runners[0].baseline()]
    if len(outcomes) == 1:
        outcomes.append(runners[0].baseline())
    _require_same_failure(outcomes)
    return outcomes[0], runners


def _first_run(start: Callable[[], Runner]) -> tuple[Runner, Outcome]:
    runner = start()
    return runner, runner.look()


def _prepare(runner: Runner) -> None:
    runner.prepare()


def _require_runnable(check: Check, outcome: Outcome) -> None:
    for failure in outcome.failures:
        if outcome.status == "error" and failure.kind in _CANNOT_RUN[check.kind]:
            said = failure.message or failure.kind
            words = f"the check cannot run: {said}; correct the command {check.display!r}"
            raise CannotPass(words, outcome)


def _require_same_failure(outcomes: Sequence[Outcome]) -> None:
    passed = [outcome.status == "passed" for outcome in outcomes]
    if all(passed):
        raise BaselineError("the check passes already: there is nothing to repair")
    if any(passed):
        raise BaselineError("the check is flaky: it passed once and failed once, unchanged")
    if len({outcome.signature for outcome in outcomes}) > 1:
        raise BaselineError("the check is flaky: it failed in two ways, unchanged")
