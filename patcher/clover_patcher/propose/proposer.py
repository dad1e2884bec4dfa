"""What makes candidates from evidence: the protocol, and how several proposers take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from clover_patcher.locate.evidence import Evidence
from clover_patcher.types import Candidate, Validation


class Proposer(Protocol):
    """Makes candidates for a failure, and may learn from what became of them.

    `propose` runs in a thread of its own; `learn` is called from another one meanwhile, for the
    candidates of every proposer, in the order in which their validations end.
    """

    @property
    def name(self) -> str:
        """Stands in `Candidate.proposer`, the log and the result."""

    @property
    def is_slow(self) -> bool:
        """Whether a batch takes seconds: it is then made beside the others' batches."""

    @property
    def is_awaited(self) -> bool:
        """Whether its first candidate is to come, and worth waiting for where others pass."""

    @property
    def notes(self) -> Sequence[str]:
        """What went wrong on the way, in words."""

    def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        """Batches, most promising first, until there are none or `evidence.deadline` has passed.

        A batch is made when the one before it is being tried. Edits are about the bytes that
        `evidence.read` gives; edits of files that may not be changed are dropped by the search.
        """

    def learn(self, validation: Validation) -> None:
        """Takes note of a candidate's outcome; must not block."""


def streams(proposers: Sequence[Proposer], evidence: Evidence) -> list[Iterator[list[Candidate]]]:
    """What is made at the same time: the quick proposers, one after another, and each slow one."""
    quick = [proposer for proposer in proposers if not proposer.is_slow]
    slow = [proposer.propose(evidence) for proposer in proposers if proposer.is_slow]
    return [chain.from_iterable(proposer.propose(evidence) for proposer in quick), *slow]
