"""The functions of a file, and what they have to be called with."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from clover_patcher.propose.syntax import Source


@dataclass(frozen=True, slots=True)
class Signature:
    """A function of the file as it is called from inside it."""

    name: str
    """With `self.` before a method's."""
    parameters: tuple[str, ...]
    """Those without default, and without `self`."""
    called: bool
    """Whether something in the file calls it, or it may be called from elsewhere."""


def signatures(source: Source, called: set[str]) -> list[Signature]:
    """The module's functions and the methods of its classes; `called` are names that are called."""
    found = []
    for statement in source.statements:
        name = statement.node.child_by_field_name("name")
        parameters = statement.node.child_by_field_name("parameters")
        method = statement.owner is not None and statement.owner.kind == "class_definition"
        if statement.kind != "function_definition" or name is None or parameters is None:
            continue
        if statement.function is not None or (statement.owner is not None and not method):
            continue
        plain = _required(source, parameters)
        text = source.text(name)
        if text.startswith("__") or (method and plain[:1] != ["self"]):
            continue
        private = text.startswith("_")
        prefix = "self." if method else ""
        own = tuple(plain[1:] if method else plain)
        found.append(Signature(prefix + text, own, not private or text in called))
    return found


def _required(source: Source, parameters: Node) -> list[str]:
    """Names of the parameters that have no default."""
    names = []
    for parameter in parameters.named_children:
        inner = parameter.named_children[0] if parameter.type == "typed_parameter" else parameter
        if inner.type == "identifier":
            names.append(source.text(inner))
        elif inner.type in ("list_splat_pattern", "keyword_separator"):
            break
    return names
