"""Edits of how a function ends: what it returns, raises, catches, and waits for."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from tree_sitter import Node

from clover_patcher.propose.forms import values
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.syntax import Statement, walk
from clover_patcher.propose.templates import (
    Change,
    Proposal,
    Site,
    change,
    expression_rule,
    fill_slot,
    line_slot,
    new_line_slot,
    statement_rule,
)

_NOT_CAUGHT = ("AssertionError", "SystemExit", "KeyboardInterrupt", "timeout", "Failed")
_USUAL = ("ValueError", "KeyError", "TypeError", "IndexError", "AttributeError", "OSError")
_DEFINITIONS = ("function_definition", "class_definition", "lambda")


# --- waiting ----------------------------------------------------------------------------------


@expression_rule("call")
def awaited(node: Node, site: Site) -> Iterator[Change]:
    """A coroutine that nobody waits for."""
    parent, function = node.parent, site.statement.function
    if parent is None or function is None or not _is_async(function.node):
        return
    if parent.type == "await" or not (is_expression(node) or parent.type == "expression_statement"):
        return
    callee = node.child_by_field_name("function")
    name = site.text(callee).rpartition(".")[2] if callee is not None else ""
    text = f"await {site.text(node)}"
    if parent.type in ("attribute", "subscript"):
        text = f"({text})"
    weight = 3.0 if f"'{name}'" in site.clues.text or f".{name}'" in site.clues.text else 1.0
    yield change(node, text, "await", weight)


@expression_rule("for_statement", "with_statement", "for_in_clause")
def asynchronous(node: Node, site: Site) -> Iterator[Change]:
    """`async for` and `async with`."""
    function = site.statement.function
    if function is None or not _is_async(function.node) or _is_async(node):
        return
    yield Change(node.start_byte, node.start_byte, "async ", "await")


def _is_async(node: Node) -> bool:
    return bool(node.children) and node.children[0].type == "async"


# --- exceptions -------------------------------------------------------------------------------


@expression_rule("except_clause")
def caught(node: Node, site: Site) -> Iterator[Change]:
    """The exception that was raised, caught as well or instead."""
    value = next((c for c in values(node) if c.type != "block"), None)
    if value is not None and value.type == "as_pattern":
        value = next(iter(values(value)), None)
    if value is None:
        return
    text = site.text(value)
    present = {part.strip() for part in text.strip("()").split(",")}
    raised = [k for k in sorted(site.clues.kinds) if _can_be_named(k, site) and k not in present]
    joined = text.strip("()").rstrip(", ")
    for index, name in enumerate(raised):
        yield change(value, f"({joined}, {name})", "exception", 3.0 / (1 + index))
        yield change(value, name, "exception", 2.0 / (1 + index))
    for index, name in enumerate(n for n in _USUAL if n not in (*present, *raised)):
        yield change(value, f"({joined}, {name})", "exception", 0.2 / (1 + index))
        yield change(value, name, "exception", 0.2 / (1 + index))


def _can_be_named(name: str, site: Site) -> bool:
    if name in _NOT_CAUGHT or name.endswith("Warning"):
        return False
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) or name in (*site.scope.module, *site.scope.functions)


@expression_rule("raise_statement")
def raised(node: Node, site: Site) -> Iterator[Change]:
    """The exception that the tests ask for."""
    value = next(iter(values(node)), None)
    if value is None:
        return
    kind = value.child_by_field_name("function") if value.type == "call" else value
    if kind is None or kind.type not in ("identifier", "attribute"):
        return
    own = [n for n in site.scope.functions if n.endswith(("Error", "Exception"))]
    wanted = [(name, 3.0) for name in site.clues.asked if _can_be_named(name, site)]
    wanted += [(name, 0.5) for name in (*own[:4], *_USUAL)]
    for index, (name, weight) in enumerate(wanted):
        if name != site.text(kind):
            yield change(kind, name, "exception", weight / (1 + index / 2))
    if value.type == "identifier" and not site.text(value)[:1].isupper():
        yield change(node, "raise", "exception", 0.2)


# --- results ----------------------------------------------------------------------------------


@statement_rule
def missing_result(site: Site) -> Iterator[Proposal]:
    """A function that makes something and gives nothing back."""
    source, statement = site.source, site.statement
    function = statement.function
    if function is None or statement.is_clause or not statement.own_lines:
        return
    if statement is not function.children[-1] or _gives_back(function.node):
        return
    only = statement.node.named_children[:1]
    one_line = statement.first_line == statement.last_line
    if statement.kind == "expression_statement" and only and one_line:
        text = source.text(only[0])
        if only[0].type not in ("assignment", "augmented_assignment", "string", "yield", "await"):
            slot = line_slot(source, statement.first_line)
            yield Proposal(statement.start, statement.end, f"return {text}", "result", 2.0, slot,
                           f"return {slot.original}")  # fmt: skip
    end = source.line_of(statement.node.end_byte - 1)
    slot = new_line_slot(source, end + 1, statement)
    for index, name in enumerate(_made(function, site)):
        yield fill_slot(source, slot, f"return {name}", "result", 1.5 / (1 + index))


def _gives_back(function: Node) -> bool:
    """Whether it returns a value or yields anywhere of its own."""
    stack = [c for c in function.children if c.type == "block"]
    while stack:
        node = stack.pop()
        if node.type == "yield" or (node.type == "return_statement" and node.named_children):
            return True
        stack.extend(c for c in node.children if c.type not in _DEFINITIONS)
    return False


def _made(function: Statement, site: Site) -> list[str]:
    """Names that the function assigns, the last one first; then `self`."""
    found: dict[str, None] = {}
    for node in walk(function.node):
        if node.type in ("assignment", "augmented_assignment"):
            left = node.child_by_field_name("left")
            if left is not None and left.type == "identifier":
                name = site.text(left)
                found.pop(name, None)
                found[name] = None
    names = list(reversed(found))[:4]
    return [*names, "self"] if "self" in site.scope.local else names
