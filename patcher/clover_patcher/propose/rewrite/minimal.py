"""The smallest change of lines that means what a rewritten function means.

Models rename nothing, yet drop comments, add comments and blank lines, and reformat. A line that
says the same as before stays as it was; added comment lines are left out and removed ones stay.
"""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

from clover_engine.languages import comment_mark

_ELIDED = re.compile(
    r"^\s*(?:#|//|--|/\*)?\s*(?:\.\.\.|…)\s*(?:\*/)?\s*$"
    r"|^\s*(?:#|//|--|/\*).*(?:\.\.\.|…).*\b(?:existing|rest|remain|unchanged|same|other|previous"
    r"|omitted|code|before)\b"
    r"|^\s*(?:#|//|--|/\*)\s*(?:rest of|existing code|\(?unchanged|same as before|remaining code)",
    re.IGNORECASE | re.MULTILINE,
)


def is_abbreviated(code: str, language: str) -> bool:
    """Whether lines stand for code that was left out (`# ... rest unchanged`)."""
    match = _ELIDED.search(code)
    if match is None:
        return False
    if language == "python" and match[0].strip() == "...":
        return not _is_stub(code)
    return True


def _is_stub(code: str) -> bool:
    """A body of nothing but `...` (an overload, a protocol's method) is no abbreviation."""
    try:
        (node,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        return False
    body = getattr(node, "body", [])
    return all(isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in body)


def covers(code: str, text: str, language: str) -> bool:
    """Whether `code` is the whole of a Python file: it binds every name that the file binds, and
    has its other statements too (texts, calls, ``if __name__``)."""
    if language != "python" or is_abbreviated(code, language):
        return False
    given, standing = _names(code), _names(text)
    if not standing or given is None or not standing <= given:
        return False
    return _nameless(text) <= _nameless(code)


def _nameless(code: str) -> frozenset[str]:
    """The top-level statements of code that parses which bind no name; not its docstring."""
    body = ast.parse(code).body
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        body = body[1:]
    binding = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return frozenset(
        ast.dump(node) for node in body if not isinstance(node, binding) and not _stored(node)
    )


def _stored(node: ast.AST) -> set[str]:
    """The names that a statement assigns to."""
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def _names(code: str) -> frozenset[str] | None:
    """The names that a file's top-level statements bind; None where it does not parse."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return None
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((a.asname or a.name).partition(".")[0] for a in node.names)
        else:
            found |= _stored(node)
    return frozenset(found)


def minimal(before: str, after: str, language: str, margin: str = "") -> str:
    """`after` with as many of the lines of `before` as say the same.

    Both begin at their first character, behind `margin`; later lines have their own blanks.

    For Python the result's syntax tree is that of `after` (docstrings apart, which stay), else
    `after` comes back as it is. In other languages lines count as the same if they differ in
    blanks only.
    """
    if before == after:
        return before
    comment = comment_mark(language)
    if language != "python":
        return _merge(before, after, comment)
    kept = _merge(before, _with_docstring_of(before, after, margin), comment)
    wanted, standing, got = (_tree(text, margin) for text in (after, before, kept))
    if wanted is None or got != wanted:
        return after
    return before if standing == wanted else kept


def _merge(before: str, after: str, comment: str) -> str:
    old, new = before.split("\n"), after.split("\n")
    a = [_essence(line, comment) for line in old]
    b = [_essence(line, comment) for line in new]
    out: list[str] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            out += old[i1:i2]
        else:
            spoken = [line for line, says in zip(new[j1:j2], b[j1:j2], strict=True) if says]
            out += _replaced(old[i1:i2], a[i1:i2], spoken, comment)
    return "\n".join(out)


def _replaced(old: list[str], says: list[str], new: list[str], comment: str) -> list[str]:
    """New lines in place of old ones, with the comments and blank lines around and behind those."""
    spoken = [number for number, text in enumerate(says) if text]
    if not spoken:
        return [*old, *new]
    before, behind = old[: spoken[0]], old[spoken[-1] + 1 :]
    if len(new) == len(spoken):
        tails = [_tail(old[number], comment) for number in spoken]
        new = [
            line if _tail(line, comment) else line + t for line, t in zip(new, tails, strict=True)
        ]
    return [*before, *new, *behind]


def _tail(line: str, comment: str) -> str:
    """The comment behind a line's code, with the blanks before it."""
    if comment not in line or re.search(r"[\"'`]", line):
        return ""
    code = line.partition(comment)[0]
    return line[len(code.rstrip()) :] if code.strip() else ""


def _essence(line: str, comment: str) -> str:
    """What a line says: without comment, with its indentation, blanks folded."""
    blanks = line[: len(line) - len(line.lstrip())]
    text = line.strip()
    if text.startswith(comment):
        return ""
    if comment in text and not re.search(r"[\"'`]", text):
        text = text.partition(comment)[0].rstrip()
    return blanks + re.sub(r"\s+", " ", text) if text else ""


def _with_docstring_of(before: str, after: str, margin: str) -> str:
    """`after` with the docstring of `before` in place of its own, where both are one function."""
    old, new = (_docstring_lines(text, margin) for text in (before, after))
    if old is None or new is None or old == new == (0, 0):
        return after
    lines = after.split("\n")
    at = new[0] if new != (0, 0) else _body_line(after, margin)
    return "\n".join([*lines[:at], *before.split("\n")[slice(*old)], *lines[max(at, new[1]) :]])


def _docstring_lines(code: str, margin: str) -> tuple[int, int] | None:
    """Line numbers from 0, the last one excluded; (0, 0) without one; None if not a function."""
    node = _only_definition(code, margin)
    if node is None or (len(node.body) == 1 and isinstance(node.body[0], ast.Expr)):
        return None
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None or first.lineno == node.lineno:
        return 0, 0
    shift = 2 if margin else 1
    return first.lineno - shift, (first.end_lineno or first.lineno) - shift + 1


def _body_line(code: str, margin: str) -> int:
    node = _only_definition(code, margin)
    assert node is not None
    first = node.body[0]
    decorators: list[ast.expr] = getattr(first, "decorator_list", [])
    return min([first.lineno, *(n.lineno for n in decorators)]) - (2 if margin else 1)


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _only_definition(code: str, margin: str) -> _Definition | None:
    tree = _parse(code, margin)
    body = tree.body if tree else []
    if margin and len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    return body[0] if len(body) == 1 and isinstance(body[0], _Definition) else None


def _parse(code: str, margin: str) -> ast.Module | None:
    try:
        return ast.parse(f"if 1:\n{margin}{code}" if margin else code)
    except (SyntaxError, ValueError):
        return None


def _tree(code: str, margin: str) -> str | None:
    """The syntax tree as text, without docstrings; None where it does not parse."""
    tree = _parse(code, margin)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)
