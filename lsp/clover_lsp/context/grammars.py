"""Grammars, and for each the query that finds definitions and imports.

Captures of the queries: one of `@class @function @method @field @constant @type @scope` is the
whole definition, `@name` its name, `@body` where its signature ends; `@import` is an import, with
`@module`, `@imported` (a name taken from it) and `@alias`. A `@scope` holds definitions without
being one itself (an `impl` block, a namespace).

Grammars are imported on first use.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from clover_engine.languages import language, language_of

if TYPE_CHECKING:
    from tree_sitter import Language, Query

_PYTHON = """
(class_definition name: (identifier) @name body: (_) @body) @class
(function_definition name: (identifier) @name body: (_) @body) @function
(module (expression_statement (assignment left: (identifier) @name)) @constant)
(class_definition body: (block (expression_statement
  (assignment left: (identifier) @name type: (_)) @field)))
(import_statement name: (dotted_name) @module) @import
(import_statement name: (aliased_import name: (_) @module alias: (_) @alias)) @import
(import_from_statement module_name: (_) @module name: (dotted_name) @imported) @import
(import_from_statement module_name: (_) @module
  name: (aliased_import name: (_) @imported alias: (_) @alias)) @import
"""

_SCRIPT = """
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @method
(variable_declarator name: (identifier) @name
  value: (arrow_function body: (_) @body)) @function
(variable_declarator name: (identifier) @name
  value: (function_expression body: (_) @body)) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name)) @constant)
(program (export_statement
  (lexical_declaration (variable_declarator name: (identifier) @name))) @constant)
(import_statement (import_clause (identifier) @alias) source: (string) @module) @import
(import_statement (import_clause (namespace_import (identifier) @alias))
  source: (string) @module) @import
(import_statement (import_clause (named_imports (import_specifier name: (_) @imported !alias)))
  source: (string) @module) @import
(import_statement (import_clause (named_imports (import_specifier name: (_) @imported
  alias: (_) @alias))) source: (string) @module) @import
(variable_declarator name: (identifier) @alias value: (call_expression
  function: (identifier) @_require arguments: (arguments . (string) @module))
  (#eq? @_require "require")) @import
"""

_JAVASCRIPT = "(class_declaration name: (_) @name body: (_) @body) @class" + _SCRIPT

_TYPESCRIPT = (
    """
(class_declaration name: (_) @name body: (_) @body) @class
(abstract_class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(type_alias_declaration name: (_) @name) @type
(method_signature name: (_) @name) @method
(property_signature name: (_) @name) @field
(public_field_definition name: (property_identifier) @name) @field
(abstract_method_signature name: (_) @name) @method
(function_signature name: (_) @name) @function
(internal_module name: (_) @name) @scope
"""
    + _SCRIPT
)

_GO = """
(function_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_) @body) @method
(type_declaration (type_spec name: (_) @name)) @class
(type_declaration (type_alias name: (_) @name)) @type
(const_spec name: (_) @name) @constant
(source_file (var_declaration (var_spec name: (_) @name)) @constant)
(import_spec name: (package_identifier) @alias path: (_) @module) @import
(import_spec !name path: (_) @module) @import
"""

_RUST = """
(struct_item name: (_) @name) @class
(enum_item name: (_) @name) @class
(union_item name: (_) @name) @class
(trait_item name: (_) @name body: (_) @body) @class
(impl_item type: (_) @name body: (_) @body) @scope
(mod_item name: (_) @name body: (_) @body) @scope
(function_item name: (_) @name body: (_) @body) @function
(function_signature_item name: (_) @name) @function
(macro_definition name: (_) @name) @function
(type_item name: (_) @name) @type
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(use_declaration argument: (scoped_identifier path: (_) @module name: (_) @imported)) @import
(use_declaration argument: (use_as_clause path: (scoped_identifier path: (_) @module
  name: (_) @imported) alias: (_) @alias)) @import
(use_declaration argument: (scoped_use_list path: (_) @module
  list: (use_list (identifier) @imported))) @import
(use_declaration argument: (use_wildcard (_) @module)) @import
"""

_C = """
(function_definition declarator: (function_declarator declarator: (identifier) @name)
  body: (_) @body) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator
  declarator: (identifier) @name)) body: (_) @body) @function
(declaration declarator: (function_declarator declarator: (identifier) @name)) @function
(declaration declarator: (pointer_declarator declarator: (function_declarator
  declarator: (identifier) @name))) @function
(struct_specifier name: (_) @name body: (_)) @class
(union_specifier name: (_) @name body: (_)) @class
(enum_specifier name: (_) @name body: (_)) @class
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (_) @name) @constant
(preproc_function_def name: (_) @name) @function
(preproc_include path: (_) @module) @import
"""

_CPP = (
    _C
    + """
(class_specifier name: (_) @name body: (_)) @class
(namespace_definition name: (_) @name body: (_) @body) @scope
(function_definition declarator: (function_declarator declarator:
  [(field_identifier) (qualified_identifier) (destructor_name) (operator_name)] @name)
  body: (_) @body) @function
(function_definition declarator: (reference_declarator (function_declarator declarator:
  [(identifier) (field_identifier) (qualified_identifier)] @name)) body: (_) @body) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator:
  [(field_identifier) (qualified_identifier)] @name)) body: (_) @body) @function
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @method
(alias_declaration name: (_) @name) @type
"""
)

_JAVA = """
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(method_declaration name: (_) @name body: (_) @body) @method
(method_declaration name: (_) @name !body) @method
(constructor_declaration name: (_) @name body: (_) @body) @method
(field_declaration (modifiers "static") declarator: (variable_declarator name: (_) @name)) @constant
(import_declaration (scoped_identifier scope: (_) @module name: (_) @imported)) @import
"""

_LUA = """
(function_declaration name: (identifier) @name body: (_)? @body) @function
(function_declaration name: (dot_index_expression field: (_) @name) body: (_)? @body) @function
(function_declaration name: (method_index_expression method: (_) @name) body: (_)? @body) @method
(assignment_statement (variable_list . name: (dot_index_expression field: (_) @name))
  (expression_list . value: (function_definition body: (_)? @body))) @function
(assignment_statement (variable_list . name: (identifier) @name)
  (expression_list . value: (function_definition body: (_)? @body))) @function
(assignment_statement (variable_list . name: (identifier) @alias)
  (expression_list . value: (function_call name: (identifier) @_require
    arguments: (arguments . (string) @module))) (#eq? @_require "require")) @import
"""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Where a grammar comes from, and how it is asked."""

    module: str
    query: str
    function: str = "language"


GRAMMARS = {
    "python": Grammar("tree_sitter_python", _PYTHON),
    "javascript": Grammar("tree_sitter_javascript", _JAVASCRIPT),
    "typescript": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_typescript"),
    "tsx": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_tsx"),
    "go": Grammar("tree_sitter_go", _GO),
    "rust": Grammar("tree_sitter_rust", _RUST),
    "c": Grammar("tree_sitter_c", _C),
    "cpp": Grammar("tree_sitter_cpp", _CPP),
    "java": Grammar("tree_sitter_java", _JAVA),
    "lua": Grammar("tree_sitter_lua", _LUA),
}


def grammar_of(path: str, language_id: str = "") -> str | None:
    """The grammar's name for a file; the editor's language id counts before the suffix."""
    found = language(language_id).grammar, language_of(path).grammar
    return next((grammar for grammar in found if grammar in GRAMMARS), None)


@cache
def load(name: str) -> tuple[Language, Query]:
    """The grammar and its compiled query."""
    from tree_sitter import Language, Query

    grammar = GRAMMARS[name]
    built = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return built, Query(built, grammar.query)
