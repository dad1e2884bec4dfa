"""Calls of the file's own functions with the variables that their parameters are named after.

A helper that nothing calls any more says that a line which called it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from clover_patcher.propose.rules.statement import gaps
from clover_patcher.propose.templates import (
    Change,
    Proposal,
    Site,
    change,
    expression_rule,
    fill_slot,
    line_slot,
    statement_rule,
)

_MOST = 8


@statement_rule
def missing_call(site: Site) -> Iterator[Proposal]:
    """A line that calls one of them, on its own, for its result, or to give it back."""
    source, statement = site.source, site.statement
    texts = list(_lines(site))
    if statement.kind == "pass_statement" and statement.own_lines:
        slot = line_slot(source, statement.first_line)
        for text, _, share in texts:
            yield fill_slot(source, slot, text, "placeholder", share)
    for slot, weight in gaps(site):
        for text, kind, share in texts:
            if slot.inside or not text.startswith("return "):
                yield fill_slot(source, slot, text, kind, weight * share)


@expression_rule("return_statement")
def returned_call(node: Node, site: Site) -> Iterator[Change]:
    """What one of them returns, given back instead of a constant."""
    value = node.named_children[0] if node.named_children else None
    if value is not None and value.type in ("none", "true", "false"):
        for text, kind, share in _calls(site):
            yield change(value, text, kind, share)


def _lines(site: Site) -> Iterator[tuple[str, str, float]]:
    for text, kind, share in _calls(site):
        yield text, kind, share
        yield f"return {text}", kind, 0.5 * share
        for index, name in enumerate(site.scope.assigned[:6]):
            yield f"{name} = {text}", kind, share / (2 + index)


def _calls(site: Site) -> Iterator[tuple[str, str, float]]:
    """(text, kind, weight) of calls whose arguments are all in scope; uncalled functions first."""
    known = {*site.scope.local, *site.scope.module}
    fitting = [s for s in site.scope.signatures if known.issuperset(s.parameters)]
    fitting.sort(key=lambda s: (s.called, -len(s.parameters)))
    for index, s in enumerate(fitting[:_MOST]):
        weight = (1.0 if s.parameters else 0.2) * (0.3 if s.called else 3.0)
        text = f"{s.name}({', '.join(s.parameters)})"
        yield text, "call" if s.called else "uncalled", weight / (2 + index)
