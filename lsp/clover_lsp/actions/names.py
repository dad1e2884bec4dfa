"""Which name means what in a Python text: scopes by tree-sitter, also where it does not parse.

An occurrence belongs to a *symbol*: a name in the scope that binds it. `self.x` and the class's
own `x` are one symbol; so are a parameter and the keyword that calls of that function in the same
file pass it by. Offsets are characters.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Tree

from clover_lsp.actions.scope_walk import Walk
from clover_lsp.actions.scopes import Occurrence, Role, Scope, Symbol, resolve

_LANGUAGE = Language(tree_sitter_python.language())
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__"}


class Names:
    """All occurrences of names in one text."""

    def __init__(self, text: str) -> None:
        self._code = text.encode("utf-8", "surrogatepass")
        self._ascii = len(self._code) == len(text)
        self.module = Scope("module", None, self.tree.root_node)
        self.occurrences: list[Occurrence] = []
        self._scopes: dict[int, Scope] = {}
        Walk(self).run()
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
