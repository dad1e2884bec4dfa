"""Enumerated edits of one line: what a programmer's small slip, undone, could look like.

Rules live in `rules/`. An expression rule gets a syntax node and yields new texts for it; a
statement rule yields whole lines to put in, or other changes of the line. Each edit has a kind;
`PRIORS` says how often a repair is of that kind, and the weights of one kind's edits on a line
share that probability among them. Nothing here knows whether an edit is any good.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tree_sitter import Node

from clover_patcher.propose.clues import Clues, lift
from clover_patcher.propose.names import Scope
from clover_patcher.propose.syntax import Source, Statement, walk_header

PRIORS: dict[str, float] = {
    "operator": 0.201,
    "boolean": 0.04,
    "boundary": 0.014,
    "presence": 0.021,
    "negate": 0.06,
    "swap": 0.113,
    "augment": 0.014,
    "constant": 0.088,
    "string": 0.014,
    "name": 0.11,
    "unread": 0.06,
    "target": 0.014,
    "attribute": 0.038,
    "function": 0.035,
    "argument": 0.078,
    "keyword": 0.007,
    "index": 0.042,
    "slice": 0.028,
    "offset": 0.035,
    "wrap": 0.035,
    "clamp": 0.014,
    "unwrap": 0.028,
    "drop": 0.028,
    "term": 0.028,
    "condition": 0.035,
    "expression": 0.045,
    "display": 0.021,
    "statement": 0.021,
    "group": 0.007,
    "delete": 0.014,
    "move": 0.014,
    "order": 0.014,
    "guard": 0.021,
    "insert": 0.073,
    "sibling": 0.193,
    "echo": 0.021,
    "call": 0.02,
    "uncalled": 0.06,
    "placeholder": 0.4,
    "cloze": 0.07,
    "line": 0.035,
    "syntax": 1.0,
    "enclose": 0.014,
    "misspelt": 1.0,
    "import": 0.6,
    "signature": 0.6,
    "affix": 0.15,
    "default": 0.1,
    "identity": 0.2,
    "super": 0.05,
    "lookup": 0.015,
    "none": 0.01,
    "fallback": 0.015,
    "text": 0.02,
    "await": 0.02,
    "encoding": 0.02,
    "exception": 0.05,
    "result": 0.03,
    "copy": 0.02,
    "key": 0.02,
    "interpolate": 0.02,
    "quoted": 0.4,
    "closure": 0.05,
    "convert": 0.3,
    "try": 0.03,
}
"""How often a one-line repair is of each kind; need not sum to one. The last ones are for slips
that the failure itself names (`clues.py` lifts them) or that are seldom right as they stand."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one line's content, with what is put around it when it is filled.

    The text before the slot is the source up to `start` and `lead`; the text after it is `tail`
    and the source from `end`. `original` is what stands there now, "" for a new line.
    """

    start: int
    end: int
    lead: str = ""
    tail: str = ""
    original: str = ""
    margin: str = ""
    """What later lines of the content start with."""
    in_loop: bool = False
    inside: bool = False
    """For new lines: whether `break` and `return` may stand there."""

    @property
    def inserts(self) -> bool:
        return self.start == self.end and not self.original


@dataclass(slots=True)
class Proposal:
    """One edit: `new` replaces [start, end). `fill` is the slot's new content for the model."""

    start: int
    end: int
    new: str
    kind: str
    weight: float
    """Relative to the other proposals of the same kind on the line."""
    slot: Slot | None
    """None where the edit is not the content of one line (moved, swapped lines)."""
    fill: str = ""
    log_prior: float = 0.0


NOTHING = Clues()
"""Of a failure that says nothing."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a rule is asked for edits."""

    source: Source
    statement: Statement
    scope: Scope
    line: int
    clues: Clues = NOTHING

    def text(self, node: Node) -> str:
        return self.source.text(node)


@dataclass(frozen=True, slots=True)
class Change:
    """What an expression rule yields: other text for a node or for a run of nodes."""

    start: int
    end: int
    new: str
    kind: str
    weight: float = 1.0


ExpressionRule = Callable[[Node, Site], Iterable[Change]]
StatementRule = Callable[[Site], Iterable[Proposal]]

_BY_TYPE: dict[str, list[ExpressionRule]] = defaultdict(list)
_ANY: list[ExpressionRule] = []
_STATEMENT: list[StatementRule] = []


def expression_rule(*types: str) -> Callable[[ExpressionRule], ExpressionRule]:
    """Registers a rule for nodes of these types; for all nodes if none is named."""

    def register(rule: ExpressionRule) -> ExpressionRule:
        for kind in types:
            _BY_TYPE[kind].append(rule)
        if not types:
            _ANY.append(rule)
        return rule

    return register


def statement_rule(rule: StatementRule) -> StatementRule:
    _STATEMENT.append(rule)
    return rule


def change(node: Node, new: str, kind: str, weight: float = 1.0) -> Change:
    return Change(node.start_byte, node.end_byte, new, kind, weight)


@lru_cache(64)
def line_slot(source: Source, line: int) -> Slot:
    """The content of a line that exists."""
    start, end = source.content_start(line), source.line_end(line)
    original, indentation = source.slice(start, end), source.indentation(line)
    return Slot(start, end, original=original, margin=indentation)


def new_line_slot(source: Source, before: int, beside: Statement) -> Slot:
    """A new line before line `before`, indented as the statement `beside` it.

    One past the last line means the end of the file.
    """
    indentation = source.indentation(beside.first_line)
    loop, inside = beside.in_loop, beside.function is not None
    code = source.code
    at = source.line_start(before) if before <= source.line_count else len(code)
    eol = source.eol_near(at)
    if at == len(code) and not code.endswith(b"\n"):
        lead, tail = eol + indentation, ""
    else:
        lead, tail = indentation, eol
    return Slot(at, at, lead, tail, margin=indentation, in_loop=loop, inside=inside)


def fill_slot(source: Source, slot: Slot, text: str, kind: str, weight: float = 1.0) -> Proposal:
    """The edit that puts `text` into the slot; its later lines are indented like the slot's."""
    if "\n" in text:
        text = text.replace("\n", f"{source.eol_near(slot.start)}{slot.margin}")
    return Proposal(slot.start, slot.end, slot.lead + text + slot.tail, kind, weight, slot, text)


def propose(site: Site) -> list[Proposal]:
    """Every enumerated edit at the site's statement and line, best prior first."""
    found = [_proposal(site, c) for c in _expression_changes(site)]
    for rule in _STATEMENT:
        found.extend(rule(site))
    return prioritised(found, site.clues)


def _expression_changes(site: Site) -> Iterator[Change]:
    for node in walk_header(site.statement):
        first = site.source.line_of(node.start_byte)
        last = site.source.line_of(max(node.start_byte, node.end_byte - 1))
        if not first <= site.line <= last:
            continue
        for rule in (*_BY_TYPE.get(node.type, ()), *(_ANY if node.is_named else ())):
            yield from rule(node, site)


def _proposal(site: Site, c: Change) -> Proposal:
    """An expression change, as new content of its line where it stays inside one line."""
    source = site.source
    line = source.line_of(c.start)
    slot = line_slot(source, line)
    if c.end > slot.end or c.start < slot.start or "\n" in c.new:
        return Proposal(c.start, c.end, c.new, c.kind, c.weight, None)
    fill = source.slice(slot.start, c.start) + c.new + source.slice(c.end, slot.end)
    return Proposal(c.start, c.end, c.new, c.kind, c.weight, slot, fill)


def prioritised(found: list[Proposal], clues: Clues = NOTHING) -> list[Proposal]:
    """Gives each proposal its kind's probability times its share of it; best first."""
    priors = {kind: PRIORS[kind] * lift(kind, clues) for kind in {p.kind for p in found}}
    totals: dict[str, float] = defaultdict(float)
    for proposal in found:
        totals[proposal.kind] += proposal.weight
    for p in found:
        p.log_prior = math.log(priors[p.kind] * p.weight / totals[p.kind])
    return sorted(found, key=lambda p: -p.log_prior)
