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


class Search:
    """Rounds of trying; each ends with candidates that pass, or with none left or no time left."""

    def __init__(
        self, task: Task, evidence: Evidence, proposers: Sequence[Proposer], log: RunLog
    ) -> None:
        self.tried = 0
        self.passing: list[Passing] = []
        """All that passed, of every round."""
        self._task, self._evidence, self._log = task, evidence, log
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

        Those that pass, best first. A later round goes on where this one ended.
        """
        clock = self._task.clock
        clock.relax()
        passing: list[Passing] = []
        wanted = self._feed.candidates(clock, partial(verdict, passing))
        for validation in validator.run(self._permitted(wanted)):
            self.tried += 1
            self._take_note(validation)
            if validation.outcome.status == "passed":
                passing.append(Passing(validation.candidate, self.tried))
                clock.hurry(_GRACE_S)
            shown = best_first(passing)[0].candidate if passing else validation.candidate
            self._task.progress.event(
                "found" if passing else "search",
                shown.text.strip(),
                tried=self.tried,
                passing=len(passing),
                left_s=clock.left_s,
            )
        self.passing += passing
        return best_first(passing)

    def _permitted(self, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        """Candidates that change only what may be changed, and that no earlier run saw fail."""
        permission = self._evidence.permission
        for candidate in candidates:
            if all(map(permission.allows, candidate.paths)) and self._log.is_new(candidate):
                yield candidate

    def _take_note(self, validation: Validation) -> None:
        self._log.candidate(validation, self.tried)
        for proposer in self._proposers:
            proposer.learn(validation)
