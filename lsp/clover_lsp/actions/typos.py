"""Undefined Python names that are another name misspelt, or a module not imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from clover_lsp.actions.names import BUILTINS, Names
from clover_lsp.actions.proposals import Moment, Proposal
from clover_lsp.actions.scopes import Occurrence, Scope
from clover_lsp.context.types import Problem

UNDEFINED = re.compile(
    r"[Uu]ndefined name|is not defined|[Uu]ndefined[ -]variable|[Uu]nresolved reference"
)
_CUTOFF = 0.75


def is_undefined_name(problem: Problem) -> bool:
    """Whether a diagnostic says that a name is bound nowhere, whoever says it."""
    code = problem.code in ("F821", "E0602", "reportUndefinedVariable", "name-defined")
    return code or UNDEFINED.search(problem.message) is not None


def undefined_at(names: Names, text: str, line: int, message: str) -> list[Occurrence]:
    """Undefined names on the line (from 0), those that the message names if it names any."""
    first = 0
    for _ in range(line):
        first = text.find("\n", first) + 1
        if not first:
            return []
    end = text.find("\n", first)
    last = len(text) if end < 0 else end
    found = [o for o in names.undefined() if first <= o.start <= last]
    quoted = set(re.findall(r"[\"'`‘“](\w+)[\"'`’”]", message))
    return [o for o in found if o.name in quoted] or ([] if quoted else found)


def misspelt(names: Names, place: Occurrence) -> list[str]:
    """Names in reach that look like the undefined one, likest first."""
    reach = [name for name in names_in_reach(place.scope) if name != place.name]
    return difflib.get_close_matches(place.name, reach, n=3, cutoff=_CUTOFF)


def names_in_reach(scope: Scope) -> list[str]:
    """Plain names that may be used in a scope, nearest scope first, builtins last."""
    reach: dict[str, None] = {}
    at: Scope | None = scope
    while at is not None:
        if at is scope or at.kind != "class":
            reach.update(dict.fromkeys(at.bound))
        at = at.parent
    reach.update(dict.fromkeys(sorted(n for n in BUILTINS if not n.startswith("_"))))
    return list(reach)


def sure_name_fixes(moment: Moment, problem: Problem) -> Iterator[Proposal]:
    """A fix for an undefined name that only one name in reach looks like."""
    if not is_undefined_name(problem):
        return
    places = undefined_at(moment.names, moment.text, problem.line, problem.message)
    for place in moment.limit.each(places):
        close = misspelt(moment.names, place)
        if len(close) != 1 or len(place.name) < 4:
            continue
        reason = f"{place.name} is not defined; {close[0]} is"
        yield Proposal(place.start, place.end, close[0], "diagnostic", 0.85, reason)
