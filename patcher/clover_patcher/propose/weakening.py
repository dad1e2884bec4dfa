"""Edits that make a check pass by switching something off: they are tried last of all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from clover_patcher.propose.syntax import Statement
from clover_patcher.propose.templates import Proposal, Site

LAST = math.log(1e-6)
"""The log prior of such an edit: below that of every other one."""
_GUARDING = {"raise_statement": "raise", "assert_statement": "assert"}
_LEAVES = re.compile(r"(?:return|yield|continue|break|pass)\b")
_CONSTANT = re.compile(
    r"(?:if|elif|while|assert)\s*\(?\s*(?:not )?(?:True|False|None|0|1)\s*\)?\s*(?:[:,].*)?$"
)


def last_of_all(site: Site, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    """The proposals, with a low prior for those that switch something off."""
    checks = _checks_itself(site)
    for proposal in proposals:
        if checks or weakens(site, proposal):
            proposal.log_prior = min(proposal.log_prior, LAST)
        yield proposal


def _checks_itself(site: Site) -> bool:
    """Whether the statement is a check in the program's own file."""
    is_assert = site.statement.kind == "assert_statement" and site.statement.function is None
    return (is_assert and "AssertionError" in site.clues.kinds) or _decides(site)


def weakens(site: Site, proposal: Proposal) -> bool:
    """Whether a `raise` or `assert` goes or is skipped, or a condition becomes a constant."""
    statement, slot = site.statement, proposal.slot
    word = _GUARDING.get(statement.kind)
    if proposal.kind == "delete":
        return word is not None
    if slot is None or slot.start > statement.start:
        return False
    fill = proposal.fill.strip()
    if slot.inserts:
        return word is not None and _LEAVES.match(fill) is not None
    if word is not None and not fill.startswith(word):
        return True
    return _CONSTANT.match(fill) is not None and _CONSTANT.match(slot.original) is None


def _header(site: Site) -> str:
    return site.source.slice(site.statement.start, site.statement.end)


def _decides(site: Site) -> bool:
    """Whether the statement is part of a test that stands in the program's own file."""
    here: Statement | None = site.statement
    if site.statement.kind == "if_statement" and "__main__" in _header(site):
        return True  # what runs such a program's checks
    while here is not None:
        name = here.node.child_by_field_name("name")
        bases = here.node.child_by_field_name("superclasses")
        if here.kind == "function_definition" and name and site.text(name).startswith("test_"):
            return True
        if here.kind == "class_definition" and bases and "TestCase" in site.text(bases):
            return True
        here = here.owner
    return False
