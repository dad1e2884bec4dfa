"""The search: candidates of all proposers are tried, and every outcome flows back to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from clover_patcher.locate.evidence import Evidence
from clover_patcher.propose.proposer import Proposer, streams
from clover_patcher.report.runlog import RunLog
from clover_patcher.task.task import Task
from clover_patcher.types import Candidate, Validation
from clover_patcher.validate.choice import Passing, best_first, verdict
from clover_patcher.validate.feed import Feed
from clover_patcher.validate.validator import Validator

_GRACE_S = 3.0
"""How long a round goes on after the first passing candidate, to find a better one."""
_OPINION_S = 30.0
"""How long a model that was asked for code is waited for, where another's candidate passes; never
more than a third of the time that is left."""
_THOROUGH = 0.75
"""How much of the time that is left a thorough search goes on after the first passing candidate."""


class Search:
    """Rounds of trying; each ends with candidates that pass, or with none left or no time left."""

    def __init__(
        self, task: Task, evidence: Evidence, proposers: Sequence[Proposer], log: RunLog
    ) -> None:
        self.tried = 0
        self.passing: list[Passing] = []
        """All that passed, of every round."""
        self._task, self._evidence, self._log = task, evidence, log
        self._is_thorough = task.request.thorough
        self._proposers = proposers
        self._feed = Feed(*streams(proposers, evidence))

    @property
    def exhausted(self) -> bool:
        """Whether every candidate has been tried."""
        return self._feed.exhausted

    def stop(self) -> None:
        """Makes no more candidates."""
        self._feed.stop()

    def round(self, validator: Validator) -> list[Passing]:
        """Tries candidates until one passes, and then for a moment those that could be better.

        A thorough search goes on with all of them for most of the time that is left.
        Those that pass, best first. A later round goes on where this one ended.
        """
        clock = self._task.clock
        clock.relax()
        passing: list[Passing] = []
        order = partial(verdict, () if self._is_thorough else passing)
        self._try(validator, self._feed.candidates(clock, order), passing)
        if passing and not self._is_thorough:
            self._hear_others(validator, passing)
        self.passing += passing
        return best_first(passing)

    def _hear_others(self, validator: Validator, passing: list[Passing]) -> None:
        """Waits for the first candidate of a slow proposer, although others pass."""
        slow = [proposer for proposer in self._proposers if proposer.is_slow]
        if not any(proposer.is_awaited for proposer in slow):
            return
        clock, names = self._task.clock, {proposer.name for proposer in slow}
        clock.relax()
        clock.hurry(min(_OPINION_S, clock.left_s / 3))
        words = "a patch passes; waiting for the model's own"
        self._task.progress.event("found", words, left_s=clock.left_s)
        wanted = self._feed.awaited(
            clock,
            lambda candidate: candidate.proposer in names,
            lambda: not any(proposer.is_awaited for proposer in slow),
        )
        self._try(validator, wanted, passing)

    def _try(
        self, validator: Validator, candidates: Iterator[Candidate | None], passing: list[Passing]
    ) -> None:
        """Validates candidates; those that pass join `passing`, after which there is a hurry."""
        clock = self._task.clock
        for validation in validator.run(self._permitted(candidates)):
            self.tried += 1
            self._take_note(validation)
            if validation.outcome.status == "passed":
                passing.append(Passing(validation.candidate, self.tried))
                if not self._is_thorough:
                    clock.hurry(_GRACE_S)
                elif len(passing) == 1:
                    clock.hurry(_THOROUGH * clock.left_s)
            shown = best_first(passing)[0].candidate if passing else validation.candidate
            self._task.progress.event(
                "found" if passing else "search",
                shown.text.strip(),
                tried=self.tried,
                passing=len(passing),
                left_s=clock.left_s,
            )

    def _permitted(self, candidates: Iterator[Candidate | None]) -> Iterator[Candidate | None]:
        """Candidates that change only what may be changed, and that no earlier run saw fail."""
        permission = self._evidence.permission
        for candidate in candidates:
            if candidate is None:
                yield None
            elif all(map(permission.allows, candidate.paths)) and self._log.is_new(candidate):
                yield candidate

    def _take_note(self, validation: Validation) -> None:
        self._log.candidate(validation, self.tried)
        for proposer in self._proposers:
            proposer.learn(validation)
