"""Edits that the failure or its test asks for nearly in words."""

from __future__ import annotations

import builtins
import difflib
import re
from collections.abc import Iterator
from functools import lru_cache

from tree_sitter import Node

from clover_patcher.propose.forms import literal, simple, values
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.syntax import walk
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

_FIELD = re.compile(r"\{[A-Za-z_][\w.()\[\]]*(?:![rsa])?(?::[^{}]*)?\}")
_ALIKE, _SHORTEST, _LONGEST = 0.8, 5, 200
_SCOPES = ("function_definition", "class_definition", "module")
_NOT_CAUGHT = ("AssertionError", "SystemExit", "KeyboardInterrupt", "NameError", "SyntaxError")
_MOST_CAUGHT = 3


# --- texts ------------------------------------------------------------------------------------


@expression_rule("binary_operator")
def one_value_formatted(node: Node, site: Site) -> Iterator[Change]:
    """`"%s" % value` takes a tuple apart."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None or site.text(operator) != "%":
        return
    if left.type in ("string", "concatenated_string") and right.type in (
        *("identifier", "attribute", "subscript", "call"),
    ):
        yield change(right, f"({site.text(right)},)", "text", 3.0)


@expression_rule("string", "concatenated_string")
def interpolated(node: Node, site: Site) -> Iterator[Change]:
    """The `f` that a text with names in braces lacks, before each of its parts."""
    parent = node.parent
    if parent is None or parent.type in ("concatenated_string", "attribute"):
        return  # a part of the whole, or `"…".format`
    parts = [node] if node.type == "string" else [c for c in values(node) if c.type == "string"]
    text, start, changed = site.text(node), node.start_byte, False
    for part in reversed(parts):
        piece = site.text(part)
        if piece[0] in "\"'" and _FIELD.search(piece):
            at = len(site.source.slice(start, part.start_byte))
            text, changed = f"{text[:at]}f{text[at:]}", True
    if changed:
        yield change(node, text, "interpolate")


@expression_rule("string")
def quoted(node: Node, site: Site) -> Iterator[Change]:
    """The text as the failing test has it, where that is nearly the same."""
    text, value = site.text(node), literal(site.source, node)
    if value is None or text[0] not in "\"'" or text[:3] in ('"""', "'''") or "\n" in value:
        return
    for index, window in enumerate(_nearly(value, site.clues.quotes)):
        quote = text[-1] if text[-1] not in window else '"'
        if quote not in window and "\\" not in window and window.isprintable():
            yield change(node, f"{quote}{window}{quote}", "quoted", 1.0 / (1 + 2 * index))


@lru_cache(512)
def _nearly(value: str, quotes: tuple[str, ...]) -> tuple[str, ...]:
    """Parts of the quotes that are like the value, most alike first; none where one has it."""
    if not _SHORTEST <= len(value) <= _LONGEST or any(value in quote for quote in quotes):
        return ()
    found: dict[str, float] = {}
    for quote in quotes:
        matcher = difflib.SequenceMatcher(None, value, quote, autojunk=False)
        match = matcher.find_longest_match()
        if match.size < len(value) / 3:
            continue
        for more in (0, 1, -1):
            for shift in (0, 1, -1) if match.a else (0,):
                first = match.b - match.a + shift
                window = quote[max(0, first) : max(0, first) + len(value) + more]
                alike = difflib.SequenceMatcher(None, value, window, autojunk=False).ratio()
                if alike >= _ALIKE and window.strip() == window:
                    found[window] = max(alike, found.get(window, 0.0))
    return tuple(sorted(found, key=lambda window: -found[window])[:3])


# --- types ------------------------------------------------------------------------------------

_ITEM = r"('[^'\n]*'|\"[^\"\n]*\"|-?\d+(?:\.\d+)?|None)"
_CONVERSIONS = (
    (re.compile(rf"{_ITEM} == \[\1\]"), "[{}]"),
    (re.compile(rf"{_ITEM} == \(\1,\)"), "({},)"),
    (re.compile(rf"\[{_ITEM}\] == \1"), "{}[0]"),
    (re.compile(r"(?<!\w)(-?\d+) == ['\"]\1['\"]"), "str({})"),
    (re.compile(r"['\"](-?\d+)['\"] == \1(?![\w.])"), "int({})"),
    (re.compile(r"\[[^\[\]\n]*\] == \([^()\n]*\)"), "tuple({})"),
    (re.compile(r"[({][^({})\n]*[)}] == \[[^\[\]\n]*\]"), "list({})"),
    (re.compile(r"\[[^\[\]\n]*\] == \{[^{}:\n]*\}"), "set({})"),
)
"""How two compared values tell that one is of the wrong type, and what makes it right."""
_GIVEN = ("return_statement", "assignment", "argument_list", "keyword_argument", "pair", "list")


@expression_rule("identifier", "attribute", "subscript", "call", "list_comprehension")
def converted(node: Node, site: Site) -> Iterator[Change]:
    """The value in the type that the failing comparison asks for."""
    parent = node.parent
    if parent is None or parent.type not in _GIVEN or not simple(node, site.source):
        return
    if not is_expression(node):
        return
    for form in _asked_for(site.clues.text):
        likely = 3.0 if parent.type == "return_statement" else 1.0
        yield change(node, form.format(site.text(node)), "convert", likely)


@lru_cache(8)
def _asked_for(message: str) -> tuple[str, ...]:
    return tuple(form for pattern, form in _CONVERSIONS if pattern.search(message))


# --- names and exceptions ---------------------------------------------------------------------


@expression_rule("lambda")
def bound_too_late(node: Node, site: Site) -> Iterator[Change]:
    """A lambda made in a loop that reads the loop's variable when it is called."""
    parameters, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
    if body is None:
        return
    own = {site.text(n) for n in walk(parameters)} if parameters is not None else set()
    used = {site.text(n) for n in walk(body) if n.type == "identifier"} - own
    late = [name for name in _loop_variables(node, site) if name in used]
    if late:
        bound = ", ".join(f"{name}={name}" for name in late)
        old = site.text(parameters) if parameters is not None else ""
        head = f"lambda {old}, {bound}" if old else f"lambda {bound}"
        yield change(node, f"{head}: {site.text(body)}", "closure")


def _loop_variables(node: Node, site: Site) -> Iterator[str]:
    here = node.parent
    while here is not None and here.type not in _SCOPES:
        clauses = [here] if here.type == "for_statement" else []
        clauses += [c for c in here.named_children if c.type == "for_in_clause"]
        for clause in clauses:
            left = clause.child_by_field_name("left")
            for inner in walk(left) if left is not None else ():
                if inner.type == "identifier":
                    yield site.text(inner)
        here = here.parent


@statement_rule
def exception_met(site: Site) -> Iterator[Proposal]:
    """The exception that came out, met where it may have been raised."""
    source, statement = site.source, site.statement
    one_line = statement.first_line == statement.last_line == site.line
    if not one_line or not statement.own_lines or statement.is_clause or statement.is_definition:
        return
    if statement.function is None or not simple(statement.node, source, 160):
        return
    slot, unit = line_slot(source, site.line), source.indent_unit
    raised = sorted(kind for kind in site.clues.kinds if _is_caught(kind, site))[:_MOST_CAUGHT]
    for (i, kind), (way, weight) in ((r, w) for r in enumerate(raised) for w in _ways(site)):
        meets = f"except {kind} as exc" if way.endswith("from exc") else f"except {kind}"
        text = f"try:\n{unit}{slot.original}\n{meets}:\n{unit}{way}"
        yield fill_slot(source, slot, text, "try", weight / (1 + i))


def _is_caught(name: str, site: Site) -> bool:
    if name in _NOT_CAUGHT or name.endswith("Warning"):
        return False
    known = (*site.scope.module, *site.scope.functions)
    return isinstance(getattr(builtins, name, None), type) or name in known


def _ways(site: Site) -> Iterator[tuple[str, float]]:
    """What to do with the exception: what the tests ask for, or to go on without the value."""
    known = {*site.scope.module, *site.scope.functions, *dir(builtins)}
    for name in [name for name in site.clues.asked if name in known][:2]:
        yield f"raise {name}(str(exc)) from exc", 3.0
    statement = site.statement
    if statement.kind == "return_statement":
        yield from ((f"return {value}", 1.0) for value in ("None", "False"))
        for name in site.scope.local[:3]:
            yield f"return {name}", 0.7
        return
    node = statement.node.named_children[0] if statement.node.named_children else None
    left = node.child_by_field_name("left") if node and node.type == "assignment" else None
    if left is not None and left.type == "identifier":
        yield f"{site.text(left)} = None", 1.0
    if statement.in_loop:
        yield "continue", 1.0
    yield "return None", 0.7
    yield "pass", 0.3
