"""Edits of whole statements: deleted, moved, exchanged, changed in kind, new ones put in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tree_sitter import Node

from clover_patcher.propose.names import Scope
from clover_patcher.propose.syntax import Source, Statement
from clover_patcher.propose.templates import (
    Change,
    Proposal,
    Site,
    Slot,
    change,
    expression_rule,
    fill_slot,
    line_slot,
    new_line_slot,
    statement_rule,
)

_WORDS: dict[str, tuple[str, ...]] = {
    "if": ("while", "elif"),
    "while": ("if",),
    "elif": ("if",),
    "break": ("continue", "return", "pass"),
    "continue": ("break", "return", "pass"),
    "pass": ("continue", "break", "return"),
    "return": ("yield", "yield from"),
    "yield": ("return", "yield from"),
}
_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?![\w\"'(=])")
_NUMERIC = re.compile(r"\b([A-Za-z_]\w*) (?:[-+*/]=|= -?\d|[<>]=? )")
_EMPTY = ("none", "true", "false", "integer", "string", "list", "dictionary")
_MAX_INSERTS = 160
_MAX_GUARDS = 60


@expression_rule(*_WORDS)
def keyword(node: Node, site: Site) -> Iterator[Change]:
    """One statement keyword for another."""
    if node.is_named or node.parent is None or node.parent.type == "conditional_expression":
        return
    if node.parent.type == "if_clause":
        return
    for other in _WORDS[node.type]:
        yield change(node, other, "statement")


@expression_rule("return_statement", "yield")
def returned(node: Node, site: Site) -> Iterator[Change]:
    """Other values to give back."""
    values = node.named_children
    word = "return" if node.type == "return_statement" else "yield"
    if len(values) > 1 or (values and "\n" in site.text(values[0])):
        return
    if not values:
        for index, name in enumerate(site.scope.local[:12]):
            yield change(node, f"{word} {name}", "statement", 1.0 / (2 + index))
        return
    text = site.text(values[0])
    for new in (f"[{text}]", f"not {text}", f"{text}, None"):
        yield change(values[0], new, "wrap", 0.3)
    for constant in ("None", "True", "False", "[]", "0", "[[]]", '""'):
        if constant != text:
            yield change(values[0], constant, "expression", 0.2)
    if values[0].type in _EMPTY:
        yield from _other_values(values[0], word, site)


def _other_values(node: Node, word: str, site: Site) -> Iterator[Change]:
    """For a constant given back: what other functions return, and what this one computes."""
    scope = site.scope
    for name in scope.unused[:4]:
        yield change(node, name, "unread")
    returns = [t[len(word) + 1 :] for t in scope.others if t.startswith(f"{word} ")]
    for index, text in enumerate((*returns[:16], *scope.strings[:6])):
        yield change(node, text, "expression", 1.0 / (3 + index / 2))
    values = [v for kind, v in scope.expressions if kind != "identifier"]
    for index, text in enumerate(values[:16]):
        yield change(node, text, "expression", 0.7 / (3 + index / 2))
    for function, name in product(scope.functions[:6], scope.local[:4]):
        yield change(node, f"{function}({name})", "expression", 0.1)
    header = site.statement.function
    title = header.node.child_by_field_name("name") if header is not None else None
    words = set(site.text(title).split("_")) if title is not None else set()
    for index, name in enumerate(scope.own[:16]):
        alike = len(words & set(name.split("_")))
        yield change(node, f"self.{name}", "expression", (0.5 + 2 * alike) / (3 + index / 2))


@expression_rule("for_statement", "for_in_clause")
def iterated(node: Node, site: Site) -> Iterator[Change]:
    """What a loop runs over."""
    right = node.child_by_field_name("right")
    if right is None or "\n" in site.text(right):
        return
    text = site.text(right)
    atom = right.type in ("identifier", "attribute", "call", "subscript")
    for index, form in enumerate(
        ("reversed({})", "enumerate({})", "range({})", "range(len({}))", "sorted({})", "list({})")
    ):
        yield change(right, form.format(text), "wrap", 1.0 / (2 + index))
    if atom:
        for suffix in ("[1:]", "[:-1]", "[::-1]", "[:]", ".items()", ".values()", ".copy()"):
            yield change(right, text + suffix, "wrap", 0.3)
        for index, name in enumerate(site.scope.local[:8]):
            for suffix in (f"[{name}:]", f"[:{name}]"):
                yield change(right, text + suffix, "slice", 1.0 / (2 + index))


@expression_rule("return_statement", "expression_statement")
def given_back(node: Node, site: Site) -> Iterator[Change]:
    """A value returned, raised, kept, or thrown away."""
    value = node.named_children[0] if node.named_children else None
    if value is None or value.type in ("assignment", "augmented_assignment", "string", "yield"):
        return
    text = site.text(value)
    if node.type == "return_statement":
        yield change(node, text, "statement", 0.5)
        yield change(node, f"raise {text}", "statement", 0.1)
    else:
        for word in ("return", "yield", "raise", "await", "yield from"):
            yield change(node, f"{word} {text}", "statement", 0.7 if word == "return" else 0.3)
        yield from _call_as_assignment(node, value, site)
    for index, name in enumerate(site.scope.assigned[:12]):
        for operator in ("=", "+="):
            yield change(node, f"{name} {operator} {text}", "statement", 0.5 / (2 + index))


def _call_as_assignment(node: Node, value: Node, site: Site) -> Iterator[Change]:
    """`owner.method(x)` as `owner = x`."""
    function = value.child_by_field_name("function") if value.type == "call" else None
    arguments = value.child_by_field_name("arguments")
    owner = function.child_by_field_name("object") if function is not None else None
    if owner is None or arguments is None or len(arguments.named_children) != 1:
        return
    argument = site.text(arguments.named_children[0])
    for operator, weight in (("=", 1.0), ("+=", 0.5), ("-=", 0.2), ("|=", 0.2)):
        yield change(node, f"{site.text(owner)} {operator} {argument}", "statement", weight)
    call_it = site.text(value)
    yield change(node, f"{site.text(owner)} = {call_it}", "statement", 0.7)


@statement_rule
def enclose(site: Site) -> Iterator[Proposal]:
    """The line runs only under a condition."""
    source, statement = site.source, site.statement
    one_line = statement.first_line == statement.last_line
    if not statement.own_lines or not one_line or statement.is_header:
        return
    slot = line_slot(source, statement.first_line)
    for index, test in enumerate(_tests(site)):
        lines = f"if {test}:\n{source.indent_unit}{slot.original}"
        yield fill_slot(source, slot, lines, "enclose", 1.0 / (2 + index))


def _tests(site: Site) -> list[str]:
    scope = site.scope
    tests = [form for name in scope.local[:5] for form in (f"not {name}", name)]
    tests += [f"{name} is not None" for name in scope.local[:3]]
    return [*scope.conditions[:8], *tests]


@statement_rule
def delete(site: Site) -> Iterator[Proposal]:
    """The line goes; the only one of a block becomes `pass`."""
    source, statement = site.source, site.statement
    if not statement.own_lines or statement.is_header or statement.is_clause:
        return
    one_line = statement.first_line == statement.last_line
    slot = line_slot(source, statement.first_line) if one_line else None
    if len(statement.block) == 1 and statement.owner is not None:
        yield Proposal(statement.start, statement.end, "pass", "delete", 0.5, slot, "pass")
        return
    start = source.line_start(statement.first_line)
    end = source.next_line_start(statement.last_line)
    yield Proposal(start, end, "", "delete", 1.0, slot, "")


@statement_rule
def move(site: Site) -> Iterator[Proposal]:
    """A line in or out of a block: its indentation becomes that of a neighbouring one."""
    source, statement = site.source, site.statement
    one_line = statement.first_line == statement.last_line
    if not statement.own_lines or not one_line or statement.is_header:
        return
    start = source.line_start(statement.first_line)
    present = source.indentation(statement.first_line)
    for indentation in dict.fromkeys(_levels(site)):
        if indentation != present:
            yield Proposal(start, statement.start, indentation, "move", 1.0, None)


def _levels(site: Site) -> Iterator[str]:
    """Indentations at which the line could stand instead."""
    source, statement = site.source, site.statement
    if statement.is_last and len(statement.block) > 1:
        owner = statement.owner
        while owner is not None and owner is not statement.function:
            yield source.indentation(owner.first_line)
            owner = owner.owner
    if statement.position and statement.block:
        before = statement.block[statement.position - 1]
        while not before.is_definition:
            inner = (before.clauses or [before])[-1].children
            if not inner:
                return
            before = inner[-1]
            yield source.indentation(before.first_line)


@statement_rule
def order(site: Site) -> Iterator[Proposal]:
    """A simple statement exchanged with the one before or after it."""
    source, statement = site.source, site.statement
    for offset in (-1, 1):
        index = statement.position + offset
        if statement.is_clause or not 0 <= index < len(statement.block):
            continue
        other = statement.block[index]
        first, second = sorted((statement, other), key=lambda s: s.start)
        if any(s.is_header or not s.own_lines for s in (first, second)):
            continue
        middle = source.slice(first.end, second.start)
        new = source.slice(second.start, second.end) + middle
        new += source.slice(first.start, first.end)
        yield Proposal(first.start, second.end, new, "order", 1.0, None)


@statement_rule
def insert(site: Site) -> Iterator[Proposal]:
    """New lines before and after the statement."""
    fresh = _new_statements(site)
    for slot, weight in gaps(site):
        for text, kind, share in fresh:
            if _allowed(text, slot):
                yield fill_slot(site.source, slot, text, kind, weight * share)


@statement_rule
def instead_of_pass(site: Site) -> Iterator[Proposal]:
    """What a placeholder stands for."""
    source, statement = site.source, site.statement
    if statement.kind != "pass_statement" or not statement.own_lines:
        return
    slot = line_slot(source, statement.first_line)
    place = replace(slot, in_loop=statement.in_loop, inside=statement.function is not None)
    for text, _, share in _new_statements(site):
        if _allowed(text, place):
            yield fill_slot(source, slot, text, "placeholder", share)


def _allowed(text: str, slot: Slot) -> bool:
    word = text.rsplit("\n", 1)[-1].split()[0]
    if word in ("break", "continue"):
        return slot.in_loop
    return slot.inside or word not in ("return", "yield")


def gaps(site: Site) -> Iterator[tuple[Slot, float]]:
    """Where a new line may stand, with weights."""
    source, statement = site.source, site.statement
    if not statement.own_lines:
        return
    if not statement.is_clause and not statement.is_definition:
        yield new_line_slot(source, statement.first_line, statement), 1.0
    if statement.children:
        first = statement.children[0]
        if first.own_lines and first.first_line > statement.last_line:
            yield new_line_slot(source, first.first_line, first), 0.7
    if not statement.is_definition:
        for beside in _ending_with(source, statement):
            last = source.line_of(statement.node.end_byte - 1)
            yield new_line_slot(source, last + 1, beside), 0.6


def _ending_with(source: Source, statement: Statement) -> Iterator[Statement]:
    """The statement and the blocks around it that end on the same line."""
    last = source.line_of(statement.node.end_byte - 1)
    here: Statement | None = statement
    while here is not None and not here.is_definition:
        if source.line_of(here.node.end_byte - 1) != last:
            return
        if not here.is_clause:
            yield here
        here = here.owner if here.is_clause or here.is_last else None


def _new_statements(site: Site) -> list[tuple[str, str, float]]:
    """(text, kind, weight) of statements that could be missing here, best first."""
    made: dict[str, tuple[str, float]] = {}
    rules = (_guards, _plain, _varied, _bindings)
    for text, kind, weight in (entry for rule in rules for entry in rule(site)):
        if text not in made or made[text][1] < weight:
            made[text] = (kind, weight)
    ranked = [(text, kind, weight) for text, (kind, weight) in made.items()]
    ranked.sort(key=lambda item: -item[2])
    guards = [item for item in ranked if item[1] == "guard"][:_MAX_GUARDS]
    return guards + [item for item in ranked if item[1] != "guard"][:_MAX_INSERTS]


def _guards(site: Site) -> Iterator[tuple[str, str, float]]:
    scope = site.scope
    conditions = [f"not {name}" for name in scope.local[:5]]
    conditions += [f"{name} is None" for name in scope.local[:3]]
    conditions += list(scope.conditions[:5])
    returns = [s for s in scope.statements if s.startswith(("return", "raise"))][:3]
    exits = [*returns, "continue", "break", "return", "return None", "return []", "return 0"]
    exits += [f"return {name}" for name in scope.local[:3]]
    for (i, test), (j, way) in product(enumerate(conditions), enumerate(dict.fromkeys(exits))):
        yield f"if {test}:\n{site.source.indent_unit}{way}", "guard", 1.0 / (2 + i + j)


def _plain(site: Site) -> Iterator[tuple[str, str, float]]:
    """Assignments and returns over the names in scope."""
    scope = site.scope
    numbers = _numbers(scope)
    for index, name in enumerate(scope.local[:12]):
        likely = 2.0 if name in numbers else 0.3
        yield f"return {name}", "insert", 0.8 / (2 + index)
        yield f"{name} += 1", "insert", 0.8 * likely / (2 + index)
        yield f"{name} -= 1", "insert", 0.4 * likely / (2 + index)
        for constant in ("0", "None", "[]", "True", "False", "1"):
            yield f"{name} = {constant}", "insert", 0.2 / (2 + index)
    for (i, left), (j, right) in product(
        enumerate(scope.assigned[:12]), enumerate(scope.local[:12])
    ):
        if left != right:
            likely = 1.0 if left in numbers else 0.3
            yield f"{left} = {right}", "insert", 1.0 / (3 + i + j)
            yield f"{left} += {right}", "insert", 0.5 * likely / (3 + i + j)
    for word in ("continue", "break", "return", "yield"):
        yield word, "insert", 0.3
    for index, name in enumerate(scope.own[:4]):
        for value in ("None", "0", "[]", *scope.local[1:4]):
            yield f"self.{name} = {value}", "insert", 0.3 / (2 + index)


def _bindings(site: Site) -> Iterator[tuple[str, str, float]]:
    """Assignments of names that nothing binds; uses of names that nothing reads."""
    scope = site.scope
    for name in scope.unbound[:3]:
        for text in scope.others:
            if text.startswith(f"{name} = "):
                yield text, "insert", 3.0
        values = [v for kind, v in scope.expressions if kind != "identifier" and v != name][:16]
        calls = [f"{f}({v})" for f in scope.functions[:6] for v in scope.local[:4]]
        constants = ["0", "None", "[]", "{}", '""', "False", "True", "set()"]
        for index, value in enumerate((*scope.local[:8], *constants, *values, *calls)):
            if value != name:
                yield f"{name} = {value}", "insert", 2.0 / (2 + index / 3)
    for name in scope.unused[:4]:
        yield f"self.{name} = {name}", "insert", 1.5
        yield f"return {name}", "insert", 1.0
    names = list(dict.fromkeys((*scope.unused[:2], *scope.local)))[:5]
    for (i, owner), (j, key), (k, value) in product(*[list(enumerate(names))] * 3):
        if len({owner, key, value}) == 3 and owner in scope.assigned:
            likely = 1.0 if {key, value} & set(scope.unused) else 0.3
            yield f"{owner}[{key}] = {value}", "insert", likely / (2 + i + j + k)


def _numbers(scope: Scope) -> set[str]:
    """Names that are counted with or compared by size."""
    texts = (*scope.statements, *scope.conditions)
    return {match[1] for text in texts for match in _NUMERIC.finditer(text)}


def _varied(site: Site) -> Iterator[tuple[str, str, float]]:
    """Statements of the function as they are, or with one name exchanged; method calls."""
    scope = site.scope
    for index, text in enumerate(scope.statements[:12]):
        yield text, "insert", 0.6 / (2 + index / 3)
        for match in _NAME.finditer(text):
            for position, name in enumerate(scope.local[:8]):
                new = text[: match.start()] + name + text[match.end() :]
                yield new, "insert", 0.4 / (3 + index / 2 + position)
    pairs = {tuple(call.split("(")[0].rsplit(".", 1)): 1.5 for call in scope.calls}
    for owner, method in product(scope.assigned[:8], dict.fromkeys(m for _, m in pairs)):
        pairs.setdefault((owner, method), 0.2)
    for (i, ((owner, method), likely)), (j, value) in product(
        enumerate(pairs.items()), enumerate(scope.local[:12])
    ):
        if owner != value and owner.split(".")[0] in (*scope.local, "self"):
            yield f"{owner}.{method}({value})", "insert", likely / (3 + i / 2 + j)
