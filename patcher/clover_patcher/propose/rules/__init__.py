"""Edits that templates enumerate, by what they change. Importing this registers all rules."""

from clover_patcher.propose.rules import (
    absent,
    calls,
    expression,
    misspelt,
    names,
    objects,
    outcomes,
    reported,
    siblings,
    statement,
    texts,
    values,
)

__all__ = [
    "absent",
    "calls",
    "expression",
    "misspelt",
    "names",
    "objects",
    "outcomes",
    "reported",
    "siblings",
    "statement",
    "texts",
    "values",
]
