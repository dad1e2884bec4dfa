"""Walks a Python syntax tree and tells of every scope and occurrence of a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from tree_sitter import Node

from clover_lsp.actions.scopes import Role, Scope

_COMPREHENSIONS = frozenset((
    "list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression",
))  # fmt: skip
_PATTERNS = frozenset((
    "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern",
    "dictionary_splat_pattern", "as_pattern_target", "parenthesized_expression", "tuple", "list",
    "list_splat", "expression_list",
))  # fmt: skip


class Notes(Protocol):
    """Who is told: `names.Names`."""

    module: Scope

    def add(self, node: Node, role: Role, scope: Scope, receiver: str = "", inner: int = 0) -> None:
        """An occurrence; `inner` bytes at each end of the node are quotes."""

    def open(self, scope: Scope) -> Scope: ...

    def text(self, node: Node) -> str: ...


class Walk:
    """Tells of everything in the tree below a module's scope."""

    def __init__(self, names: Notes) -> None:
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
