"""Edits that templates enumerate, by what they change. Importing this registers all rules."""

from clover_patcher.propose.rules import (
    calls,
    expression,
    names,
    siblings,
    statement,
    values,
)

__all__ = ["calls", "expression", "names", "siblings", "statement", "values"]
