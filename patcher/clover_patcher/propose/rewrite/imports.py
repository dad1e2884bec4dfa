"""Imports that a rewritten function brings along, for Python."""

from __future__ import annotations

import ast


def missing_imports(code: str, text: str) -> str:
    """`text` with those top-level imports of `code` that bind names it does not have yet.

    They go behind the last top-level import, before all else behind the docstring otherwise.
    """
    given, standing = _parse(code), _parse(text)
    if given is None or standing is None:
        return text
    bound = {name for node in ast.walk(standing) for name in _bound(node)}
    used = {node.id for node in ast.walk(standing) if isinstance(node, ast.Name)}
    new: list[str] = []
    for node in given.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a for a in node.names if _name(a) not in bound and _name(a) in used]
            if names and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                kept = type(node)(**{**dict(ast.iter_fields(node)), "names": names})
                new.append(ast.unparse(kept))
    if not new:
        return text
    lines = text.split("\n")
    imports = [n for n in standing.body if isinstance(n, ast.Import | ast.ImportFrom)]
    at = imports[-1].end_lineno or 0 if imports else _behind_docstring(standing)
    gap = [] if imports else [""]
    return "\n".join([*lines[:at], *new, *gap, *lines[at:]])


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def _behind_docstring(tree: ast.Module) -> int:
    first = tree.body[0] if tree.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.end_lineno or 0
    return max((first.lineno - 1) if first else 0, 0)


def _name(alias: ast.alias) -> str:
    return (alias.asname or alias.name).partition(".")[0]


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [_name(alias) for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return []
