"""The candidates of one run: made line by line, checked late, never twice, best first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from clover_engine.line_ends import to_lf
from clover_patcher.locate.counts import RepositoryCounts
from clover_patcher.propose.clues import Clues, lift
from clover_patcher.propose.grammar import Grammar
from clover_patcher.propose.names import Scopes
from clover_patcher.propose.rank import BOUND, DEFAULT, ModelScore, Weights, priority
from clover_patcher.propose.rules.syntax import propose_syntax
from clover_patcher.propose.syntax import Source, Statement, load_source
from clover_patcher.propose.templates import PRIORS, Proposal, Site, Slot, fill_slot, propose
from clover_patcher.propose.validity import Checker
from clover_patcher.propose.weakening import last_of_all
from clover_patcher.types import Candidate, Location, Origin

_ONLY_IF_NAMED = ("syntax", "misspelt", "import", "signature", "placeholder", "quoted",
                  "convert")  # fmt: skip
"""Kinds that need a broken file, a failure that names what the line has, or a rare line."""
_BEST_SHARE = 0.4
"""What a line's best candidate has of its kind's probability, as a rule."""
COUNTED = 60
"""Candidates of a line, best first, that are weighed by token counts: about a millisecond each."""
_INNER, _LONGEST_STATEMENT = 0.8, 40
"""How suspicious a statement's other lines are beside one of them; of statements so long."""
SlotKey = tuple[str, int, int, str]


@dataclass(slots=True, eq=False)
class Item:
    """One proposal on its way to being a candidate."""

    source: Source
    statement: Statement | None
    location: Location
    proposal: Proposal
    priority: float
    score: ModelScore | None = None
    counts: float | None = None
    """How much likelier token counts make the edit than what stands there, in nats."""
    valid: bool | None = None
    """None until checked."""
    gone: bool = False
    """Handed out already."""
    proposed_by: str = ""
    """The model whose text it is; empty for a template's."""
    ranked_by: str = ""
    """The model that scored it."""


@dataclass(slots=True, eq=False)
class SlotItems:
    """All candidates that fill one slot, which the model scores together."""

    key: SlotKey
    source: Source
    statement: Statement | None
    location: Location
    slot: Slot
    items: list[Item] = field(default_factory=list)
    logprobs: dict[str, float] = field(default_factory=dict)
    """What the model said about contents of the slot, with plain line ends."""


class CandidatePool:
    """Candidates of the suspicious lines of some files."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        locations: Sequence[Location],
        weights: Weights = DEFAULT,
        grammar: Grammar | None = None,
        counts: RepositoryCounts | None = None,
        *,
        clues: Clues | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.slots: dict[SlotKey, SlotItems] = {}
        self._weights, self._counts = weights, counts
        self._grammar = grammar
        self._clues = clues or Clues()
        usual = (
            p * lift(kind, self._clues) for kind, p in PRIORS.items() if kind not in _ONLY_IF_NAMED
        )
        self._best_prior = math.log(_BEST_SHARE * max(usual))
        """Hardly a template's log prior is above this: what a line not opened yet could hold."""
        self._heap: list[tuple[float, int, Item]] = []
        self._plain: list[tuple[float, int, Item]] = []
        """The same items in the order of templates and locations, whatever the model says."""
        self._order = count()
        self._seen: set[tuple[str, int, int, bytes]] = set()
        self._meanings: set[tuple[str, str]] = set()
        self._sources = {path: self._load(path, data) for path, data in files.items()}
        self._scopes: dict[str, Scopes] = {}
        self._checkers: dict[str, Checker] = {}
        usable = [at for at in locations if self._sources.get(at.path) is not None]
        self._waiting = sorted(self._with_inner_lines(usable), key=lambda at: -at.score)
        self._waiting.reverse()

    def open_line(self) -> list[SlotItems]:
        """Makes the next suspicious line's candidates; returns its new slots."""
        if not self._waiting:
            return []
        location = self._waiting.pop()
        source = self._sources[location.path]
        assert source is not None
        if location.path not in self._scopes:
            self._scopes[location.path] = Scopes(source)
        scopes = self._scopes[location.path]
        known = set(self.slots)
        if self._checker(source).broken:
            for proposal in propose_syntax(source, location.line):
                self._add(source, None, location, proposal)
            return [slots for key, slots in self.slots.items() if key not in known]
        made = []
        for statement in source.on_line(location.line):
            scope = scopes.at(statement, location.line)
            site = Site(source, statement, scope, location.line, self._clues)
            fresh = last_of_all(site, propose(site))
            made += [self._add(source, statement, location, p) for p in fresh]
        if self._counts is not None:
            self._count(made)
        return [slots for key, slots in self.slots.items() if key not in known]

    @property
    def bound(self) -> float | None:
        """The best priority that a line not opened yet can have; None if all are open."""
        if not self._waiting:
            return None
        counts = BOUND / 2 if self._counts is not None else None
        return priority(self._waiting[-1].score, self._best_prior, None, counts, self._weights)

    @property
    def best(self) -> float | None:
        """Priority of the first candidate in the queue, valid or not."""
        while self._heap:
            priority, _, item = self._heap[0]
            if not item.gone and item.valid is not False and item.priority == -priority:
                return item.priority
            heapq.heappop(self._heap)  # handed out, known to be bad, or queued again since
        return None

    def take(self) -> Candidate | None:
        """The best candidate not handed out yet, or None."""
        while self.best is not None:
            item = heapq.heappop(self._heap)[2]
            item.gone = True
            if self.check(item) and (candidate := _candidate(item)) is not None:
                return candidate
        return None

    def take_plain(self) -> Candidate | None:
        """The best candidate in the order that templates and locations give, or None."""
        while self._plain:
            item = heapq.heappop(self._plain)[2]
            if not item.gone and self.check(item):
                item.gone = True
                if (candidate := _candidate(item)) is not None:
                    return candidate
        return None

    def check(self, item: Item) -> bool:
        """Whether the item parses, changes something, and is new."""
        if item.valid is None:
            item.valid = self._is_new(item) and self._means_something(item)
        return item.valid

    def add_fill(
        self, slots: SlotItems, text: str, kind: str, weight: float, model: str
    ) -> Item | None:
        """A text that the model proposes for a slot; None if it is known there already."""
        if any(item.proposal.fill == text for item in slots.items):
            return None
        prior = math.log(PRIORS[kind] * weight)
        proposal = replace(fill_slot(slots.source, slots.slot, text, kind), log_prior=prior)
        item = self._add(slots.source, slots.statement, slots.location, proposal)
        item.proposed_by = model
        if self._counts is not None:
            self._count([item])
        return item

    def score(self, item: Item, score: ModelScore) -> None:
        """Gives a candidate its real priority."""
        item.score = score
        self._weigh(item)

    def _weigh(self, item: Item) -> None:
        """Puts an item where it belongs by what is known of it now."""
        if item.gone or item.valid is False:
            return
        prior = item.proposal.log_prior
        item.priority = priority(item.location.score, prior, item.score, item.counts, self._weights)
        self._push(item)

    def _count(self, items: Sequence[Item]) -> None:
        """Weighs the likeliest of a line's new candidates by token counts."""
        for item in sorted(items, key=lambda item: -item.priority)[:COUNTED]:
            p, source = item.proposal, item.source
            assert self._counts is not None
            start = len(source.slice(0, p.start))
            end = start + len(source.slice(p.start, p.end))
            text = source.slice(0, len(source.code))
            item.counts = self._counts.delta(source.path, text, start, end, p.new)
            if item.counts is not None:
                self._weigh(item)

    def _push(self, item: Item) -> None:
        heapq.heappush(self._heap, (-item.priority, next(self._order), item))

    def _with_inner_lines(self, locations: Sequence[Location]) -> list[Location]:
        """Also the other lines of statements that span several: a tracer sees only some."""
        known = {(at.path, at.line) for at in locations}
        found = list(locations)
        for at in locations:
            source = self._sources[at.path]
            assert source is not None
            for statement in source.on_line(at.line)[-1:]:
                lines = range(statement.first_line, statement.last_line + 1)
                for line in lines if 1 < len(lines) <= _LONGEST_STATEMENT else ():
                    if (at.path, line) not in known:
                        known.add((at.path, line))
                        score = _INNER * at.score
                        found.append(replace(at, line=line, score=score))
        return found

    def _load(self, path: str, data: bytes) -> Source | None:
        source = load_source(path, data)
        if source is None:
            self.notes.append(f"{path}: cannot be decoded exactly, so it is left alone")
        return source

    def _add(
        self,
        source: Source,
        statement: Statement | None,
        location: Location,
        proposal: Proposal,
    ) -> Item:
        first = priority(location.score, proposal.log_prior, weights=self._weights)
        item = Item(source, statement, location, proposal, first)
        if (slot := proposal.slot) is not None:
            key = (source.path, slot.start, slot.end, slot.lead)
            slots = self.slots.get(key)
            if slots is None:
                slots = SlotItems(key, source, statement, location, slot)
                self.slots[key] = slots
            slots.items.append(item)
        self._push(item)
        heapq.heappush(self._plain, (-first, next(self._order), item))
        return item

    def _checker(self, source: Source) -> Checker:
        if source.path not in self._checkers:
            self._checkers[source.path] = Checker(source, self._grammar)
        return self._checkers[source.path]

    def _is_new(self, item: Item) -> bool:
        p = item.proposal
        key = (item.source.path, *changed_region(item.source.code, p.start, p.end, p.new))
        if key in self._seen or (not key[3] and key[1] == key[2]):
            return False
        self._seen.add(key)
        return True

    def _means_something(self, item: Item) -> bool:
        checker = self._checker(item.source)
        p = item.proposal
        if p.slot is not None and p.slot.inserts and not checker.broken:
            return checker.stands_alone(plain_fill(p), p.slot.inside, p.slot.in_loop)
        meaning = checker.meaning(item.statement, p.start, p.end, p.new)
        if meaning is None or (item.source.path, meaning) in self._meanings:
            return False
        self._meanings.add((item.source.path, meaning))
        return True


def changed_region(code: bytes, start: int, end: int, new: str) -> tuple[int, int, bytes]:
    """The smallest change with the same result, leftmost prefix first: equal for equal results."""
    data = new.encode("utf-8")
    low = start + _common_prefix(code[start : end + len(data)], data + code[end : end + len(data)])
    if low == end + len(data):  # it may go on: compare everything
        low = start + _common_prefix(code[start:], data + code[end:])
    old, fresh = code[low:], (data + code[end:])[low - start :]
    limit = min(len(old), len(fresh))
    suffix = min(len(code) - end, limit)
    while suffix < limit and old[-1 - suffix] == fresh[-1 - suffix]:
        suffix += 1
    return low, len(code) - suffix, fresh[: len(fresh) - suffix]


def _common_prefix(first: bytes, second: bytes) -> int:
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(i for i in range(limit) if first[i] != second[i])


def plain_fill(proposal: Proposal) -> str:
    """The slot's content with plain line ends, later lines indented from the first one's."""
    fill, slot = to_lf(proposal.fill), proposal.slot
    return fill.replace(f"\n{slot.margin}", "\n") if slot is not None else fill


def _candidate(item: Item) -> Candidate | None:
    p, source = item.proposal, item.source
    edit = source.edit(p.start, p.end, p.new)
    if edit is None:
        return None
    if p.slot is not None:
        text = p.fill
    else:
        low = source.line_start(source.line_of(p.start))
        high = source.line_end(source.line_of(max(p.start, p.end - 1)))
        text = source.slice(low, p.start) + p.new + source.slice(p.end, high)
    line = source.line_of(min(p.start, max(0, len(source.code) - 1)))
    logprob = item.score.logprob if item.score else None
    proposer: Literal["template", "model"] = "model" if item.proposed_by else "template"
    origin = Origin(proposer, item.proposed_by, item.ranked_by)
    return Candidate((edit,), line, p.kind, text, logprob, item.priority, origin=origin)
