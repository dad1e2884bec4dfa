"""The checking tool's own suggestions as a proposer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clover_patcher.locate.evidence import Evidence
from clover_patcher.types import Candidate, Validation


class ToolSuggestions:
    """Repairs that a linter offers for what it reports, in the files that are suspected."""

    name = "tool"
    is_slow = False
    is_awaited = False
    notes: Sequence[str] = ()

    def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        """One batch with those suggestions that change nothing but suspected files."""
        yield [c for c in evidence.suggestions if evidence.suspected.issuperset(c.paths)]

    def learn(self, validation: Validation) -> None:
        """Does nothing: the tool has said all it has to say."""
