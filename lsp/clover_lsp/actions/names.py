"""Which name means what in a Python text: scopes by tree-sitter, also where it does not parse.

An occurrence belongs to a *symbol*: a name in the scope that binds it. `self.x` and the class's
own `x` are one symbol; so are a parameter and the keyword that calls of that function in the same
file pass it by. Offsets are characters.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Tree

Role = Literal["bind", "use", "attribute", "keyword", "exported"]
ScopeKind = Literal["module", "function", "class", "comprehension"]

_LANGUAGE = Language(tree_sitter_python.language())
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__"}
_COMPREHENSIONS = frozenset((
    "list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression",
))  # fmt: skip
_PATTERNS = frozenset((
    "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern",
    "dictionary_splat_pattern", "as_pattern_target", "parenthesized_expression", "tuple", "list",
    "list_splat", "expression_list",
))  # fmt: skip


@dataclass(slots=True, eq=False)
class Scope:
    kind: ScopeKind
    parent: Scope | None
    node: Node
    name: str = ""
    bound: dict[str, int] = field(default_factory=dict)
    """Names bound here, with how often."""
    outer: dict[str, Literal["global", "nonlocal"]] = field(default_factory=dict)
    functions: dict[str, Scope] = field(default_factory=dict)
    """Functions and classes defined here, by name; the last one of a name."""
    receiver: str = ""
    """A method's first parameter."""
    starred: bool = False
    """A star import: any name may be bound here."""

    @property
    def owner(self) -> Scope | None:
        """The class that a receiver in here belongs to."""
        scope: Scope | None = self
        while scope is not None:
            if scope.receiver and scope.parent is not None and scope.parent.kind == "class":
                return scope.parent
            scope = scope.parent
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    name: str
    start: int
    end: int
    role: Role
    scope: Scope
    receiver: str = ""
    """For an attribute: the text before the dot, if it is one name."""
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """`scope` is None for attributes of unknown things, and names that nothing here binds."""

    name: str
    scope: Scope | None


class Names:
    """All occurrences of names in one text."""

    def __init__(self, text: str) -> None:
        self._code = text.encode("utf-8", "surrogatepass")
        self._ascii = len(self._code) == len(text)
        self.module = Scope("module", None, self.tree.root_node)
        self.occurrences: list[Occurrence] = []
        self._scopes: dict[int, Scope] = {}
        _Walk(self).run()
        self.occurrences.sort(key=lambda o: o.start)

    @cached_property
    def tree(self) -> Tree:
        return Parser(_LANGUAGE).parse(self._code)

    @property
    def scopes(self) -> list[Scope]:
        """All scopes but the module's."""
        return list(self._scopes.values())

    @cached_property
    def by_name(self) -> dict[str, list[Occurrence]]:
        found: dict[str, list[Occurrence]] = defaultdict(list)
        for occurrence in self.occurrences:
            found[occurrence.name].append(occurrence)
        return found

    def at(self, start: int, end: int) -> Occurrence | None:
        """The occurrence that stands exactly there."""
        return next((o for o in self.occurrences if o.start == start and o.end == end), None)

    def symbol(self, occurrence: Occurrence) -> Symbol:
        """What the occurrence refers to."""
        name, scope = occurrence.name, occurrence.scope
        if occurrence.role == "attribute":
            return Symbol(name, _receiver_class(occurrence))
        if occurrence.role == "keyword":
            called = self.called(occurrence)
            return Symbol(name, called if called and name in called.bound else None)
        if occurrence.role == "exported":
            return Symbol(name, self.module)
        return Symbol(name, resolve(scope, name))

    def called(self, keyword: Occurrence) -> Scope | None:
        """The function of this file that a keyword argument is passed to."""
        call = keyword.node
        while call is not None and call.type != "call":
            call = call.parent
        return self.callee(call, keyword.scope) if call is not None else None

    def callee(self, call: Node, scope: Scope) -> Scope | None:
        """The function of this file that a call runs, a class's `__init__` for a class."""
        function = call.child_by_field_name("function")
        if function is None:
            return None
        found: Scope | None = None
        if function.type == "identifier":
            name = self.text(function)
            place = resolve(scope, name)
            found = place.functions.get(name) if place else None
        elif function.type == "attribute":
            thing = function.child_by_field_name("object")
            attribute = function.child_by_field_name("attribute")
            owner = scope.owner
            if thing is None or attribute is None or owner is None:
                return None
            if self.text(thing) == _receiver_name(scope):
                found = owner.functions.get(self.text(attribute))
        if found is not None and found.kind == "class":
            found = found.functions.get("__init__")
        return found

    def calls(self) -> Iterator[tuple[Node, Scope]]:
        """Every call with the scope it stands in."""
        stack = [(self.tree.root_node, self.module)]
        while stack:
            node, scope = stack.pop()
            if node.type == "call":
                yield node, scope
            stack += [(c, self._scopes.get(c.id, scope)) for c in reversed(node.named_children)]

    def scope_at(self, offset: int) -> Scope:
        """The innermost scope around an offset."""
        at = self.byte(offset)
        around = [s for s in self._scopes.values() if s.node.start_byte <= at <= s.node.end_byte]
        return min(around, key=lambda s: s.node.end_byte - s.node.start_byte, default=self.module)

    def undefined(self) -> list[Occurrence]:
        """Uses of names that nothing in the file binds and that are no builtins."""
        if self.module.starred:
            return []
        return [
            o
            for o in self.occurrences
            if o.role == "use" and o.name not in BUILTINS and resolve(o.scope, o.name) is None
        ]

    def text(self, node: Node) -> str:
        return self._code[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")

    def char(self, offset: int) -> int:
        """Characters before a byte."""
        if self._ascii:
            return offset
        return len(self._code[:offset].decode("utf-8", "surrogatepass"))

    def byte(self, offset: int) -> int:
        if self._ascii:
            return offset
        text = self._code.decode("utf-8", "surrogatepass")
        return len(text[:offset].encode("utf-8", "surrogatepass"))

    def add(self, node: Node, role: Role, scope: Scope, receiver: str = "", inner: int = 0) -> None:
        """Notes an occurrence; `inner` bytes at each end of the node are quotes."""
        low, high = node.start_byte + inner, node.end_byte - inner
        name = self._code[low:high].decode("utf-8", "surrogatepass")
        start = self.char(low)
        self.occurrences.append(
            Occurrence(name, start, start + len(name), role, scope, receiver, node)
        )

    def open(self, scope: Scope) -> Scope:
        """Notes which scope belongs to a node."""
        self._scopes[scope.node.id] = scope
        return scope


def resolve(scope: Scope, name: str) -> Scope | None:
    """The scope whose binding a plain name in `scope` refers to."""
    first, at = scope, scope
    while True:
        declared = at.outer.get(name)
        if declared == "global":
            return _module(at)
        visible = at is first or at.kind != "class"
        if visible and declared is None and name in at.bound:
            return at
        if at.parent is None:
            return None
        if at.kind == "comprehension" and at is first and at.parent.kind == "class":
            first = at.parent
        at = at.parent


def _module(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _receiver_name(scope: Scope) -> str:
    at: Scope | None = scope
    while at is not None:
        if at.receiver:
            return at.receiver
        at = at.parent
    return ""


def _receiver_class(occurrence: Occurrence) -> Scope | None:
    if occurrence.receiver and occurrence.receiver == _receiver_name(occurrence.scope):
        return occurrence.scope.owner
    return None


class _Walk:
    """Fills a `Names` from its tree."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stack: list[tuple[Node, Scope, bool]] = []
        self._special: dict[str, Callable[[Node, Scope], None]] = {
            "function_definition": self._function,
            "lambda": self._lambda,
            "class_definition": self._class,
            "assignment": self._assignment,
            "augmented_assignment": self._assignment,
            "for_statement": self._for,
            "for_in_clause": self._for,
            "named_expression": self._walrus,
            "attribute": self._attribute,
            "keyword_argument": self._keyword,
            "import_statement": self._import,
            "import_from_statement": self._import,
            "future_import_statement": lambda node, scope: None,
            "global_statement": self._declaration,
            "nonlocal_statement": self._declaration,
            "case_pattern": self._case,
        }

    def run(self) -> None:
        self._stack.append((self._names.module.node, self._names.module, False))
        while self._stack:
            node, scope, binds = self._stack.pop()
            kind = node.type
            if kind == "identifier":
                self._identifier(node, scope, binds)
            elif kind in _COMPREHENSIONS:
                self._children(node, self._names.open(Scope("comprehension", scope, node)))
            elif (special := self._special.get(kind)) is not None:
                special(node, scope)
            else:
                binds = (binds and kind in _PATTERNS) or kind == "as_pattern_target"
                self._children(node, scope, binds)

    def _children(self, node: Node, scope: Scope, binds: bool = False) -> None:
        self._stack += [(c, scope, binds) for c in reversed(node.named_children)]

    def _later(self, node: Node | None, scope: Scope, binds: bool = False) -> None:
        if node is not None:
            self._stack.append((node, scope, binds))

    def _identifier(self, node: Node, scope: Scope, binds: bool) -> None:
        if binds:
            self._bind(node, scope)
        else:
            self._names.add(node, "use", scope)

    def _bind(self, node: Node | None, scope: Scope) -> None:
        if node is None:
            return
        name = self._names.text(node)
        scope.bound[name] = scope.bound.get(name, 0) + 1
        if scope.outer.get(name) == "global":
            module = self._names.module
            module.bound[name] = module.bound.get(name, 0) + 1
        self._names.add(node, "bind", scope)

    def _function(self, node: Node, scope: Scope) -> None:
        name = node.child_by_field_name("name")
        self._bind(name, scope)
        text = self._names.text(name) if name is not None else ""
        inner = self._names.open(Scope("function", scope, node, text))
        scope.functions[text] = inner
        self._parameters(node.child_by_field_name("parameters"), inner, scope)
        if scope.kind == "class" and not self._is_static(node):
            first = next(iter(inner.bound), "")
            inner.receiver = first
        self._later(node.child_by_field_name("return_type"), scope)
        self._later(node.child_by_field_name("body"), inner)

    def _is_static(self, node: Node) -> bool:
        around = node.parent
        if around is None or around.type != "decorated_definition":
            return False
        return any("staticmethod" in self._names.text(c) for c in around.children[:-1])

    def _lambda(self, node: Node, scope: Scope) -> None:
        inner = self._names.open(Scope("function", scope, node))
        self._parameters(node.child_by_field_name("parameters"), inner, scope)
        self._later(node.child_by_field_name("body"), inner)

    def _parameters(self, node: Node | None, inner: Scope, outer: Scope) -> None:
        for child in node.named_children if node is not None else ():
            name = child.child_by_field_name("name")
            if child.type == "identifier":
                self._bind(child, inner)
            elif name is not None:
                self._bind(name, inner)
            else:
                self._pattern(child, inner)
            self._later(child.child_by_field_name("type"), outer)
            self._later(child.child_by_field_name("value"), outer)

    def _pattern(self, node: Node, scope: Scope) -> None:
        """Binds the names of `*args`, `**kwargs`, `name: type`."""
        for child in node.named_children:
            if child.type == "identifier":
                self._bind(child, scope)
            elif child.type != "type":
                self._pattern(child, scope)

    def _class(self, node: Node, scope: Scope) -> None:
        name = node.child_by_field_name("name")
        self._bind(name, scope)
        inner = self._names.open(
            Scope("class", scope, node, self._names.text(name) if name is not None else "")
        )
        scope.functions[inner.name] = inner
        self._later(node.child_by_field_name("superclasses"), scope)
        self._later(node.child_by_field_name("body"), inner)

    def _assignment(self, node: Node, scope: Scope) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and self._names.text(left) == "__all__":
            self._exports(right, scope)
        self._later(right, scope)
        self._later(node.child_by_field_name("type"), scope)
        self._later(left, scope, True)

    def _exports(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            text = self._names.text(child)
            if child.type == "string" and text[1:-1].isidentifier():
                self._names.add(child, "exported", scope, inner=1)

    def _for(self, node: Node, scope: Scope) -> None:
        left = node.child_by_field_name("left")
        for child in reversed(node.named_children):
            self._later(child, scope, child == left)

    def _walrus(self, node: Node, scope: Scope) -> None:
        target = scope
        while target.kind == "comprehension" and target.parent is not None:
            target = target.parent
        self._bind(node.child_by_field_name("name"), target)
        self._later(node.child_by_field_name("value"), scope)

    def _attribute(self, node: Node, scope: Scope) -> None:
        thing = node.child_by_field_name("object")
        name = node.child_by_field_name("attribute")
        receiver = ""
        if thing is not None and thing.type == "identifier":
            receiver = self._names.text(thing)
        if name is not None:
            self._names.add(name, "attribute", scope, receiver)
        self._later(thing, scope)

    def _keyword(self, node: Node, scope: Scope) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self._names.add(name, "keyword", scope)
        self._later(node.child_by_field_name("value"), scope)

    def _import(self, node: Node, scope: Scope) -> None:
        if any(c.type == "wildcard_import" for c in node.children):
            scope.starred = True
        for child in node.children_by_field_name("name"):
            if child.type == "aliased_import":
                self._bind(child.child_by_field_name("alias"), scope)
            elif child.named_children:
                self._bind(child.named_children[0], scope)

    def _declaration(self, node: Node, scope: Scope) -> None:
        kind: Literal["global", "nonlocal"]
        kind = "global" if node.type == "global_statement" else "nonlocal"
        for child in node.named_children:
            name = self._names.text(child)
            scope.outer[name] = kind
            if kind == "global":
                self._names.module.bound.setdefault(name, 1)
            self._names.add(child, "use", scope)

    def _case(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            if child.type == "dotted_name" and len(child.named_children) == 1:
                self._bind(child.named_children[0], scope)
            else:
                self._later(child, scope)
