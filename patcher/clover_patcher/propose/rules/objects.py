"""Edits of how objects are made and shared: copies, defaults, sort keys, base classes, `self`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from clover_patcher.propose.forms import plain_call, simple, values
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.syntax import Statement
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

_MUTABLE = ("list", "dictionary", "set", "list_comprehension", "dictionary_comprehension")
_VALUES = ("string", "integer", "float", "tuple", "unary_operator", *_MUTABLE[:3])
_EMPTY_CALLS = ("list()", "dict()", "set()")
_ARGUMENTS = r"takes (?:from )?\d.*positional arguments? but (?:\d+ were|1 was) given"
_CHANGES = ("append", "add", "remove", "pop", "extend", "update", "insert", "clear", "sort",
            "discard", "popitem", "reverse")  # fmt: skip
_VIEW = re.compile(r"\.(?:items|keys|values)\(\)$")


@expression_rule("identifier", "attribute")
def copied(node: Node, site: Site) -> Iterator[Change]:
    """A copy where the object itself is kept, given back, or changed while it is run over."""
    parent = node.parent
    if parent is None or not is_expression(node) or not simple(node, site.source):
        return
    run_over = parent.type == "for_statement" and parent.child_by_field_name("right") == node
    kept = parent.type in (
        "assignment",
        "return_statement",
        "keyword_argument",
        "default_parameter",
    )
    handed = parent.type == "argument_list"
    text = site.text(node)
    if not (run_over or kept or handed) or text in ("self", "cls"):
        return
    if handed and not any(f".{name}(" in call for call in site.scope.calls for name in _CHANGES):
        return
    changed = _is_changed(text, site)
    weight = (2.0 if changed or run_over else 0.7) * (0.5 if handed else 1.0)
    for form in ("list({})", "{}.copy()", "dict({})", "set({})"):
        likely = 1.5 if form == "list({})" else 0.5 if form == "set({})" else 1.0
        yield change(node, form.format(text), "copy", weight * likely)
    if changed and not run_over:
        yield change(node, f"[*{text}]", "copy", 0.2)


def _is_changed(name: str, site: Site) -> bool:
    """Whether the function changes what the name stands for."""
    changing = re.compile(
        rf"{re.escape(name)}(?:\.(?:{'|'.join(_CHANGES)})\(|\[[^\]]*\] [-+*/|]?= )"
    )
    return any(changing.match(text) for text in site.scope.statements)


@expression_rule("call")
def copied_call(node: Node, site: Site) -> Iterator[Change]:
    """A view made a list where its owner changes meanwhile; a deep copy for a shallow one."""
    parent, text = node.parent, site.text(node)
    run_over = parent is not None and parent.type == "for_statement"
    if run_over and simple(node, site.source) and _VIEW.search(text):
        yield change(node, f"list({text})", "copy", 1.5)
    if text.endswith(".copy()"):
        yield change(node, f"copy.deepcopy({text.removesuffix('.copy()')})", "copy", 0.5)


@expression_rule("binary_operator")
def repeated(node: Node, site: Site) -> Iterator[Change]:
    """`[[0] * n] * m` has the same row m times."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None or site.text(operator) != "*":
        return
    inner = values(left) if left.type == "list" else []
    if len(inner) == 1 and inner[0].type in (*_MUTABLE, "binary_operator", "call"):
        new = f"[{site.text(inner[0])} for _ in range({site.text(right)})]"
        yield change(node, new, "default")


@statement_rule
def mutable_default(site: Site) -> Iterator[Proposal]:
    """A parameter's default is made anew for each call."""
    source, statement = site.source, site.statement
    parameters = statement.node.child_by_field_name("parameters")
    if statement.kind != "function_definition" or parameters is None:
        return
    body = _body(statement)
    for parameter in parameters.named_children:
        name, value = parameter.child_by_field_name("name"), parameter.child_by_field_name("value")
        if name is None or value is None or body is None or not body.own_lines:
            continue
        text = source.text(value)
        if value.type not in _MUTABLE and text not in _EMPTY_CALLS:
            continue
        at = source.line_start(body.first_line)
        if at <= value.end_byte:
            continue
        indent, eol = source.indentation(body.first_line), source.eol_near(at)
        title = source.text(name)
        lines = f"{indent}if {title} is None:{eol}{indent}{source.indent_unit}{title} = {text}{eol}"
        new = "None" + source.slice(value.end_byte, at) + lines
        yield Proposal(value.start_byte, at, new, "default", 1.0, None)


def _body(function: Statement) -> Statement | None:
    """The first statement that is no docstring."""
    for child in function.children:
        only = child.node.named_children[:1]
        if child.kind != "expression_statement" or not only or only[0].type != "string":
            return child
    return None


@expression_rule("comparison_operator")
def identity(node: Node, site: Site) -> Iterator[Change]:
    """`is` with a text or a number asks whether it is the same object."""
    for operator in node.children_by_field_name("operators"):
        equal = {"is": "==", "is not": "!="}.get(site.text(operator))
        if equal and any(operand.type in _VALUES for operand in values(node)):
            yield change(operator, equal, "identity")


@expression_rule("call")
def sort_key(node: Node, site: Site) -> Iterator[Change]:
    """By what, and in which direction, things are ordered."""
    called = plain_call(node, site.source)
    function, arguments = (
        node.child_by_field_name("function"),
        node.child_by_field_name("arguments"),
    )
    if function is None or arguments is None or not simple(node, site.source, 100):
        return
    name = called[0] if called else site.text(function).rpartition(".")[2]
    if name not in ("sorted", "sort", "max", "min") or (name in ("max", "min") and not called):
        return
    if arguments.type != "argument_list":
        return
    items = values(arguments)
    given = [site.text(item) for item in items]
    if name in ("max", "min") and len(items) != 1:
        return
    add = Change(items[-1].end_byte if items else arguments.start_byte + 1, 0, "", "key")
    glue = ", " if items else ""
    keys = ["len", "str", "str.lower", "abs", "lambda item: item[1]", "lambda item: item[0]"]
    if items and name in ("max", "min", "sorted"):
        keys.insert(0, f"{given[0]}.get")
    if not any(text.startswith("key=") for text in given):
        for index, key in enumerate(keys):
            yield Change(add.start, add.start, f"{glue}key={key}", "key", 1.0 / (2 + index / 2))
        for index, other in enumerate(site.scope.attributes[:4]):
            new = f"{glue}key=lambda item: item.{other}"
            yield Change(add.start, add.start, new, "key", 0.4 / (2 + index))
    if name in ("sorted", "sort") and not any(text.startswith("reverse=") for text in given):
        yield Change(add.start, add.start, f"{glue}reverse=True", "key", 0.7)


@statement_rule
def base_not_made(site: Site) -> Iterator[Proposal]:
    """`__init__` of a class with a base that does not call the base's."""
    source, statement = site.source, site.statement
    function = statement if statement.kind == "function_definition" else statement.function
    owner = function.owner if function is not None else None
    if function is None or owner is None or owner.kind != "class_definition":
        return
    bases = owner.node.child_by_field_name("superclasses")
    name = function.node.child_by_field_name("name")
    body = _body(function)
    if bases is None or name is None or source.text(name) != "__init__" or body is None:
        return
    if "super()" in source.text(function.node) or not body.own_lines:
        return
    parameters = function.node.child_by_field_name("parameters")
    names = (
        [source.text(p) for p in values(parameters) if p.type == "identifier"] if parameters else []
    )
    slot = new_line_slot(source, body.first_line, body)
    rest = names[1:]
    for index, count in enumerate(dict.fromkeys((0, len(rest), *range(1, len(rest))))):
        text = f"super().__init__({', '.join(rest[:count])})"
        yield fill_slot(source, slot, text, "super", 1.0 / (1 + index))


@statement_rule
def missing_self(site: Site) -> Iterator[Proposal]:
    """A method without `self`, where the failure counts the arguments."""
    source, statement = site.source, site.statement
    function = statement if statement.kind == "function_definition" else statement.function
    owner = function.owner if function is not None else None
    if function is None or owner is None or owner.kind != "class_definition":
        return
    parameters = function.node.child_by_field_name("parameters")
    if parameters is None or not site.clues.says(_ARGUMENTS):
        return
    names = values(parameters)
    if names and source.text(names[0]) in ("self", "cls"):
        return
    start = parameters.start_byte + 1
    yield Proposal(start, start, "self, " if names else "self", "signature", 1.0, None)
    before = source.line_start(function.first_line)
    line = f"{source.indentation(function.first_line)}@staticmethod{source.eol_near(before)}"
    yield Proposal(before, before, line, "signature", 0.7, None)
