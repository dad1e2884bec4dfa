"""Edits of any value: off by one, wrapped, extended, replaced by one seen nearby."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from clover_patcher.propose.names import is_expression
from clover_patcher.propose.templates import Change, Site, change, expression_rule

_WRAPPERS = ("len", "list", "str", "int", "set", "sorted", "abs", "tuple", "reversed", "bool")
_SUFFIXES = ("[0]", "[-1]", "[1:]", "[:-1]", "[:]", "[1]")
_METHODS = ("copy()", "items()", "strip()", "lower()", "values()", "keys()")
_MAX_TEXT = 60


@expression_rule()
def value(node: Node, site: Site) -> Iterator[Change]:
    """Anything that has a value: off by one, wrapped, indexed, replaced by one seen nearby."""
    if node.type not in _VALUES or not is_expression(node) or _is_callee(node):
        return
    text = site.text(node)
    if len(text) > _MAX_TEXT or "\n" in text:
        return
    atom = node.type not in ("binary_operator", "boolean_operator", "comparison_operator")
    plain = node.type in ("identifier", "attribute", "subscript", "call")
    if plain or node.type == "binary_operator":
        for suffix in (" + 1", " - 1"):
            yield change(node, text + suffix, "offset", 1.5)
        for suffix in (" // 2", " * 2", " % 2"):
            yield change(node, text + suffix if atom else f"({text}){suffix}", "offset", 0.2)
    if _stands_alone(node):
        yield from _clamped(node, text, site)
    if plain:
        yield from _terms(node, text, site)
        yield from _wrapped(node, text, site)
    if node.type in ("list", "list_comprehension"):
        for index, name in enumerate(site.scope.local[:12]):
            yield change(node, f"{name} + {text}", "term", 0.5 / (2 + index))
            yield change(node, f"{text} + {name}", "term", 0.5 / (2 + index))
    if node.type != "identifier":
        yield from names_for(node, "name" if node.type == "attribute" else "expression", site)
    yield from _donors(node, text, site)


_VALUES = (
    "identifier", "attribute", "subscript", "call", "binary_operator", "list", "tuple", "string",
    "list_comprehension", "conditional_expression", "parenthesized_expression",
)  # fmt: skip


def _is_callee(node: Node) -> bool:
    parent = node.parent
    return (
        parent is not None
        and parent.type in ("call", "attribute")
        and parent.child_by_field_name("arguments") != node
    )


def _terms(node: Node, text: str, site: Site) -> Iterator[Change]:
    """One more operand."""
    for index, name in enumerate(site.scope.local[:12]):
        weight = 1.0 / (2 + index)
        for operator in ("+", "-"):
            yield change(node, f"{text} {operator} {name}", "term", weight)
        if index < 4:
            yield change(node, f"{name} - {text}", "term", weight / 2)
            yield change(node, f"{text} * {name}", "term", weight / 4)
        yield change(node, f"{text}[{name}]", "wrap", weight / 4)
        yield change(node, f"{name}[{text}]", "wrap", weight / 4)
    yield change(node, f"1 + {text}", "term", 0.3)
    for index, other in enumerate(_computed(text, site)[:8]):
        yield change(node, f"{other} + {text}", "term", 0.5 / (3 + index))
        yield change(node, f"{text} + {other}", "term", 0.5 / (3 + index))


def _computed(text: str, site: Site) -> list[str]:
    """Expressions of the function that are more than a name."""
    return [t for kind, t in site.scope.expressions if kind != "identifier" and t != text]


@expression_rule("integer")
def counted(node: Node, site: Site) -> Iterator[Change]:
    """One more operand for a number."""
    if node.parent is not None and node.parent.type == "unary_operator":
        return
    text = site.text(node)
    for index, name in enumerate(site.scope.local[:8]):
        for new, weight in ((f"{name} + {text}", 1.0), (f"{name} - {text}", 0.5)):
            yield change(node, new, "term", weight / (2 + index))
        yield change(node, f"{name} * {text}", "term", 0.3 / (2 + index))


def _wrapped(node: Node, text: str, site: Site) -> Iterator[Change]:
    seen = set()
    for index, name in enumerate((*site.scope.functions[:10], *_WRAPPERS)):
        if name not in seen and not text.startswith(f"{name}("):
            seen.add(name)
            yield change(node, f"{name}({text})", "wrap", 1.0 / (2 + index / 2))
    for suffix in _SUFFIXES:
        yield change(node, f"{text}{suffix}", "wrap", 0.3)
    for index, name in enumerate(site.scope.local[:8]):
        yield change(node, f"{text}[{name}:]", "slice", 0.5 / (2 + index))
        yield change(node, f"{text}[:{name}]", "slice", 0.5 / (2 + index))
    for index, name in enumerate(site.scope.attributes[:10]):
        call_it = "()" if name in site.scope.methods else ""
        yield change(node, f"{text}.{name}{call_it}", "wrap", 0.7 / (2 + index))
    for method in _METHODS:
        yield change(node, f"{text}.{method}", "wrap", 0.1)
    for new in (f"-{text}", f"not {text}", f"[{text}]", f"*{text}", f"str({text})"):
        yield change(node, new, "wrap", 0.15)
    if node.type in ("identifier", "attribute"):
        yield change(node, f"{text}()", "wrap", 0.3)


def _stands_alone(node: Node) -> bool:
    """Whether the node is a whole argument, result or assigned value."""
    parent = node.parent
    return parent is not None and parent.type in (
        "assignment", "augmented_assignment", "return_statement", "argument_list",
        "keyword_argument", "expression_list", "yield",
    )  # fmt: skip


def _clamped(node: Node, text: str, site: Site) -> Iterator[Change]:
    """The value kept above or below another one."""
    others = [("0", 1.5), ("1", 0.3)]
    parent = node.parent
    if parent is not None and parent.type == "assignment":
        target = parent.child_by_field_name("left")
        if target is not None and target.type in ("identifier", "attribute", "subscript"):
            others.insert(0, (site.text(target), 2.0))
    others += [(name, 1.0 / (2 + index)) for index, name in enumerate(site.scope.local[:8])]
    for other, weight in others:
        if other != text:
            yield change(node, f"max({other}, {text})", "clamp", weight)
            yield change(node, f"min({other}, {text})", "clamp", 0.7 * weight)


def names_for(node: Node, kind: str, site: Site) -> Iterator[Change]:
    text = site.text(node)
    for index, name in enumerate(n for n in site.scope.local[:12] if n != text):
        yield change(node, name, kind, 0.5 / (2 + index))


def _donors(node: Node, text: str, site: Site) -> Iterator[Change]:
    """Expressions of the same function, most alike first."""
    donors = [
        (2.0 if kind == node.type else 0.5, other)
        for kind, other in site.scope.expressions
        if kind != "identifier" and other != text
    ]
    donors.sort(key=lambda donor: -donor[0])
    for index, (weight, other) in enumerate(donors[:20]):
        yield change(node, other, "expression", weight / (4 + index))
