"""The next edit: what follows from the latest ones, or nothing.

No model is needed: an edit is proposed only where the text itself says that it belongs to one
that was made (a name's other places, the same change elsewhere, calls of a changed function), or
where a diagnostic near the cursor has one sure fix. An edit that was undone, deleted or rejected
is not proposed again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from clover_engine.api import CancelToken
from clover_lsp.actions.diff import line_span
from clover_lsp.actions.limit import Limit, OutOfTime
from clover_lsp.actions.proposals import Change, Moment, Proposal
from clover_lsp.actions.rename import renames
from clover_lsp.actions.repeat import repeats
from clover_lsp.actions.signature import signatures
from clover_lsp.actions.typos import sure_name_fixes

SHOWN = 0.7
"""Confidence from which an edit is proposed; `bench/editor/edit.py` measures what that gives."""
CPU_S = 0.5
"""Processor time that the search may take."""
_NEAR = 12
"""Lines around the cursor whose diagnostics count."""


@dataclass
class Memory:
    """What the user did not want, in one document; survives edits elsewhere in it."""

    _rejected: set[tuple[str, str, str]] = field(default_factory=set)
    _ignored: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _shown: tuple[str, str, str] | None = None
    patience: int = 2
    """So often an edit may be shown and not taken."""

    def shown(self, text: str, proposal: Proposal) -> None:
        """The client shows it now."""
        self._shown = _identity(text, proposal)

    def accepted(self) -> None:
        self._shown = None

    def passed_over(self) -> None:
        """The user went on with something else; counts only for an edit that was shown."""
        if self._shown is not None:
            count = self._ignored[self._shown] = self._ignored.get(self._shown, 0) + 1
            if count >= self.patience:
                self._rejected.add(self._shown)
            self._shown = None

    def reject(self, text: str, proposal: Proposal) -> None:
        """The user said no."""
        self._rejected.add(_identity(text, proposal))
        self._shown = None

    def allows(self, text: str, proposal: Proposal) -> bool:
        return _identity(text, proposal) not in self._rejected


def next_edits(
    moment: Moment,
    memory: Memory | None = None,
    limit: int = 1,
    cpu_s: float = CPU_S,
    cancel: CancelToken | None = None,
) -> list[Proposal]:
    """The best edits of the present text, best first; mostly there is none.

    None either where finding them would take more than `cpu_s` seconds of processor time, and as
    soon as `cancel` is set.
    """
    moment = replace(moment, limit=Limit(cpu_s, cancel))
    try:
        return _next_edits(moment, memory or Memory(), limit)
    except OutOfTime:
        return []


def _next_edits(moment: Moment, memory: Memory, limit: int) -> list[Proposal]:
    for before in _baselines(moment):
        found: dict[tuple[int, int], Proposal] = {}
        change = Change.since(before, moment)
        for source in (renames, signatures, repeats):
            _keep_best(found, source(moment, change))
        if best := _best(moment, found.values(), memory, limit):
            return best
        moment.limit.check()
    return _best(moment, _diagnosed(moment), memory, limit)


def _baselines(moment: Moment) -> list[str]:
    """Former texts to compare with: the latest ones, and fewer and fewer of the older ones."""
    texts = [t for t in dict.fromkeys(moment.history) if t != moment.text]
    last = len(texts) - 1
    return [t for n, t in enumerate(texts) if n & (n - 1) == 0 or n == last]


def _best(
    moment: Moment, proposals: Iterable[Proposal], memory: Memory, limit: int
) -> list[Proposal]:
    by_line: dict[tuple[str, int], list[Proposal]] = defaultdict(list)
    likely = [p for p in moment.limit.each(proposals) if _is_fit(moment, p, memory)]
    for proposal in likely:
        by_line[proposal.reason, moment.line_of(proposal.start)].append(proposal)
    best: dict[Proposal, None] = {}
    for proposal in moment.limit.each(_ordered(moment, likely)):
        if len(best) == limit:
            break
        if not _takes_back(moment, proposal):
            line = by_line[proposal.reason, moment.line_of(proposal.start)]
            allowed = [p for p in line if not _takes_back(moment, p)]
            whole = _with_rest_of_line(moment, proposal, allowed)
            # What was undone or rejected was the whole of a line's edits: it is looked at again.
            if _is_fit(moment, whole, memory) and not _takes_back(moment, whole):
                best[whole] = None
    return list(best)


def _keep_best(best: dict[tuple[int, int], Proposal], more: Iterable[Proposal]) -> None:
    for proposal in more:
        known = best.get((proposal.start, proposal.end))
        if known is None or proposal.confidence > known.confidence:
            best[proposal.start, proposal.end] = proposal


def _is_fit(moment: Moment, proposal: Proposal, memory: Memory) -> bool:
    """Whether it changes something, is sure enough, away from the cursor, and not rejected."""
    if proposal.confidence < SHOWN or moment.text[proposal.start : proposal.end] == proposal.new:
        return False
    start, end = line_span(moment.text, proposal.start)
    if not moment.asked and start <= moment.cursor <= end:
        return False
    return memory.allows(moment.text, proposal)


def _takes_back(moment: Moment, proposal: Proposal) -> bool:
    """Whether the line would be what it was before: the user undid or deleted that."""
    new = _new_line(moment.text, proposal).strip()
    return moment.was_line(moment.line_of(proposal.start), new)


def _ordered(moment: Moment, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Nearest after the cursor first, then from the top."""
    return sorted(proposals, key=lambda p: (p.start < moment.cursor, p.start))


def _with_rest_of_line(
    moment: Moment, proposal: Proposal, proposals: Sequence[Proposal]
) -> Proposal:
    """The edit together with those of the same reason on its line, as one."""
    start, end = line_span(moment.text, proposal.start)
    same = sorted(
        (p for p in proposals if p.reason == proposal.reason and start <= p.start and p.end <= end),
        key=lambda p: p.start,
    )
    if not same:
        return proposal  # it spans lines
    new, at = "", same[0].start
    for part in same:
        if part.start < at:
            return proposal
        new += moment.text[at : part.start] + part.new
        at = part.end
    return replace(proposal, start=same[0].start, end=at, new=new)


def _diagnosed(moment: Moment) -> Iterable[Proposal]:
    if moment.language != "python":
        return
    line = moment.line_of(moment.cursor)
    near = [p for p in moment.problems if abs(p.line - line) <= _NEAR]
    for problem in sorted(near, key=lambda p: abs(p.line - line)):
        yield from sure_name_fixes(moment, problem)


def _identity(text: str, proposal: Proposal) -> tuple[str, str, str]:
    """Tells an edit wherever its line moves to: its kind, the line now, the line then."""
    start, end = line_span(text, proposal.start)
    return proposal.kind, text[start:end].strip(), _new_line(text, proposal).strip()


def _new_line(text: str, proposal: Proposal) -> str:
    start, _ = line_span(text, proposal.start)
    _, end = line_span(text, proposal.end)
    return text[start : proposal.start] + proposal.new + text[proposal.end : end]
