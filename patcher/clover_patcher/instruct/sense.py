"""What is suspicious about new lines: names that vanish, and names that nobody defines."""

from __future__ import annotations

import ast
import builtins

from clover_patcher.instruct.place import Place
from clover_patcher.locate.functions import functions

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__name__", "__path__", "__doc__", "__class__"}
_MOST = 3


def lost_names(place: Place, text: str) -> list[str]:
    """Functions and classes that the selection defines and the new text does not."""
    if not place.language:
        return []
    before = _defined(place, place.standing)
    after = _defined(place, text)
    return sorted(before - after)[:_MOST]


def _defined(place: Place, text: str) -> set[str]:
    return {f.qualname for f in functions(place.language, place.whole(text).encode())}


def unbound_names(place: Place, after: str) -> list[str]:
    """Python: names that the file uses now, and that are bound nowhere in it; not those that
    were so before."""
    if place.language != "python":
        return []
    return undefined(place.whole(place.standing), after)


def undefined(before: str, after: str) -> list[str]:
    """The same for two versions of a Python file."""
    known, now = _unbound(before), _unbound(after)
    return [] if known is None or now is None else sorted(now - known)[:_MOST]


def _unbound(text: str) -> set[str] | None:
    """None where that cannot be told: the file does not parse, or imports everything."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    used: set[str] = set()
    bound: set[str] = set(_KNOWN)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound.update(node.names)
        elif type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):  # `def f[T]`
            bound.add(node.name)  # type: ignore[attr-defined]
    return None if "*" in bound else used - bound
