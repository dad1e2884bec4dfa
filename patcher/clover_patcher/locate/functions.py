"""Functions and classes of a file by tree-sitter, in every language that has a grammar here.

A function's *qualified name* joins the names around it with dots (`Cart.total`); for Go and Rust
the receiver's or `impl` block's type stands in front. Offsets are bytes of the UTF-8 text.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tree_sitter import Language, Node, Parser, Tree

from clover_engine.languages import language_of


@dataclass(frozen=True, slots=True)
class Grammar:
    """A tree-sitter grammar, and which of its nodes are functions and which hold functions."""

    module: str
    functions: frozenset[str]
    holders: frozenset[str]
    factory: str = "language"


def _grammar(module: str, functions: str, holders: str = "", **more: str) -> Grammar:
    return Grammar(module, frozenset(functions.split()), frozenset(holders.split()), **more)


_SCRIPT = "function_declaration generator_function_declaration method_definition"
_C = "function_definition"
GRAMMARS = {
    "python": _grammar("tree_sitter_python", "function_definition", "class_definition"),
    "javascript": _grammar("tree_sitter_javascript", _SCRIPT, "class_declaration"),
    "typescript": _grammar(
        "tree_sitter_typescript",
        _SCRIPT,
        "class_declaration abstract_class_declaration",
        factory="language_typescript",
    ),
    "tsx": _grammar(
        "tree_sitter_typescript",
        _SCRIPT,
        "class_declaration abstract_class_declaration",
        factory="language_tsx",
    ),
    "go": _grammar("tree_sitter_go", "function_declaration method_declaration"),
    "rust": _grammar("tree_sitter_rust", "function_item", "impl_item mod_item trait_item"),
    "c": _grammar("tree_sitter_c", _C),
    "cpp": _grammar("tree_sitter_cpp", _C, "class_specifier struct_specifier namespace_definition"),
    "java": _grammar(
        "tree_sitter_java",
        "method_declaration constructor_declaration",
        "class_declaration interface_declaration enum_declaration record_declaration",
    ),
    "lua": _grammar("tree_sitter_lua", "function_declaration"),
    "ruby": _grammar("tree_sitter_ruby", "method singleton_method", "class module"),
}


@dataclass(frozen=True, slots=True)
class Function:
    """One function, method or class: where it stands and what it is called."""

    qualname: str
    start: int
    """Where its own text begins; decorators stand before it."""
    end: int
    outer_start: int
    """With decorators, `export`, `const …=`: what is replaced when it is replaced whole."""
    outer_end: int
    body_start: int
    """Where its body begins; the signature ends before it."""
    is_class: bool = False

    @property
    def name(self) -> str:
        return self.qualname.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The qualified name of what it stands in; empty at the top of the file."""
        return self.qualname.rpartition(".")[0]


def grammar_of(path: str, first_line: bytes = b"") -> str | None:
    """The grammar's name for a file, by its suffix or its `#!` line; None where there is none."""
    return language_of(path, first_line).grammar or None


@cache
def _language(language: str) -> Language | None:
    grammar = GRAMMARS[language]
    try:
        module = importlib.import_module(grammar.module)
    except ImportError:
        return None
    return Language(getattr(module, grammar.factory)())


def parse(language: str, code: bytes) -> Tree | None:
    """The syntax tree; None where the grammar's package is not installed."""
    built = _language(language)
    return None if built is None else Parser(built).parse(code)


def functions(language: str, code: bytes) -> list[Function]:
    """Functions and classes in the order of the text; empty where the grammar is missing."""
    tree = parse(language, code)
    return [] if tree is None else list(_walk(GRAMMARS[language], tree.root_node, ""))


def outermost(nested: list[Function]) -> list[Function]:
    """Those that stand in none of the others."""
    return [
        f
        for f in nested
        if not any(o is not f and o.outer_start <= f.start < o.outer_end for o in nested)
    ]


def error_count(language: str, code: bytes) -> int:
    """How many syntax errors the parser sees: an edit must not add any."""
    tree = parse(language, code)
    if tree is None or not tree.root_node.has_error:
        return 0
    count, stack = 0, [tree.root_node]
    while stack:
        node = stack.pop()
        count += node.is_error or node.is_missing
        stack.extend(child for child in node.children if child.has_error or child.is_missing)
    return count


def _walk(grammar: Grammar, node: Node, owner: str) -> Iterator[Function]:
    for child in node.children:
        inside = owner
        named = _function_in(grammar, child)
        if named is not None:
            function, name = named
            prefix = _receiver(function) or owner
            qualname = f"{prefix}.{name}" if prefix else name
            body = function.child_by_field_name("body")
            start, end = _outer(child)
            body_start = body.start_byte if body is not None else function.end_byte
            is_class = function.type in grammar.holders
            yield Function(
                qualname, child.start_byte, child.end_byte, start, end, body_start, is_class
            )
            inside = qualname
        yield from _walk(grammar, child, inside)


def _function_in(grammar: Grammar, node: Node) -> tuple[Node, str] | None:
    """The function or class that `node` is, with its name."""
    if node.type in grammar.functions or node.type in grammar.holders:
        name = _name(node)
        return (node, name) if name else None
    if node.type in ("lexical_declaration", "variable_declaration") and node.named_child_count == 1:
        declarator = node.named_children[0]
        value = declarator.child_by_field_name("value")
        variable = declarator.child_by_field_name("name")
        kinds = ("arrow_function", "function_expression", "function")
        if value is not None and value.type in kinds and variable is not None:
            return value, _text(variable)
    return None


def _name(node: Node) -> str:
    if node.type == "impl_item":
        inner = node.child_by_field_name("type")
        return _text(inner).partition("<")[0] if inner is not None else ""
    named = node.child_by_field_name("name")
    if named is not None:
        return _text(named).replace("::", ".").replace(":", ".")
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    inner = declarator.child_by_field_name("declarator") if declarator is not None else None
    return _text(inner).replace("::", ".") if inner is not None else ""


def _receiver(node: Node) -> str:
    """The type that a Go method belongs to."""
    receiver = node.child_by_field_name("receiver") if node.type == "method_declaration" else None
    if receiver is None:
        return ""
    stack = [receiver]
    while stack:
        current = stack.pop()
        if current.type == "type_identifier":
            return _text(current)
        stack.extend(reversed(current.children))
    return ""


def _outer(node: Node) -> tuple[int, int]:
    parent = node.parent
    if parent is not None and parent.type in ("decorated_definition", "export_statement"):
        return parent.start_byte, parent.end_byte
    return node.start_byte, node.end_byte


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
