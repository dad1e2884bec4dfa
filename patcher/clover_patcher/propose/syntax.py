"""Python source as statements and nodes: what the candidate templates look at.

A `Source` keeps the file's own bytes next to the same text in UTF-8 without byte order mark,
which is what the parser reads. Offsets in here are bytes of that UTF-8 text; `Source.edit` turns
a change of it into a change of the file's own bytes. Lines are 1-based.
"""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Tree

from clover_patcher.types import Edit

_LANGUAGE = Language(tree_sitter_python.language())
_SIMPLE = frozenset(
    f"{name}_statement"
    for name in (
        "expression", "return", "pass", "break", "continue", "assert", "raise", "delete", "import",
        "import_from", "future_import", "global", "nonlocal", "print", "exec",
    )
) | {"type_alias_statement"}  # fmt: skip
_COMPOUND = frozenset(
    f"{name}_statement" for name in ("if", "for", "while", "try", "with", "match")
) | {"function_definition", "class_definition"}
_CLAUSES = frozenset(
    f"{name}_clause" for name in ("elif", "else", "except", "except_group", "finally", "case")
)
_TOKEN = re.compile(
    r"""(\s*)([rbufRBUF]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\w+(?:\.\d+)?|#.*"""
    r"""|\*\*=|//=|>>=|<<=|[<>=!+\-*/%&|^@:]=|\*\*|//|<<|>>|->|\S)"""
)
_STATEFUL = ("utf7", "utf-7", "iso2022", "iso-2022", "hz", "utf-16", "utf16", "utf-32", "utf32")


@dataclass(slots=True, eq=False)
class Statement:
    """A simple statement, or the header of a compound one up to and including its colon."""

    node: Node
    start: int
    end: int
    first_line: int
    last_line: int
    block: list[Statement]
    """The statements of the same block in order, itself included; clauses have none."""
    position: int
    owner: Statement | None
    function: Statement | None
    in_loop: bool
    own_lines: bool
    """Nothing but a comment shares a line with it."""
    children: list[Statement] = field(default_factory=list)
    """The statements of its own body."""
    clauses: list[Statement] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.node.type

    @property
    def is_header(self) -> bool:
        return self.kind not in _SIMPLE

    @property
    def is_clause(self) -> bool:
        return self.kind in _CLAUSES

    @property
    def is_definition(self) -> bool:
        return self.kind in ("function_definition", "class_definition")

    @property
    def is_last(self) -> bool:
        return not self.is_clause and self.position == len(self.block) - 1


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number, string or sign, and the blanks before it."""

    space: str
    text: str


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code as lexical tokens, without comment and indentation."""

    number: int
    tokens: tuple[Token, ...]
    counts: Counter[str]
    """How often each token's text occurs."""


class Source:
    """One decoded file. `load_source` makes it."""

    def __init__(self, path: str, text: str, encoding: str, bom: bool) -> None:
        self.path = path
        self.code = text.encode("utf-8")
        self.eol = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
        self.encoding = encoding
        self._bom = len(codecs.BOM_UTF8) if bom else 0
        self._utf8 = codecs.lookup(encoding).name == "utf-8"
        self._starts = _line_starts(self.code)

    @cached_property
    def indent_unit(self) -> str:
        """What one level of indentation looks like."""
        for statement in self.statements:
            if statement.children and statement.own_lines:
                outer = self.indentation(statement.first_line)
                inner = self.indentation(statement.children[0].first_line)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
        return "    "

    @cached_property
    def tree(self) -> Tree:
        return Parser(_LANGUAGE).parse(self.code)

    @cached_property
    def statements(self) -> list[Statement]:
        """All statements and headers in the order of the text."""
        return list(_Statements(self).collect())

    @cached_property
    def code_lines(self) -> list[CodeLine]:
        """Lines that belong to statements, without blank ones and the lines of long strings."""
        skipped: set[int] = set()
        for node in walk(self.tree.root_node):
            if node.type == "string" and node.start_point.row != node.end_point.row:
                skipped.update(range(node.start_point.row + 1, node.end_point.row + 2))
        covered = {n for s in self.statements for n in range(s.first_line, s.last_line + 1)}
        return [
            CodeLine(n, tokens, Counter(token.text for token in tokens))
            for n in sorted(covered - skipped)
            if (tokens := _tokens(self.slice(self.content_start(n), self.line_end(n))))
        ]

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        """Where the line's text ends, before its end-of-line characters."""
        end = self._starts[line] if line < len(self._starts) else len(self.code)
        return self.line_start(line) + len(self.code[self.line_start(line) : end].rstrip(b"\r\n"))

    def next_line_start(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.code)

    def content_start(self, line: int) -> int:
        """Where the line's text begins after its indentation."""
        start, end = self.line_start(line), self.line_end(line)
        return start + len(self.code[start:end]) - len(self.code[start:end].lstrip(b" \t\f"))

    def eol_near(self, offset: int) -> str:
        """How the line with the character before `offset` ends; the line above it where it has
        no end. For files with both kinds: a new line looks like its neighbour."""
        line = self.line_of(max(0, offset - 1))
        for near in (line, line - 1):
            if near >= 1 and (end := self.slice(self.line_end(near), self.next_line_start(near))):
                return end
        return self.eol

    def indentation(self, line: int) -> str:
        return self.slice(self.line_start(line), self.content_start(line))

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def slice(self, start: int, end: int) -> str:
        return self.code[start:end].decode("utf-8")

    def text(self, node: Node) -> str:
        return self.slice(node.start_byte, node.end_byte)

    def on_line(self, line: int) -> list[Statement]:
        """Statements and headers that cover the line, in order."""
        return [s for s in self.statements if s.first_line <= line <= s.last_line]

    def edit(self, start: int, end: int, new: str) -> Edit | None:
        """The change in the file's own bytes; None where its encoding lacks a character."""
        try:
            data = new.encode(self.encoding)
        except UnicodeEncodeError:
            return None
        return Edit(self.path, self._offset(start), self._offset(end), data)

    def _offset(self, offset: int) -> int:
        if self._utf8:
            return self._bom + offset
        return self._bom + len(self.slice(0, offset).encode(self.encoding))


def load_source(path: str, content: bytes) -> Source | None:
    """Decodes a file as Python would; None where that, or editing it exactly, is impossible."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        bom = encoding == "utf-8-sig"
        encoding = "utf-8" if bom else encoding
        body = content[len(codecs.BOM_UTF8) :] if bom else content
        text = body.decode(encoding)
        exact = text.encode(encoding) == body
    except (SyntaxError, UnicodeError, LookupError):
        return None
    if not exact or encoding.lower().startswith(_STATEFUL) or "\0" in text:
        return None
    if "\r" in text.replace("\r\n", ""):  # a lone CR ends a line for Python, for nobody else
        return None
    return Source(path, text, encoding, bom)


def walk(node: Node, skip: str = "") -> Iterator[Node]:
    """The node and everything below it, in the order of the text, but nothing of type `skip`."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(c for c in reversed(current.children) if c.type != skip)


def walk_header(statement: Statement) -> Iterator[Node]:
    """The nodes of a statement without the statements inside it; the statement's own first."""
    stack = [statement.node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(c for c in reversed(current.children) if c.start_byte < statement.end)


def _tokens(text: str) -> tuple[Token, ...]:
    found = (Token(match[1], match[2]) for match in _TOKEN.finditer(text))
    return tuple(token for token in found if token.text[0] != "#")


def _line_starts(code: bytes) -> list[int]:
    starts = [0]
    at = code.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = code.find(b"\n", at + 1)
    if len(starts) > 1 and starts[-1] == len(code):
        starts.pop()
    return starts


class _Statements:
    """Collects a file's statements with their surroundings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Statement] = []

    def collect(self) -> list[Statement]:
        self._block(self.source.tree.root_node, None, None, in_loop=False)
        ends: dict[int, int] = {}
        for statement in self.found:
            for line in {statement.first_line, statement.last_line}:
                ends[line] = ends.get(line, 0) + 1
        for statement in self.found:
            alone = ends[statement.first_line] == ends[statement.last_line] == 1
            statement.own_lines = alone and self._clean(statement)
        return self.found

    def _clean(self, statement: Statement) -> bool:
        source = self.source
        before = source.content_start(statement.first_line) == statement.start
        after = source.slice(statement.end, source.line_end(statement.last_line)).strip()
        return before and (not after or after.startswith("#"))

    def _block(
        self, block: Node, owner: Statement | None, function: Statement | None, *, in_loop: bool
    ) -> list[Statement]:
        statements: list[Statement] = []
        for node in block.children:
            inner = node
            if node.type == "decorated_definition":
                inner = node.child_by_field_name("definition") or node
            if inner.type in _SIMPLE or inner.type in _COMPOUND:
                statements.append(self._add(inner, statements, owner, function, in_loop))
            elif inner.type == "case_clause":
                self._add(inner, [], owner, function, in_loop)
        return statements

    def _add(
        self,
        node: Node,
        block: list[Statement],
        owner: Statement | None,
        function: Statement | None,
        in_loop: bool,
    ) -> Statement:
        body = next((c for c in node.children if c.type == "block"), None)
        end = _header_end(node, body)
        statement = Statement(
            node,
            start=node.start_byte,
            end=end,
            first_line=self.source.line_of(node.start_byte),
            last_line=self.source.line_of(max(node.start_byte, end - 1)),
            block=block,
            position=len(block),
            owner=owner,
            function=function,
            in_loop=in_loop,
            own_lines=False,
        )
        self.found.append(statement)
        if node.type == "function_definition":
            function, in_loop = statement, False
        elif node.type == "class_definition":
            function, in_loop = None, False
        inside = in_loop or node.type in ("for_statement", "while_statement")
        if body is not None:
            statement.children = self._block(body, statement, function, in_loop=inside)
        for clause in node.children:
            if clause.type in _CLAUSES:
                statement.clauses.append(self._add(clause, [], statement, function, in_loop))
        return statement


def _header_end(node: Node, body: Node | None) -> int:
    if node.type in _SIMPLE:
        return node.end_byte
    stop = body.start_byte if body is not None else node.end_byte
    colons = [c.end_byte for c in node.children if c.type == ":" and c.start_byte < stop]
    return colons[-1] if colons else stop
