"""Scopes and occurrences of names, as data; `names.Names` finds them in a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tree_sitter import Node

Role = Literal["bind", "use", "attribute", "keyword", "exported"]
ScopeKind = Literal["module", "function", "class", "comprehension"]


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
