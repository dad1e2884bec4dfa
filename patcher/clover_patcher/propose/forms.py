"""Small questions about syntax nodes that several rules ask."""

from __future__ import annotations

import ast

from tree_sitter import Node

from clover_patcher.propose.syntax import Source

_LOOSE = (
    "assignment", "augmented_assignment", "return_statement", "argument_list", "keyword_argument",
    "expression_list", "list", "tuple", "set", "yield", "parenthesized_expression", "subscript",
    "if_statement", "while_statement", "elif_clause", "default_parameter", "pair", "slice",
)  # fmt: skip


def grouped(node: Node, text: str) -> str:
    """The text in brackets where the place of the node binds tighter than any operator."""
    parent = node.parent
    if parent is None or parent.type not in _LOOSE:
        return f"({text})"
    if parent.type == "subscript" and parent.child_by_field_name("value") == node:
        return f"({text})"
    return text


def literal(source: Source, node: Node) -> str | None:
    """The value of a plain string literal."""
    if node.type != "string":
        return None
    try:
        value = ast.literal_eval(source.text(node))
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def method_call(node: Node, source: Source) -> tuple[Node, str, list[Node]] | None:
    """(owner, method's name, arguments) of `owner.method(arguments)`."""
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if function is None or function.type != "attribute" or arguments is None:
        return None
    owner, name = function.child_by_field_name("object"), function.child_by_field_name("attribute")
    if owner is None or name is None or arguments.type != "argument_list":
        return None
    return owner, source.text(name), values(arguments)


def plain_call(node: Node, source: Source) -> tuple[str, list[Node]] | None:
    """(function's name, arguments) of `function(arguments)`."""
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if function is None or function.type != "identifier" or arguments is None:
        return None
    return (source.text(function), values(arguments)) if arguments.type == "argument_list" else None


def searched(node: Node) -> Node | None:
    """What `in` looks into."""
    words = node.children_by_field_name("operators")
    looks = node.type == "comparison_operator" and words and words[-1].type.endswith("in")
    return node.children[-1] if looks else None


def values(node: Node) -> list[Node]:
    """The named children without comments."""
    return [child for child in node.named_children if child.type != "comment"]


def simple(node: Node, source: Source, longest: int = 60) -> bool:
    """Whether the node's text is short, on one line, and fit to be written twice."""
    text = source.text(node)
    return len(text) <= longest and "\n" not in text
