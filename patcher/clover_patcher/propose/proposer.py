"""What makes candidates from evidence: the protocol, and how several proposers take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    def notes(self) -> Sequence[str]:
        """What went wrong on the way, in words."""

    def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        """Batches, most promising first, until there are none or `evidence.deadline` has passed.

        A batch is made when the one before it is being tried. Edits are about the bytes that
        `evidence.read` gives; edits of files that may not be changed are dropped by the search.
        """

    def learn(self, validation: Validation) -> None:
        """Takes note of a candidate's outcome; must not block."""


def one_after_another(
    proposers: Sequence[Proposer], evidence: Evidence
) -> Iterator[list[Candidate]]:
    """All batches of the first proposer, then those of the next."""
    for proposer in proposers:
        yield from proposer.propose(evidence)
