"""What the code around a place offers to build an edit from: names, attributes, donor code.

Everything is ordered by usefulness: seen in the same function first, the more often the better;
ties keep the order of the text, so that results never depend on hashing.
"""

from __future__ import annotations

import builtins
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from clover_patcher.propose.signatures import Signature, signatures
from clover_patcher.propose.syntax import Source, Statement, walk, walk_header

_DONOR_EXPRESSIONS = frozenset((
    "identifier", "attribute", "subscript", "call", "binary_operator", "comparison_operator",
    "boolean_operator", "not_operator", "unary_operator", "list", "tuple", "dictionary",
))  # fmt: skip
_BUILTINS = frozenset(dir(builtins))
_RECEIVERS = frozenset(("self", "cls"))
"""Never assigned and seldom mistaken for anything else, though they stand everywhere."""
_MAX_DONOR = 40
_MAX_STATEMENT = 80


@dataclass(frozen=True, slots=True)
class Scope:
    """Material for edits inside one function (or the module's own statements)."""

    local: tuple[str, ...]
    """Variables of the function and of those around it."""
    module: tuple[str, ...]
    """Module-level names that are not in `local`."""
    functions: tuple[str, ...]
    """Plain names that are called somewhere in the file, or defined as functions in it."""
    attributes: tuple[str, ...]
    methods: tuple[str, ...]
    """Attributes that are called."""
    keywords: tuple[str, ...]
    """Keyword argument names."""
    own: tuple[str, ...]
    """Attributes seen on `self`."""
    strings: tuple[str, ...]
    """String literals as written."""
    integers: tuple[str, ...]
    expressions: tuple[tuple[str, str], ...]
    """(node type, text) of short expressions of the function."""
    conditions: tuple[str, ...]
    """Comparisons and other conditions, the function's own first."""
    statements: tuple[str, ...]
    """Short simple statements of the function."""
    others: tuple[str, ...]
    """Short simple statements of the rest of the file, repeated ones first."""
    unbound: tuple[str, ...]
    """Names that the function reads and nothing binds: an assignment may be missing."""
    unused: tuple[str, ...]
    """Names that the function binds and never reads: a line that uses them may be missing."""
    assigned: tuple[str, ...]
    """Local names that are bound somewhere in the function."""
    calls: tuple[str, ...]
    """Method calls that stand alone as statements, as `receiver.method` with its arguments."""
    signatures: tuple[Signature, ...]
    """The file's own functions; methods only inside methods."""
    places: Mapping[str, tuple[int, ...]]
    """The lines on which each local name stands."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.local + self.module


class Scopes:
    """Scopes of one file, one per function, made when first asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._made: dict[int, Scope] = {}
        self._file = _Seen(source, [source.tree.root_node])
        self._module = _module_names(source)
        self._defined = _defined(source)
        self._signatures = signatures(source, {*self._file.functions, *self._file.methods})

    def at(self, statement: Statement, line: int) -> Scope:
        """What is in scope at the statement; names that stand near the line come first."""
        scope = self._of(statement)
        near = {
            name: sum(0.1 + 1 / (2 + abs(line - place)) for place in places)
            for name, places in scope.places.items()
        }
        order = {name: (name in _RECEIVERS, -near.get(name, 0.0)) for name in scope.local}
        local = tuple(sorted(scope.local, key=order.__getitem__))
        bound = set(scope.assigned) - _RECEIVERS
        return replace(scope, local=local, assigned=tuple(n for n in local if n in bound))

    def _of(self, statement: Statement) -> Scope:
        function = statement.function
        if statement.kind == "function_definition":
            function = statement
        key = -1 if function is None else function.start
        if key not in self._made:
            self._made[key] = self._make(function)
        return self._made[key]

    def _make(self, function: Statement | None) -> Scope:
        outer: list[Node] = []
        walker = function
        while walker is not None:
            outer.append(walker.node)
            walker = walker.function
        near = _Seen(self._source, outer[:1]) if outer else self._file
        around = [_Seen(self._source, [node]) for node in outer[1:]]
        module = self._module
        called = _ordered(near.functions, self._file.functions, self._defined)
        known = set(module) | set(called) | _BUILTINS
        bound = set(near.assigned).union(*(seen.assigned for seen in around))
        read = near.read.union(near.functions)
        local = [
            name
            for name in _ordered(near.names, *(seen.names for seen in around))
            if name in bound or (name not in known and name not in near.functions)
        ]
        if not outer:
            local = list(dict.fromkeys(_variables(self._source)))
        rest = [name for name in _ordered(near.names, module) if name not in set(local)]
        return Scope(
            local=tuple(local),
            module=tuple(name for name in rest if name in set(module)),
            functions=called,
            attributes=_ordered(near.attributes, self._file.attributes),
            methods=_ordered(near.methods, self._file.methods),
            keywords=_ordered(near.keywords, self._file.keywords),
            own=_ordered(near.own, self._file.own),
            strings=_ordered(near.strings, self._file.strings),
            integers=_ordered(near.integers, self._file.integers),
            expressions=tuple(dict.fromkeys(near.expressions)),
            conditions=_ordered(near.conditions, self._file.conditions),
            statements=_ordered(near.statements),
            others=_ordered(t for t in self._file.statements if t not in set(near.statements)),
            unbound=tuple(n for n in local if n not in bound | near.imported) if outer else (),
            unused=_ordered(n for n in near.assigned if n not in read) if outer else (),
            assigned=tuple(name for name in local if name in bound),
            calls=_ordered(near.calls, self._file.calls),
            signatures=tuple(
                s for s in self._signatures if "self" in local or not s.name.startswith("self.")
            ),
            places={name: tuple(near.places.get(name, ())) for name in local},
        )


class _Seen:
    """Everything of interest under some nodes, in order of the text with repetitions."""

    def __init__(self, source: Source, roots: Sequence[Node]) -> None:
        self.source = source
        self.names: list[str] = []
        self.assigned: list[str] = []
        self.functions: list[str] = []
        self.attributes: list[str] = []
        self.methods: list[str] = []
        self.keywords: list[str] = []
        self.own: list[str] = []
        self.strings: list[str] = []
        self.integers: list[str] = []
        self.expressions: list[tuple[str, str]] = []
        self.conditions: list[str] = []
        self.statements: list[str] = []
        self.calls: list[str] = []
        self.read: set[str] = set()
        self.imported: set[str] = set()
        self.places: dict[str, list[int]] = defaultdict(list)
        for root in roots:
            for node in walk(root, skip="type"):
                self._see(node)

    def _see(self, node: Node) -> None:
        kind, text = node.type, ""
        if not node.is_named:
            return
        if node.end_byte - node.start_byte <= _MAX_STATEMENT:
            text = self.source.text(node)
        if kind == "identifier":
            self._identifier(node, text)
        elif kind == "attribute":
            self._attribute(node)
        elif kind == "string" and 0 < len(text) <= _MAX_DONOR and "\n" not in text:
            self.strings.append(text)
        elif kind == "integer":
            self.integers.append(text)
        elif kind in ("import_statement", "import_from_statement"):
            self.imported.update(_imported(self.source, node))
        elif kind.endswith("_statement"):
            self._statement(node, text)
        if kind in _DONOR_EXPRESSIONS and 0 < len(text) <= _MAX_DONOR and "\n" not in text:
            if is_expression(node):
                self.expressions.append((kind, text))
            if kind in ("comparison_operator", "not_operator"):
                self.conditions.append(text)

    def _identifier(self, node: Node, text: str) -> None:
        parent = node.parent
        role = identifier_role(node)
        if role == "keyword":
            self.keywords.append(text)
        if role not in ("value", "target", "function") or parent is None:
            return
        self.places[text].append(node.start_point.row + 1)
        if role == "target":
            self.assigned.append(text)
        if role == "function":
            self.functions.append(text)
        else:
            self.names.append(text)
            if role == "value":
                self.read.add(text)

    def _attribute(self, node: Node) -> None:
        name = node.child_by_field_name("attribute")
        thing = node.child_by_field_name("object")
        if name is None or thing is None:
            return
        text = self.source.text(name)
        self.attributes.append(text)
        parent = node.parent
        if parent is not None and parent.type == "call" and _is_field(parent, "function", node):
            self.methods.append(text)
        if self.source.text(thing) == "self":
            self.own.append(text)

    def _statement(self, node: Node, text: str) -> None:
        donors = ("expression_statement", "return_statement", "raise_statement", "assert_statement")
        if node.type not in donors or not text or "\n" in text or text[0] in "\"'":
            return
        self.statements.append(text)
        only = node.named_children[0] if node.named_children else None
        plain = node.type == "expression_statement"
        if plain and only is not None and only.type == "call" and "." in text.split("(")[0]:
            self.calls.append(text)


def identifier_role(node: Node) -> str:
    """What an identifier is there: value, target, function, attribute, keyword, other."""
    parent = node.parent
    if parent is None:
        return "other"
    kind = parent.type
    if kind == "attribute":
        return "attribute" if _is_field(parent, "attribute", node) else "value"
    if kind == "keyword_argument":
        return "keyword" if _is_field(parent, "name", node) else "value"
    if kind == "call":
        return "function" if _is_field(parent, "function", node) else "value"
    if kind in ("function_definition", "class_definition"):
        return "other"
    if kind in ("default_parameter", "typed_default_parameter"):
        return "target" if _is_field(parent, "name", node) else "value"
    if kind in ("parameters", "lambda_parameters", "typed_parameter", "as_pattern_target"):
        return "target"
    if kind in ("list_splat_pattern", "dictionary_splat_pattern", "pattern_list", "tuple_pattern"):
        return "target"
    if kind in ("assignment", "augmented_assignment", "for_statement", "for_in_clause"):
        return "target" if _is_field(parent, "left", node) else "value"
    if kind == "named_expression":
        return "target" if _is_field(parent, "name", node) else "value"
    if kind in ("type", "dotted_name", "aliased_import", "global_statement", "case_pattern"):
        return "other"
    if kind in ("nonlocal_statement", "class_pattern", "keyword_pattern", "generic_type"):
        return "other"
    return "value"


def is_expression(node: Node) -> bool:
    """Whether the node stands where any expression could stand (not a target, a name part…)."""
    if node.type == "identifier":
        return identifier_role(node) in ("value", "function")
    parent = node.parent
    if parent is None:
        return False
    if parent.type in ("assignment", "augmented_assignment", "for_statement", "for_in_clause"):
        return not _is_field(parent, "left", node) and not _is_field(parent, "type", node)
    return parent.type not in (
        "pattern_list",
        "tuple_pattern",
        "list_pattern",
        "as_pattern_target",
        "type",
        "delete_statement",
        "dotted_name",
        "case_pattern",
        "decorator",
        "parameters",
        "expression_statement",
    )


def _is_field(parent: Node, field: str, node: Node) -> bool:
    return any(child == node for child in parent.children_by_field_name(field))


def _ordered(*groups: Iterable[str]) -> tuple[str, ...]:
    """Distinct, earlier groups first, within a group by falling count, then by first sight."""
    result: dict[str, None] = {}
    for group in groups:
        for name, _ in Counter(group).most_common():
            result.setdefault(name)
    return tuple(result)


def _module_names(source: Source) -> list[str]:
    """Names bound by the module's own statements."""
    names: list[str] = []
    for statement in source.statements:
        if statement.function is not None:
            continue
        node = statement.node
        name = node.child_by_field_name("name")
        if statement.is_definition and statement.owner is None and name is not None:
            names.append(source.text(name))
        elif "import" in statement.kind:
            names.extend(_imported(source, node))
    return names + _variables(source)


def _variables(source: Source) -> list[str]:
    """Names that the module's own statements assign."""
    return [
        source.text(node)
        for statement in source.statements
        if statement.function is None and not statement.is_definition and not _in_class(statement)
        for node in walk_header(statement)
        if node.type == "identifier" and identifier_role(node) == "target"
    ]


def _in_class(statement: Statement) -> bool:
    owner = statement.owner
    while owner is not None:
        if owner.kind == "class_definition":
            return True
        owner = owner.owner
    return False


def _imported(source: Source, node: Node) -> list[str]:
    names = []
    for child in node.children_by_field_name("name"):
        alias = child.child_by_field_name("alias") if child.type == "aliased_import" else None
        text = source.text(alias if alias is not None else child)
        names.append(text.split(".")[0])
    return names


def _defined(source: Source) -> list[str]:
    """Functions and classes that a plain name reaches."""
    found = []
    for statement in source.statements:
        name = statement.node.child_by_field_name("name")
        if statement.is_definition and name is not None and not _in_class(statement):
            found.append(source.text(name))
    return found
