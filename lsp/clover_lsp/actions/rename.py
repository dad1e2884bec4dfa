"""A name was changed in one place: the same name's other places.

What belongs together is read from the text before the change, where everything was still called
the same, and followed into the present text. Python only.
"""

from __future__ import annotations

import keyword
from collections import defaultdict
from collections.abc import Iterator, Sequence

from clover_lsp.actions.diff import Hunk
from clover_lsp.actions.names import BUILTINS, Names
from clover_lsp.actions.proposals import Change, Moment, Proposal
from clover_lsp.actions.scopes import Occurrence, Symbol, resolve
from clover_lsp.actions.tokens import is_name

_COMMON = frozenset(
    name for kind in (str, bytes, list, dict, set, tuple, int, float) for name in dir(kind)
) | {"close", "open", "read", "write", "run", "start", "stop", "name", "path", "value", "next"}
"""Attributes that many unlike things have: the name does not say whose it is."""
_Changed = tuple[Occurrence, Occurrence]
"""The occurrence before and after."""


def renames(moment: Moment, change: Change) -> Iterator[Proposal]:
    """Places that still have the old name."""
    if moment.language != "python":
        return
    groups: dict[tuple[Symbol, str], list[_Changed]] = defaultdict(list)
    for hunk in moment.limit.each(change.hunks):
        if not _is_rename(hunk) or _is_unfinished(hunk, moment):
            continue
        was = change.names.at(hunk.start, hunk.end)
        now = moment.names.at(hunk.new_start, hunk.new_end)
        if was is not None and now is not None and was.role == now.role:
            groups[change.names.symbol(was), now.name].append((was, now))
    for (symbol, new), changed in groups.items():
        yield from _others(moment, change, symbol, new, changed)


def _is_rename(hunk: Hunk) -> bool:
    if len(hunk.old) != 1 or len(hunk.new) != 1:
        return False
    words = (hunk.old[0], hunk.new[0])
    return all(is_name(w) and not keyword.iskeyword(w) and w not in BUILTINS for w in words)


def _is_unfinished(hunk: Hunk, moment: Moment) -> bool:
    """Whether the new name looks like the old one being deleted letter by letter."""
    here = hunk.new_start <= moment.cursor <= hunk.new_end
    return here and hunk.old[0].startswith(hunk.new[0])


def _others(
    moment: Moment, change: Change, symbol: Symbol, new: str, changed: Sequence[_Changed]
) -> Iterator[Proposal]:
    names, old = change.names, symbol.name
    confidence = _confidence(moment, names, symbol, new, changed)
    for place in moment.limit.each(names.by_name[old] if confidence else ()):
        sure = _belongs(names, place, symbol)
        span = change.moved.span(place.start, place.end) if sure else None
        if span is not None and moment.text[span[0] : span[1]] == old:
            yield Proposal(*span, new, "rename", confidence * sure, f"rename {old} to {new}")


def _confidence(
    moment: Moment, names: Names, symbol: Symbol, new: str, changed: Sequence[_Changed]
) -> float:
    """How surely the changed places mean that all places are to change."""
    if symbol.scope is None:
        return 0.0
    if any(names.symbol(o) == Symbol(new, symbol.scope) for o in names.by_name.get(new, ())):
        return 0.0  # a name of its own before: one thing was taken for another, no rename
    done = {was.start for was, _ in changed}
    if any(_binds(was) for was, _ in changed):
        left = [
            o
            for o in names.by_name[symbol.name]
            if o.start not in done and _binds(o) and names.symbol(o) == symbol
        ]
        if not left:
            return 0.97
        # One of several assignments: the first one names the thing, a later one may be another.
        first = min(done) < min(o.start for o in left)
        return 0.9 if first or len(done) > 1 else 0.4
    if any(now.role == "use" and resolve(now.scope, new) is not None for _, now in changed):
        return 0.0
    return min(0.9, 0.4 + 0.2 * len(done))


def is_common(name: str) -> bool:
    """Whether many unlike things have an attribute of that name."""
    return name in _COMMON or len(name) < 4


def _binds(occurrence: Occurrence) -> bool:
    """Whether the place gives the thing its name: a binding, or an attribute assigned to."""
    if occurrence.role != "attribute":
        return occurrence.role == "bind"
    node = occurrence.node.parent if occurrence.node is not None else None
    if node is None or node.parent is None or node.parent.type != "assignment":
        return False
    return node.parent.child_by_field_name("left") == node


def _belongs(names: Names, place: Occurrence, symbol: Symbol) -> float:
    """How surely a place with the old name means the same thing."""
    if names.symbol(place) == symbol:
        return 1.0
    scope = symbol.scope
    if place.role != "attribute" or scope is None or scope.kind != "class":
        return 0.0
    # `thing.name`: whose it is cannot be known; but only one class of this file has that name.
    ambiguous = is_common(symbol.name) or len(names.owners(symbol.name)) > 1
    if place.receiver in ("self", "cls") or ambiguous:
        return 0.0
    return 0.85
