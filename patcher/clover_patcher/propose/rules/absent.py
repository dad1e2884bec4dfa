"""Edits for what may not be there: look-ups that miss, values that are None, empty inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tree_sitter import Node

from clover_patcher.propose.clues import lift
from clover_patcher.propose.forms import grouped, method_call, simple, values
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.rules.expression import is_condition
from clover_patcher.propose.syntax import Statement, walk_header
from clover_patcher.propose.templates import (
    Change,
    Proposal,
    Site,
    change,
    expression_rule,
    fill_slot,
    new_line_slot,
    statement_rule,
)

_DEFAULTS = (("None", 1.0), ("0", 0.7), ('""', 0.7), ("[]", 0.6), ("{}", 0.4), ("False", 0.3))
_OWNERS = ("identifier", "attribute", "call", "subscript")
_EXITS = (
    "return None",
    "return []",
    'return ""',
    "return 0",
    "return {}",
    "return False",
    "return",
)
_MOST_OWNERS = 4


def _defaults(site: Site) -> Iterator[tuple[str, float]]:
    yield from _DEFAULTS
    for index, name in enumerate(site.scope.local[:4]):
        yield name, 0.4 / (1 + index)


# --- look-ups ---------------------------------------------------------------------------------


@expression_rule("subscript")
def look_up(node: Node, site: Site) -> Iterator[Change]:
    """`owner[key]` where the key may be missing."""
    owner, keys = node.child_by_field_name("value"), node.children_by_field_name("subscript")
    if owner is None or len(keys) != 1 or keys[0].type == "slice" or not is_expression(node):
        return
    if not simple(node, site.source) or _is_deleted(node):
        return
    text, key = site.text(owner), site.text(keys[0])
    index = keys[0].type in ("integer", "unary_operator", "binary_operator")
    if index or "IndexError" in site.clues.kinds:
        bound = text if key in ("0", "-1") else f"{key} < len({text})"
        for default, weight in _defaults(site):
            new = grouped(node, f"{text}[{key}] if {bound} else {default}")
            yield change(node, new, "lookup", weight)
    if not index:
        for default, weight in _defaults(site):
            rest = "" if default == "None" else f", {default}"
            yield change(node, f"{text}.get({key}{rest})", "lookup", weight)
        yield change(node, f"{text}.get({key}, {key})", "lookup", 0.5)


def _is_deleted(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "delete_statement"


@expression_rule("delete_statement")
def delete_if_there(node: Node, site: Site) -> Iterator[Change]:
    """`del owner[key]` where there may be no such key."""
    target = node.named_children[0] if len(node.named_children) == 1 else None
    owner = target.child_by_field_name("value") if target is not None else None
    keys = target.children_by_field_name("subscript") if target is not None else []
    if owner is not None and len(keys) == 1:
        new = f"{site.text(owner)}.pop({site.text(keys[0])}, None)"
        yield change(node, new, "lookup")


@expression_rule("augmented_assignment")
def counted_from_nothing(node: Node, site: Site) -> Iterator[Change]:
    """`owner[key] += value` where nothing stands there yet."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None or left.type != "subscript":
        return
    owner, keys = left.child_by_field_name("value"), left.children_by_field_name("subscript")
    if owner is None or len(keys) != 1 or not simple(node, site.source):
        return
    text, key, sign = site.text(owner), site.text(keys[0]), site.text(operator)[:-1]
    for default, weight in (("0", 2.0), ("[]", 0.5), ('""', 0.5)):
        new = f"{text}[{key}] = {text}.get({key}, {default}) {sign} {site.text(right)}"
        yield change(node, new, "lookup", weight)


@expression_rule("call")
def call_that_misses(node: Node, site: Site) -> Iterator[Change]:
    """Methods and functions that raise where nothing is found, with a default."""
    if not simple(node, site.source, 90):
        return
    if method := method_call(node, site.source):
        yield from _method_that_misses(node, method, site)
    arguments = node.child_by_field_name("arguments")
    if arguments is None or (function := node.child_by_field_name("function")) is None:
        return
    name, alone = site.text(function), arguments.type == "generator_expression"
    pieces = [site.text(arguments)] if alone else [site.text(one) for one in values(arguments)]
    defaults = list(_defaults(site))
    if (name == "next" and len(pieces) == 1) or (name == "getattr" and len(pieces) == 2):
        for default, weight in defaults:
            new = f"{name}({', '.join(pieces)}, {default})"
            yield change(node, new, "lookup", 2.0 * weight)
    elif name in ("max", "min") and len(pieces) == 1 and pieces[0][0] != "*":
        for default, weight in defaults[:3]:
            yield change(node, f"{name}({pieces[0]}, default={default})", "lookup", 2.0 * weight)


def _method_that_misses(
    node: Node, found: tuple[Node, str, list[Node]], site: Site
) -> Iterator[Change]:
    owner, method, arguments = found
    text, pieces = site.text(owner), [site.text(argument) for argument in arguments]
    first = pieces[0] if pieces else ""
    if method == "index" and len(pieces) == 1:
        for default in ("-1", "None", "0"):
            new = f"{text}.index({first}) if {first} in {text} else {default}"
            yield change(node, grouped(node, new), "lookup")
        yield change(node, f"{text}.find({first})", "lookup")
    elif method == "pop" and len(pieces) == 1:
        yield change(node, f"{text}.pop({first}, None)", "lookup", 1.5)
    elif method == "pop" and not pieces:
        yield change(node, grouped(node, f"{text}.pop() if {text} else None"), "lookup")
    elif method == "remove" and len(pieces) == 1:
        yield change(node, f"{text}.discard({first})", "lookup")
    elif method in ("append", "add", "extend", "update") and owner.type == "subscript":
        thing, keys = owner.child_by_field_name("value"), owner.children_by_field_name("subscript")
        empty = {"append": "[]", "extend": "[]", "add": "set()", "update": "{}"}[method]
        if thing is not None and len(keys) == 1:
            there = f"{site.text(thing)}.setdefault({site.text(keys[0])}, {empty})"
            yield change(owner, there, "lookup", 1.5)
    elif method == "get" and len(pieces) == 1:
        for default, weight in _defaults(site):
            if default != "None":
                yield change(node, f"{text}.get({first}, {default})", "fallback", weight)


@expression_rule("binary_operator")
def divided(node: Node, site: Site) -> Iterator[Change]:
    """A division by what may be zero."""
    right, operator = node.child_by_field_name("right"), node.child_by_field_name("operator")
    if right is None or operator is None or site.text(operator) not in ("/", "//", "%"):
        return
    if right.type not in _OWNERS or not simple(node, site.source):
        return
    text = site.text(right)
    for default in ("0", "0.0", "None"):
        new = grouped(node, f"{site.text(node)} if {text} else {default}")
        yield change(node, new, "lookup", 0.7)
    yield change(right, f"({text} or 1)", "lookup", 0.7)
    yield change(right, f"max(1, {text})", "lookup", 0.3)


# --- values that are None ---------------------------------------------------------------------


@expression_rule("attribute", "subscript", "call", "identifier")
def none_there(node: Node, site: Site) -> Iterator[Change]:
    """Something else where the value that is reached into, or run over, is None."""
    parent = node.parent
    if parent is None or not simple(node, site.source) or not is_expression(node):
        return
    text = site.text(node)
    if node.type != "identifier" and (owner := _reached_into(node)) is not None:
        thing = site.text(owner)
        if owner.type in _OWNERS and thing not in ("self", "cls"):
            for default, weight in _DEFAULTS[:4]:
                for test in (thing, f"{thing} is not None"):
                    new = grouped(node, f"{text} if {test} else {default}")
                    yield change(node, new, "none", 0.5 * weight)
    if parent.type in ("for_statement", "for_in_clause", "subscript", "attribute", "list_splat",
                       "binary_operator", "argument_list", "dictionary_splat"):  # fmt: skip
        if text in ("self", "cls") or site.text(parent).startswith("self."):
            return
        run_over = parent.type in ("for_statement", "for_in_clause", "list_splat")
        for default in ("[]", "{}", '""', "0"):
            weight = 1.5 if run_over and default == "[]" else 0.3
            yield change(node, f"({text} or {default})", "none", weight)


def _reached_into(node: Node) -> Node | None:
    """What the value is taken from: the innermost owner that could be None."""
    if node.type == "call":
        function = node.child_by_field_name("function")
        return _reached_into(function) if function is not None else None
    field = {"attribute": "object", "subscript": "value"}.get(node.type)
    return node.child_by_field_name(field) if field else None


@expression_rule()
def fallback(node: Node, site: Site) -> Iterator[Change]:
    """`value or default`, and `is None` where emptiness is tested."""
    if node.type == "boolean_operator":
        yield from _not_none_instead_of_or(node, site)
    if node.type not in ("identifier", "attribute") and not _is_get(node, site):
        return
    parent, text = node.parent, site.text(node)
    if parent is None or not simple(node, site.source) or not is_expression(node):
        return
    if is_condition(node):
        yield change(node, f"{text} is not None", "fallback", 1.5)
        if parent.type == "not_operator":
            yield change(parent, f"{text} is None", "fallback", 2.0)
    elif parent.type in ("assignment", "return_statement", "argument_list", "keyword_argument"):
        for default, weight in _defaults(site):
            if default not in ("None", "False", text):
                yield change(node, f"{text} or {default}", "fallback", 0.4 * weight)


def _is_get(node: Node, site: Site) -> bool:
    found = method_call(node, site.source) if node.type == "call" else None
    return found is not None and found[1] == "get"


def _not_none_instead_of_or(node: Node, site: Site) -> Iterator[Change]:
    """`x or y` takes `y` for 0 and "" too."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None or site.text(operator) != "or":
        return
    given_back = node.parent is not None and node.parent.type == "return_statement"
    if is_condition(node) and not given_back:
        return
    if left.type in _OWNERS and simple(node, site.source):
        text = site.text(left)
        new = grouped(node, f"{text} if {text} is not None else {site.text(right)}")
        yield change(node, new, "fallback", 2.0)


# --- early returns ----------------------------------------------------------------------------


@statement_rule
def leave_early(site: Site) -> Iterator[Proposal]:
    """Nothing is done for what is empty or missing, where the failure speaks of that."""
    source, statement = site.source, site.statement
    kind = "none" if lift("none", site.clues) > 1 else "lookup"
    if lift(kind, site.clues) <= 1 or not statement.own_lines or statement.is_clause:
        return
    if statement.function is None or statement.is_definition:
        return
    slot = new_line_slot(source, statement.first_line, statement)
    exits = (*(("continue",) if statement.in_loop else ()), *_EXITS)
    for (i, test), (j, way) in product(enumerate(_tests(site, kind)), enumerate(exits)):
        text = f"if {test}:\n{source.indent_unit}{way}"
        yield fill_slot(source, slot, text, kind, 4.0 / (2 + i + j))


def _tests(site: Site, kind: str) -> list[str]:
    """Conditions under which the line cannot do its work, likeliest first."""
    found: dict[str, None] = {}
    for node in walk_header(site.statement):
        if node.type == "subscript" and kind == "lookup" and "KeyError" in site.clues.kinds:
            thing, keys = (
                node.child_by_field_name("value"),
                node.children_by_field_name("subscript"),
            )
            if thing is not None and len(keys) == 1:
                found.setdefault(f"{site.text(keys[0])} not in {site.text(thing)}")
    for owner in _owners(site.statement, site):
        found.setdefault(f"{owner} is None" if kind == "none" else f"not {owner}")
    return list(found)


def _owners(statement: Statement, site: Site) -> list[str]:
    """What the statement reaches into, divides by or hands on."""
    known = {*site.scope.local, *(f"self.{name}" for name in site.scope.own)} - {"self", "cls"}
    found: dict[str, None] = {}
    for node in walk_header(statement):
        if node.type in ("identifier", "attribute") and is_expression(node):
            parent = node.parent
            callee = parent is not None and parent.child_by_field_name("function") == node
            if not callee and site.text(node) in known:
                found.setdefault(site.text(node))
    return list(found)[:_MOST_OWNERS]
