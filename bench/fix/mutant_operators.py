"""One-line mutants of Python source, with the operators of the mutation-testing literature.

The operators are those of mutmut, cosmic-ray and PIT (relational, boundary, arithmetic, logical,
constant, argument, variable, return value, negation, statement deletion, …), written over `ast`
and apart from the patcher's rules and from the training data's mutations. String literals are
left alone: what a lost text was, nothing in the program says. Docstrings, annotations and
decorators are no code to mutate.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_ORDERED = ("<", "<=", ">", ">=", "==", "!=")
_OPPOSITE = {"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Delete)


@dataclass(frozen=True, slots=True)
class Mutation:
    """Bytes [start, end) of a file become `new`, all on one line."""

    path: str
    operator: str
    line: int
    start: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutations(path: str, source: bytes, rng: random.Random) -> dict[str, list[Mutation]]:
    """Every mutation of the file that parses and changes its tree, by operator."""
    visitor = _Mutator(path, source, rng)
    visitor.visit(visitor.tree)
    before = ast.dump(visitor.tree)
    found: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in visitor.found:
        try:
            if ast.dump(ast.parse(mutation.apply(source))) != before:
                found[mutation.operator].append(mutation)
        except SyntaxError:
            continue
    return found


class _Mutator(ast.NodeVisitor):
    """Collects mutations of one file. Choices among alternatives are the generator's."""

    def __init__(self, path: str, source: bytes, rng: random.Random) -> None:
        self.path, self.source, self.rng = path, source, rng
        self.tree = ast.parse(source)
        self.found: list[Mutation] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._variables: list[list[str]] = []
        self._attributes = sorted(
            {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        )

    # --- places -------------------------------------------------------------------------------

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(
            node.end_lineno, node.end_col_offset
        )

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _add(self, operator: str, line: int, start: int, end: int, new: str) -> None:
        """Keeps the mutation if it stays within one line."""
        if b"\n" not in self.source[start:end] and "\n" not in new:
            self.found.append(Mutation(self.path, operator, line, start, end, new))

    def _replace(self, operator: str, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(operator, node.lineno, *self._span(node), new)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replaces an operator sign between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[start:end]
        index = gap.find(old.encode())
        if index >= 0 and b"#" not in gap:
            line = self.source[: start + index].count(b"\n") + 1
            self._add(operator, line, start + index, start + index + len(old), new)

    # --- what is not mutated ------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        inner = [n for statement in node.body for n in ast.walk(statement)]
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        names += [n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self._variables.append(sorted(set(names) - {"self", "cls"}))
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._variables.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    # --- operators ----------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            old = _COMPARE[type(op)]
            if old in _BOUNDARY:
                self._between("boundary", left, right, old, _BOUNDARY[old])
            if old in _ORDERED:
                others = [o for o in _ORDERED if o not in (old, _BOUNDARY.get(old))]
                self._between("comparison", left, right, old, self.rng.choice(others))
            else:
                self._between("comparison", left, right, old, _OPPOSITE[old])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        old = _ARITHMETIC.get(type(node.op))
        if old is not None and not self._is_text(node.left):
            new = self.rng.choice([o for o in _ARITHMETIC.values() if o != old])
            self._between("arithmetic", node.left, node.right, old, new)
        kept = self.rng.choice((node.left, node.right))
        self._replace("operand lost", node, self._text(kept))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        old = _ARITHMETIC.get(type(node.op))
        if old is not None:
            new = self.rng.choice(["", *(o for o in ("+", "-", "*") if o != old)])
            self._between("arithmetic", node.target, node.value, f"{old}=", f"{new}=")
        self._statement(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        at = self.rng.randrange(len(node.values) - 1)
        self._between("boolean", node.values[at], node.values[at + 1], old, new)
        if len(node.values) == 2:
            self._replace("operand lost", node, self._text(self.rng.choice(node.values)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("negation", node, self._text(node.operand))
        elif isinstance(node.op, ast.USub):
            self._replace("sign", node, self._text(node.operand))
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While) -> None:
        if not isinstance(node.test, ast.UnaryOp):
            self._replace("negation", node.test, f"not ({self._text(node.test)})")
        self.generic_visit(node)

    visit_While = visit_If

    # --- values -------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int | float) and not isinstance(node.value, complex):
            choices = {node.value + 1, node.value - 1, 0, 1} - {node.value}
            self._replace("constant", node, repr(self.rng.choice(sorted(choices))))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) or not self._variables:
            return
        others = [name for name in self._variables[-1] if name != node.id]
        if others and node.id in self._variables[-1]:
            self._replace("variable", node, self.rng.choice(others))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        others = [name for name in self._attributes if name != node.attr]
        if others and isinstance(node.ctx, ast.Load):
            end = self._span(node)[1]
            start, new = end - len(node.attr.encode()), self.rng.choice(others)
            self._add("attribute", node.end_lineno or node.lineno, start, end, new)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Slice):
            bound = node.slice.lower or node.slice.upper
            if bound is not None:
                self._replace("index", bound, "")
        elif not isinstance(node.slice, ast.Constant | ast.Tuple) and self._variables:
            moved = self.rng.choice(("+ 1", "- 1"))
            self._replace("index", node.slice, f"{self._text(node.slice)} {moved}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        plain = [a for a in node.args if not isinstance(a, ast.Starred | ast.GeneratorExp)]
        if len(plain) == len(node.args) and len(plain) >= 2:
            at = self.rng.randrange(len(plain) - 1)
            self._swap(plain[at], plain[at + 1])
            first, last = plain[-2], plain[-1]
            self._add("argument lost", last.lineno, self._span(first)[1], self._span(last)[1], "")
        elif len(plain) == 1 and not node.keywords:
            self._replace("argument lost", plain[0], "")
        self.generic_visit(node)

    def _swap(self, first: ast.expr, second: ast.expr) -> None:
        start, end = self._span(first)[0], self._span(second)[1]
        middle = self.source[self._span(first)[1] : self._span(second)[0]].decode()
        new = self._text(second) + middle + self._text(first)
        self._add("argument order", first.lineno, start, end, new)

    # --- statements ---------------------------------------------------------------------------

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not self._is_none(node.value):
            self._replace("return value", node.value, "None")
        self._statement(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("loop control", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("loop control", node, "break")

    def visit_Assign(self, node: ast.Assign) -> None:
        self._statement(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._statement(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        """The statement becomes `pass`; where it is one line of several, it goes with its line."""
        if isinstance(node, _SIMPLE) and self._variables:
            self._lose(node)
        self.generic_visit(node)

    def _lose(self, node: ast.stmt) -> None:
        start, end = self._span(node)
        low = self._at(node.lineno, 0)
        high = self.source.find(b"\n", end) + 1 or len(self.source)
        alone = not self.source[low:start].strip() and not self.source[end:high].strip()
        gone = Mutation(self.path, "line lost", node.lineno, low, high, "")
        if node.lineno != node.end_lineno or not alone:
            return
        try:
            ast.parse(gone.apply(self.source))
        except SyntaxError:
            self._replace("line lost", node, "pass")
        else:
            self.found.append(gone)

    @staticmethod
    def _is_text(node: ast.expr) -> bool:
        return isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )

    @staticmethod
    def _is_none(node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value is None


def spread(groups: Mapping[str, Sequence[Mutation]], rng: random.Random) -> Iterator[Mutation]:
    """All mutations in random order, each operator in turn, at most one of a line and operator."""
    queues = {name: rng.sample(list(group), len(group)) for name, group in sorted(groups.items())}
    seen: set[tuple[str, str, int]] = set()
    while queues:
        for name in list(queues):
            while queues[name] and _key(queues[name][-1]) in seen:
                queues[name].pop()
            if not queues[name]:
                del queues[name]
                continue
            mutation = queues[name].pop()
            seen.add(_key(mutation))
            yield mutation


def _key(mutation: Mutation) -> tuple[str, str, int]:
    return mutation.operator, mutation.path, mutation.line
