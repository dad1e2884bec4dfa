"""Edits of operators, constants, operands and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from clover_patcher.propose.forms import searched
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.syntax import Statement, walk
from clover_patcher.propose.templates import Change, Site, change, expression_rule

_ORDER = ("<", "<=", ">", ">=", "==", "!=")
_NEAR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_COMPARE: dict[str, tuple[str, ...]] = {
    **{op: tuple(o for o in _ORDER if o != op) for op in _ORDER},
    "in": ("not in", "==", "is"),
    "not in": ("in", "!="),
    "is": ("is not", "==", "in"),
    "is not": ("is", "!="),
}
_COMPARE["=="] += ("is", "in")
_COMPARE["!="] += ("is not", "not in")
_ARITHMETIC: dict[str, tuple[str, ...]] = {
    "+": ("-", "*", "//", "%"),
    "-": ("+", "*", "//", "%"),
    "*": ("+", "/", "//", "**", "-"),
    "/": ("//", "*", "%"),
    "//": ("/", "%", "*", "-"),
    "%": ("//", "/", "+"),
    "**": ("*", "^", "+"),
    "&": ("|", "^", "and", ">>", "%"),
    "|": ("&", "^", "or", "+"),
    "^": ("&", "|", "**", "+"),
    "<<": (">>", "+", "*", "-"),
    ">>": ("<<", "//", "+", "-"),
    "@": ("*",),
}
_AUGMENTED = ("+=", "-=", "*=", "/=", "//=", "%=", "|=", "&=", "^=", "**=", ">>=", "<<=")
_MAX_OPERAND = 60
_SIMPLE_VALUES = ("0", "1", "None", "True", "False", '""', "[]", "-1", "{}", "2")


@expression_rule("comparison_operator")
def compare(node: Node, site: Site) -> Iterator[Change]:
    """Other comparisons; operands exchanged; one end of a chain dropped."""
    operators = node.children_by_field_name("operators")
    operands = [c for c in node.named_children if c.type != "comment"]
    for operator in operators:
        text = site.text(operator)
        for other in _COMPARE.get(text, ()):
            yield change(operator, other, "operator", 3.0 if _NEAR.get(text) == other else 1.0)
    if len(operands) == 2 and len(operators) == 1:
        yield from _exchange(operands[0], operands[1], site, "swap")
        yield from _boundary(operators[0], operands[1], site)
    elif len(operands) == 3:
        yield Change(node.start_byte, operands[1].end_byte, _span(site, *operands[:2]), "drop")
        yield Change(node.start_byte, node.end_byte, _span(site, *operands[1:]), "drop")


def _boundary(operator: Node, right: Node, site: Site) -> Iterator[Change]:
    """Operator and bound changed together: `== 0` for `<= 1`."""
    if site.text(operator) not in _ORDER or right.type != "integer":
        return
    try:
        bound = int(site.text(right).replace("_", ""), 0)
    except ValueError:
        return
    for other in _ORDER:
        for value in (bound + 1, bound - 1):
            if other != site.text(operator):
                new = f"{other} {value}"
                yield Change(operator.start_byte, right.end_byte, new, "boundary")


@expression_rule("binary_operator")
def arithmetic(node: Node, site: Site) -> Iterator[Change]:
    """Other operators, one operand only, operands exchanged, other grouping."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None:
        return
    text = site.text(operator)
    usual = _ARITHMETIC.get(text, ())
    for index, other in enumerate(usual):
        yield change(operator, other, "operator", 2.0 if index == 0 else 0.7)
    for other in _ARITHMETIC:
        if other != text and other not in usual:
            yield change(operator, other, "operator", 0.1)
    yield change(node, site.text(left), "drop")
    yield change(node, site.text(right), "drop", 0.6)
    if text not in ("+", "*", "&", "|", "^") or left.type == "string":
        yield from _exchange(left, right, site, "swap")
    yield from _regroup(node, left, operator, right, site)


@expression_rule("boolean_operator")
def boolean(node: Node, site: Site) -> Iterator[Change]:
    """`and` for `or`, one operand only, operands exchanged or negated, other grouping."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None:
        return
    yield change(operator, "or" if site.text(operator) == "and" else "and", "boolean")
    yield change(node, site.text(left), "drop")
    yield change(node, site.text(right), "drop")
    yield from _exchange(left, right, site, "swap", 0.5)
    yield from _regroup(node, left, operator, right, site)


@expression_rule("not_operator")
def remove_not(node: Node, site: Site) -> Iterator[Change]:
    argument = node.child_by_field_name("argument")
    if argument is not None:
        yield change(node, site.text(argument), "negate")


@expression_rule("unary_operator")
def unary(node: Node, site: Site) -> Iterator[Change]:
    argument = node.child_by_field_name("argument")
    if argument is not None:
        yield change(node, site.text(argument), "drop")
        if argument.type == "integer":
            yield from _numbers(node, -int(site.text(argument).replace("_", ""), 0))


@expression_rule("parenthesized_expression")
def ungroup(node: Node, site: Site) -> Iterator[Change]:
    inner = node.named_children
    parent = node.parent
    if len(inner) == 1 and parent is not None and parent.type.endswith("_operator"):
        yield change(node, site.text(inner[0]), "group")


@expression_rule()
def condition(node: Node, site: Site) -> Iterator[Change]:
    """Conditions negated, strengthened or weakened by others of the file and by plain names."""
    if not is_condition(node):
        return
    text = site.text(node)
    if len(text) > 2 * _MAX_OPERAND or "\n" in text:
        return
    tight = node.type not in ("boolean_operator", "comparison_operator", "conditional_expression")
    if node.type not in ("not_operator", "boolean_operator"):
        yield change(node, f"not {text}", "negate", 1.0 if tight else 0.3)
        if node.type == "comparison_operator":
            return_to = site.statement.kind
            if return_to in ("if_statement", "while_statement", "elif_clause"):
                yield change(node, f"not ({text})", "negate", 0.1)
    if node.type == "boolean_operator":
        yield change(node, f"not ({text})", "negate", 0.3)
        for index, other in enumerate(_other_conditions(site, text)[:12]):
            yield change(node, f"({text}) and {other}", "condition", 0.3 / (2 + index))
        return  # its operands are conditions themselves
    for index, test in enumerate(_presence(node, site)):
        joint = "or" if test.startswith("not ") or test.endswith("is None") else "and"
        yield change(node, f"{test} {joint} {text}", "presence", 1.0 / (2 + index / 2))
    for index, other in enumerate(_other_conditions(site, text)):
        weight = 1.0 / (2 + index)
        yield change(node, f"{text} and {other}", "condition", weight)
        yield change(node, f"{text} or {other}", "condition", weight)
        yield change(node, f"{other} and {text}", "condition", weight / 2)
        yield change(node, f"{other} or {text}", "condition", weight / 2)
        yield change(node, other, "condition", weight)
    if _lone_condition(node, site.statement):
        for constant in ("True", "False"):
            yield change(node, constant, "condition", 0.05)


def _presence(node: Node, site: Site) -> list[str]:
    """Tests that what the condition reaches into is there at all."""
    owners: dict[str, None] = {}
    for inner in walk(node):
        field = {"attribute": "object", "subscript": "value"}.get(inner.type)
        owner = inner.child_by_field_name(field) if field else searched(inner)
        if owner is not None and owner.type in ("identifier", "attribute"):
            owners.setdefault(site.text(owner))
    forms = ("{}", "{} is not None", "not {}", "{} is None")
    return [form.format(owner) for owner in list(owners)[:4] for form in forms]


def is_condition(node: Node) -> bool:
    """Whether the node's truth is what matters there."""
    parent = node.parent
    if parent is None or not node.is_named or not is_expression(node):
        return False
    if parent.type in ("if_statement", "elif_clause", "while_statement"):
        return parent.child_by_field_name("condition") == node
    if parent.type in ("boolean_operator", "not_operator"):
        return True
    if parent.type in ("if_clause", "assert_statement"):
        return parent.named_children[0] == node
    if parent.type == "conditional_expression":
        return len(parent.named_children) == 3 and parent.named_children[1] == node
    return parent.type == "return_statement" and node.type in (
        "comparison_operator",
        "boolean_operator",
        "not_operator",
        "call",
    )


def _lone_condition(node: Node, statement: Statement) -> bool:
    return node.parent is not None and node.parent == statement.node


def _other_conditions(site: Site, text: str) -> list[str]:
    """What may be joined to a condition: names, negated names, comparisons seen elsewhere."""
    pool: dict[str, None] = {}
    for name in site.scope.local[:12]:
        pool.setdefault(name)
        pool.setdefault(f"not {name}")
    for other in site.scope.conditions[:16]:
        pool.setdefault(other)
    for name in site.scope.assigned[:4]:
        pool.setdefault(f"{name} is None")
        pool.setdefault(f"{name} is not None")
    return [other for other in pool if other != text]


@expression_rule("integer")
def integer(node: Node, site: Site) -> Iterator[Change]:
    """Neighbours, the usual small numbers, and names."""
    if node.parent is not None and node.parent.type == "unary_operator":
        return
    try:
        value = int(site.text(node).replace("_", ""), 0)
    except ValueError:
        return
    yield from _numbers(node, value)
    for index, other in enumerate(site.scope.integers[:6]):
        yield change(node, other, "constant", 0.5 / (1 + index))
    for index, name in enumerate(site.scope.local[:12]):
        yield change(node, name, "constant", 0.5 / (1 + index))
    for other in ("None", "True", "False"):
        yield change(node, other, "constant", 0.05)


@expression_rule("float")
def floating(node: Node, site: Site) -> Iterator[Change]:
    for other in ("0.0", "1.0", "0.5", "2.0", "0", "1"):
        yield change(node, other, "constant", 0.5)


@expression_rule("true", "false", "none")
def keyword_constant(node: Node, site: Site) -> Iterator[Change]:
    text = site.text(node)
    if text in ("True", "False"):
        yield change(node, "False" if text == "True" else "True", "constant", 3.0)
    for other in _SIMPLE_VALUES:
        yield change(node, other, "constant", 0.4)
    for index, name in enumerate(site.scope.local[:12]):
        yield change(node, name, "constant", 0.5 / (1 + index))


@expression_rule("string")
def string(node: Node, site: Site) -> Iterator[Change]:
    """Other string literals of the file, the empty one, and names."""
    text = site.text(node)
    if not is_expression(node) or len(text) > _MAX_OPERAND or text[:3] in ('"""', "'''"):
        return
    quote = text[-1]
    for index, other in enumerate(site.scope.strings[:12]):
        yield change(node, other, "string", 1.0 / (1 + index))
    for other in (quote * 2, f"{quote} {quote}", f"{quote}\\n{quote}", "None"):
        yield change(node, other, "string", 0.3)
    for index, name in enumerate(site.scope.local[:8]):
        yield change(node, name, "string", 0.3 / (1 + index))
    if text[0] in "\"'" and "{" in text:
        yield change(node, f"f{text}", "string")
    elif text[0] in "fF":
        yield change(node, text[1:], "string", 0.3)


@expression_rule("conditional_expression")
def ternary(node: Node, site: Site) -> Iterator[Change]:
    parts = [c for c in node.named_children if c.type != "comment"]
    if len(parts) == 3:
        yield from _exchange(parts[0], parts[2], site, "swap")
        yield change(node, site.text(parts[0]), "drop")
        yield change(node, site.text(parts[2]), "drop")


@expression_rule("expression_list", "pattern_list", "tuple", "list", "set")
def sequence(node: Node, site: Site) -> Iterator[Change]:
    """Elements exchanged, dropped, or added; other kinds of display."""
    items = [c for c in node.named_children if c.type != "comment"]
    for first, second in zip(items, items[1:], strict=False):
        yield from _exchange(first, second, site, "swap")
    yield from _without_one(items, "display")
    if not is_expression(node):
        return
    text = site.text(node)
    if node.type == "list":
        yield change(node, f"[{text}]", "display", 2.0 if not items else 0.5)
    if node.type == "list" and not items:
        for other in ("{}", "set()", "()", "None", "[0]", '""'):
            yield change(node, other, "display", 0.5)
    if node.type in ("list", "tuple", "set", "expression_list"):
        close = node.end_byte - (node.type != "expression_list")
        for index, name in enumerate(site.scope.local[:12]):
            glue = ", " if items and site.source.code[close - 1 : close] != b"," else ""
            yield Change(close, close, f"{glue}{name}", "display", 1.0 / (1 + index))


@expression_rule("dictionary")
def dictionary(node: Node, site: Site) -> Iterator[Change]:
    if not node.named_children:
        for other in ("[]", "set()", "None"):
            yield change(node, other, "display", 0.5)


@expression_rule("set_comprehension", "list_comprehension", "generator_expression")
def comprehension(node: Node, site: Site) -> Iterator[Change]:
    inner = site.text(node)[1:-1]
    clauses = [c for c in node.named_children if c.type == "if_clause"]
    for clause in clauses:
        start = len(site.source.code[: clause.start_byte].rstrip())
        yield Change(start, clause.end_byte, "", "drop")
    if not clauses:
        for index, test in enumerate(_other_conditions(site, "")[:12]):
            new = f" if {test}"
            yield Change(node.end_byte - 1, node.end_byte - 1, new, "condition", 0.5 / (2 + index))
    if "\n" in inner or node.parent is None:
        return
    for brackets in ("[]", "{}", "()"):
        if node.parent.type != "call" and node.type != "generator_expression":
            yield change(node, f"{brackets[0]}{inner}{brackets[1]}", "display", 0.5)


@expression_rule("augmented_assignment")
def augmented(node: Node, site: Site) -> Iterator[Change]:
    operator = node.child_by_field_name("operator")
    right = node.child_by_field_name("right")
    if operator is None or right is None:
        return
    text = site.text(operator)
    arithmetic_first = _ARITHMETIC.get(text[:-1], ("",))[0] + "="
    for other in _AUGMENTED:
        if other != text:
            weight = 2.0 if other == arithmetic_first else 0.5
            yield change(operator, other, "operator", weight)
    yield change(operator, "=", "augment")


@expression_rule("assignment")
def plain_assignment(node: Node, site: Site) -> Iterator[Change]:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or node.child_by_field_name("type") is not None:
        return
    equals = next((c for c in node.children if c.type == "="), None)
    nested = right.type == "assignment" or (node.parent and node.parent.type == "assignment")
    if equals is not None and left.type in ("identifier", "attribute", "subscript") and not nested:
        for index, other in enumerate(("+=", "-=", "*=", "|=", "&=", "//=", "%=")):
            yield change(equals, other, "augment", 1.0 / (1 + index))


def _numbers(node: Node, value: int) -> Iterator[Change]:
    near = {value + 1: 2.0, value - 1: 2.0, -value: 0.5, 2 * value: 0.3, value // 2: 0.3}
    for usual in (0, 1, 2, -1, 10):
        near.setdefault(usual, 0.7)
    for rare in (3, 4, 5, 6, 7, 8, 9, 16, 60, 100, 1000):
        near.setdefault(rare, 0.1)
    for number, weight in near.items():
        if number != value:
            yield change(node, str(number), "constant", weight)


def _exchange(
    first: Node, second: Node, site: Site, kind: str, weight: float = 1.0
) -> Iterator[Change]:
    middle = site.source.slice(first.end_byte, second.start_byte)
    new = site.text(second) + middle + site.text(first)
    yield Change(first.start_byte, second.end_byte, new, kind, weight)


def _regroup(node: Node, left: Node, operator: Node, right: Node, site: Site) -> Iterator[Change]:
    """`a * b + c` as `a * (b + c)`, and the same on the other side."""
    op = site.text(operator)
    if left.type == node.type and (last := left.child_by_field_name("right")) is not None:
        head = site.source.slice(left.start_byte, last.start_byte)
        yield change(node, f"{head}({site.text(last)} {op} {site.text(right)})", "group")
    if right.type == node.type and (first := right.child_by_field_name("left")) is not None:
        rest = site.source.slice(first.end_byte, right.end_byte)
        yield change(node, f"({site.text(left)} {op} {site.text(first)}){rest}", "group")


def _without_one(items: Sequence[Node], kind: str) -> Iterator[Change]:
    if len(items) < 2:
        return
    for index, item in enumerate(items):
        if index:
            yield Change(items[index - 1].end_byte, item.end_byte, "", kind)
        else:
            yield Change(item.start_byte, items[1].start_byte, "", kind)


def _span(site: Site, first: Node, last: Node) -> str:
    return site.source.slice(first.start_byte, last.end_byte)
