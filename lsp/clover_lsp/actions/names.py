"""Which name means what in a Python text: scopes by tree-sitter, also where it does not parse.

An occurrence belongs to a *symbol*: a name in the scope that binds it. `self.x` and the class's
own `x` are one symbol; so are a parameter and the keyword that calls of that function in the same
file pass it by. Offsets are characters.
"""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Tree

from clover_lsp.actions.scope_walk import Walk
from clover_lsp.actions.scopes import Occurrence, Role, Scope, Symbol, resolve

_BLOCK = 256
"""Bytes between two counts of characters."""
_INSIDE = bytes(range(0x80, 0xC0))
"""The bytes of a character but its first, in UTF-8."""
_LANGUAGE = Language(tree_sitter_python.language())
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__"}


class Names:
    """All occurrences of names in one text."""

    def __init__(self, text: str) -> None:
        self._code = text.encode("utf-8", "surrogatepass")
        self._ascii = len(self._code) == len(text)
        self._counts = () if self._ascii else _character_counts(self._code)
        self.module = Scope("module", None, self.tree.root_node)
        self.occurrences: list[Occurrence] = []
        self._scopes: dict[int, Scope] = {}
        self._owners: dict[str, frozenset[Scope]] = {}
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
        return self._by_span.get((start, end))

    @cached_property
    def _by_span(self) -> dict[tuple[int, int], Occurrence]:
        found: dict[tuple[int, int], Occurrence] = {}
        for occurrence in self.occurrences:
            found.setdefault((occurrence.start, occurrence.end), occurrence)
        return found

    @cached_property
    def local_names(self) -> frozenset[str]:
        """Every name that some function binds."""
        return frozenset(n for s in self.scopes if s.kind == "function" for n in s.bound)

    def owners(self, name: str) -> frozenset[Scope]:
        """The classes that have an attribute of that name."""
        known = self._owners.get(name)
        if known is None:
            scopes = (self.symbol(o).scope for o in self.by_name.get(name, ()))
            known = frozenset(s for s in scopes if s is not None and s.kind == "class")
            self._owners[name] = known
        return known

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

    def calls_of(self, *names: str) -> list[tuple[Node, Scope]]:
        """Calls of functions and methods with one of these names, in order, with their scopes."""
        found = [call for name in dict.fromkeys(names) for call in self._calls.get(name, ())]
        return sorted(found, key=lambda call: call[0].start_byte)

    @cached_property
    def _calls(self) -> dict[str, list[tuple[Node, Scope]]]:
        """Every call by the last part of what is called."""
        found: dict[str, list[tuple[Node, Scope]]] = defaultdict(list)
        for node, scope in self._walk_calls():
            function = node.child_by_field_name("function")
            if function is not None and function.type == "attribute":
                function = function.child_by_field_name("attribute")
            if function is not None and function.type == "identifier":
                found[self.text(function)].append((node, scope))
        return found

    def _walk_calls(self) -> Iterator[tuple[Node, Scope]]:
        stack = [(self.tree.root_node, self.module)]
        while stack:
            node, scope = stack.pop()
            if node.type == "call":
                yield node, scope
            stack += [(c, self._scopes.get(c.id, scope)) for c in reversed(node.named_children)]

    def scope_at(self, offset: int) -> Scope:
        """The innermost scope around an offset."""
        at = self.byte(offset)
        number = bisect_right(self._scope_starts, at) - 1
        scope: Scope | None = self._scopes_in_order[number] if number >= 0 else None
        while scope is not None and scope.node.end_byte < at:
            scope = scope.parent
        return scope or self.module

    @cached_property
    def _scopes_in_order(self) -> list[Scope]:
        """As they begin, outer ones first."""
        return sorted(self.scopes, key=lambda s: (s.node.start_byte, -s.node.end_byte))

    @cached_property
    def _scope_starts(self) -> list[int]:
        return [scope.node.start_byte for scope in self._scopes_in_order]

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
        block = offset // _BLOCK
        return self._counts[block] + _characters(self._code[block * _BLOCK : offset])

    def byte(self, offset: int) -> int:
        if self._ascii:
            return offset
        block = bisect_right(self._counts, offset) - 1
        at, left = min(block * _BLOCK, len(self._code)), offset - self._counts[block]
        while at < len(self._code) and (left or _is_inside(self._code[at])):
            left -= not _is_inside(self._code[at])
            at += 1
        return at

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


def _characters(code: bytes) -> int:
    """How many characters begin in UTF-8 bytes."""
    return len(code.translate(None, _INSIDE))


def _character_counts(code: bytes) -> Sequence[int]:
    """How many characters begin before each block of bytes."""
    blocks = range(0, len(code), _BLOCK)
    return list(accumulate((_characters(code[at : at + _BLOCK]) for at in blocks), initial=0))


def _is_inside(byte: int) -> bool:
    return 0x80 <= byte < 0xC0


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
