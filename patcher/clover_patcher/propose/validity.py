"""Does the file still parse after an edit, and does the edit change what the program does?

An edit inside one statement needs only that statement parsed again, as long as it stays one
statement of the same form; in a long one (a table of values) only the element around the edit is.
Everything else parses the function around it, which stands alone by
its indentation; code outside functions parses the whole file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator

from tree_sitter import Node

from clover_patcher.propose.grammar import Grammar
from clover_patcher.propose.syntax import Source, Statement

_MAY_WARN = re.compile(r"\\|\d[a-zA-Z_]")
"""Invalid escapes and `1if x`: warnings about them are for the author, not for us."""
_WRAPS: dict[str, tuple[str, str]] = {
    "elif_clause": ("if 0: pass\n", "\n pass"),
    "except_clause": ("try: pass\n", "\n pass"),
    "except_group_clause": ("try: pass\n", "\n pass"),
    "case_clause": ("match 0:\n ", "\n  pass"),
    "match_statement": ("", "\n case 0: pass"),
}
_LONG, _HUGE = 4_000, 64_000
"""Bytes of a statement; parsing a hundred times as much takes half a second."""
_BRACKETS: dict[str, tuple[str, str, type[ast.expr]]] = {
    "list": ("[", "\n]", ast.List),
    "tuple": ("[", "\n]", ast.List),
    "set": ("{", "\n}", ast.Set),
    "dictionary": ("{", "\n}", ast.Dict),
    "argument_list": ("f(", "\n)", ast.Call),
}
_CONTEXT = (
    (ast.Return, "function"),
    (ast.Yield, "function"),
    (ast.YieldFrom, "function"),
    (ast.Await, "function"),
    (ast.Break, "loop"),
    (ast.Continue, "loop"),
)
_HEADERS = (
    ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip


class Checker:
    """Answers for one file; remembers what the statements were."""

    def __init__(self, source: Source, grammar: Grammar | None = None) -> None:
        """`grammar` is that of the Python that runs the program, where it is another one."""
        self._source = source
        self._version = grammar.feature_version() if grammar else None
        whole = source.slice(0, len(source.code))
        ours = self._parses(whole)
        self._grammar = grammar if grammar and not ours and grammar.meaning(whole) else None
        """Asked for texts that are not Python to us; None where all of the file is."""
        self.broken = not ours and self._grammar is None
        """Whether the file does not parse as it is; then only the whole file can be judged."""
        self._known: dict[int, str | None] = {}
        self._whole: dict[int, str | None] = {}

    def meaning(self, statement: Statement | None, start: int, end: int, new: str) -> str | None:
        """What the statement means after the edit; None if broken or the same as before."""
        source = self._source
        if statement is None or self.broken:
            return self._by_unit(None, start, end, new)
        if statement.own_lines:
            low = source.content_start(statement.first_line)
            high = source.line_end(statement.last_line)
        else:
            low, high = statement.start, statement.end
        if low <= start and end <= high and high - low > _LONG:
            element = _element(statement.node, start, end)
            if element is not None:
                return self._in_element(statement, element, start, end, new)
            if high - low > _HUGE:
                return None
        if low <= start and end <= high and "\n" not in new:
            text = source.slice(low, start) + new + source.slice(end, high)
            wrapped = self._wrap(statement, text)
            if wrapped is not None:
                meaning = None
                if self._version is None or self._parses(wrapped):
                    meaning = _fingerprint_of(wrapped, _same_form(statement))
                if meaning is not None:
                    return self._unless_same(statement, low, high, meaning)
                if not statement.is_header and self._grammar is None:
                    return None
        unit = statement.function or (statement if statement.is_definition else None)
        while unit is not None and unit.function is not None:
            unit = unit.function
        return self._by_unit(unit, start, end, new)

    def _in_element(
        self, statement: Statement, element: Node, start: int, end: int, new: str
    ) -> str | None:
        """The same for an element of a long statement's brackets."""
        source, low, high = self._source, element.start_byte, element.end_byte
        assert element.parent is not None
        before, after, kind = _BRACKETS[element.parent.type]
        inside, loop = statement.function is not None, statement.in_loop

        def accept(tree: ast.Module) -> bool:
            (only,) = tree.body if len(tree.body) == 1 else (None,)
            whole = isinstance(only, ast.Expr) and isinstance(only.value, kind)
            return whole and _fits(tree, inside, loop)

        text = source.slice(low, start) + new + source.slice(end, high)
        meaning = _fingerprint_of(f"{before}{text}{after}", accept)
        known = _fingerprint_of(f"{before}{source.slice(low, high)}{after}", accept)
        return None if meaning in (None, known) else f"{low}:{meaning}"

    @staticmethod
    def stands_alone(text: str, inside: bool, in_loop: bool) -> bool:
        """Whether the text is one statement that may stand where it is put."""
        tree = _parse(text)
        return tree is not None and len(tree.body) == 1 and _fits(tree, inside, in_loop)

    def _unless_same(self, statement: Statement, low: int, high: int, meaning: str) -> str | None:
        if statement.start not in self._known:
            wrapped = self._wrap(statement, self._source.slice(low, high)) or ""
            self._known[statement.start] = _fingerprint_of(wrapped, _same_form(statement))
        return None if meaning == self._known[statement.start] else f"{statement.start}:{meaning}"

    def _wrap(self, statement: Statement, text: str) -> str | None:
        """The statement as a module of its own; None where it needs its surroundings."""
        if not statement.is_header:
            return text
        if statement.kind in ("try_statement", "else_clause", "finally_clause"):
            return None
        before, after = _WRAPS.get(statement.kind, ("", "\n pass"))
        return f"{before}{text}{after}"

    def _parses(self, text: str) -> bool:
        return _parse(text, self._version) is not None

    def _whole_meaning(self, text: str) -> str | None:
        """What a text that stands alone means, to our Python or to that which runs it."""
        tree = _parse(text, self._version)
        if tree is not None:
            return fingerprint(tree)
        return self._grammar.meaning(text) if self._grammar else None

    def _by_unit(self, unit: Statement | None, start: int, end: int, new: str) -> str | None:
        """The same for an outermost function, or the whole file."""
        source = self._source
        low, high = 0, len(source.code)
        if unit is not None:
            low = source.line_start(unit.first_line)
            high = source.line_end(source.line_of(unit.node.end_byte - 1))
        if not low <= start <= end <= high:
            low, high = 0, len(source.code)
        before = "if 1:\n" if source.code[low : low + 1] in (b" ", b"\t") and low else ""
        text = before + source.slice(low, start) + new + source.slice(end, high) + "\n"
        meaning = self._whole_meaning(text)
        if low not in self._whole:
            self._whole[low] = self._whole_meaning(before + source.slice(low, high) + "\n")
        if meaning is None or meaning == self._whole[low]:
            return None
        return f"@{low}:{meaning}"


def _element(statement: Node, start: int, end: int) -> Node | None:
    """The largest element of brackets around the edit that is not long itself."""
    found = None
    node = statement.descendant_for_byte_range(start, end)
    while node is not None and node != statement and node.end_byte - node.start_byte <= _LONG:
        parent = node.parent
        if parent is not None and parent.type in _BRACKETS and node.is_named:
            found = node
        node = parent
    return found


def fingerprint(node: ast.AST) -> str:
    """The tree without positions, as text: equal if and only if the trees are."""
    return " ".join(_pieces(node))


def _pieces(node: object) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for name in node._fields:
            if name not in ("ctx", "kind", "type_comment"):
                yield from _pieces(getattr(node, name, None))
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _pieces(item)
        yield "]"
    else:
        yield repr(node)


def _parse(text: str, version: tuple[int, int] | None = None) -> ast.Module | None:
    try:
        if not _MAY_WARN.search(text):
            return ast.parse(text, feature_version=version)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, feature_version=version)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _fingerprint_of(text: str, accept: Callable[[ast.Module], bool]) -> str | None:
    tree = _parse(text)
    return fingerprint(tree) if tree is not None and accept(tree) else None


def _same_form(statement: Statement) -> Callable[[ast.Module], bool]:
    """Accepts a tree that can take the statement's place without looking around it."""
    inside, loop = statement.function is not None, statement.in_loop

    def accept(tree: ast.Module) -> bool:
        if len(tree.body) != 1 or not _fits(tree, inside, loop):
            return False
        only = tree.body[0]
        if not statement.is_header:
            return statement.own_lines or not isinstance(only, _HEADERS)
        return isinstance(only, _FORMS.get(statement.kind, _HEADERS)) and not _grown(only)

    return accept


def _grown(statement: ast.stmt) -> bool:
    """Whether a header brought along more than the body it was given to test it."""
    body = getattr(statement, "body", None)
    return isinstance(body, list) and len(body) != 1


_FORMS: dict[str, type[ast.stmt] | tuple[type[ast.stmt], ...]] = {
    "if_statement": ast.If,
    "elif_clause": ast.If,
    "while_statement": ast.While,
    "for_statement": (ast.For, ast.AsyncFor),
    "with_statement": (ast.With, ast.AsyncWith),
    "function_definition": (ast.FunctionDef, ast.AsyncFunctionDef),
    "class_definition": ast.ClassDef,
    "match_statement": ast.Match,
}


def _fits(tree: ast.AST, function: bool, loop: bool) -> bool:
    """Whether `return`, `yield`, `break`… stand where they may."""
    pending: list[tuple[ast.AST, bool, bool]] = [(tree, function, loop)]
    while pending:
        node, function, loop = pending.pop()
        for kind, need in _CONTEXT:
            if isinstance(node, kind) and not (function if need == "function" else loop):
                return False
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            function, loop = True, False
        elif isinstance(node, ast.For | ast.While | ast.AsyncFor):
            loop = True
        pending.extend((child, function, loop) for child in ast.iter_child_nodes(node))
    return True
