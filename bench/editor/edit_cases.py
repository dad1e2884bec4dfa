"""Refactorings of real files with known answers, for `bench/editor/edit.py`.

Made with the standard library's own `ast` and `symtable`, so that what counts as right does not
come from the code that is measured. Names that a nested scope binds anew are left out.
"""

from __future__ import annotations

import ast
import random
import symtable
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = tuple[int, int, str]
"""Characters [start, end) become a text."""
FRESH = "renamed_thing"


@dataclass(frozen=True)
class Case:
    """`done` was edited by hand, `left` is what remains to be proposed; offsets of `text`."""

    kind: str
    path: str
    text: str
    done: tuple[Change, ...]
    left: tuple[Change, ...]
    undone: bool = False
    """The changes `done` were made and taken back."""


class Module:
    """One parsed file."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.tree = ast.parse(text)
        self.table = symtable.symtable(text, path, "exec")
        self._starts = [0]
        for line in text.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.lines = text.split("\n")

    def at(self, line: int, column: int) -> int:
        """Offset of an `ast` position, whose columns are UTF-8 bytes."""
        head = self.lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(head)

    def span(self, node: ast.expr | ast.arg | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno, node.end_col_offset),
        )

    def case(self, kind: str, done: list[Change], left: list[Change], undone: bool = False) -> Case:
        return Case(kind, self.path, self.text, tuple(done), tuple(sorted(left)), undone)

    def tables(self, of: symtable.SymbolTable | None = None) -> Iterator[symtable.SymbolTable]:
        top = of or self.table
        yield top
        for child in top.get_children():
            yield from self.tables(child)


def names(module: Module, word: str) -> list[tuple[int, int]]:
    found = [n for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id == word]
    return [module.span(n) for n in found]


def locals_(module: Module) -> Iterator[Case]:
    """A local variable or parameter with several uses; its first binding was renamed."""
    nodes = {(n.name, n.lineno): n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef)}
    for table in module.tables():
        node = nodes.get((table.get_name(), table.get_lineno()))
        if not isinstance(table, symtable.Function) or node is None or node.decorator_list:
            continue
        inner = [t for child in table.get_children() for t in module.tables(child)]
        for symbol in table.get_symbols():
            word = symbol.get_name()
            if not symbol.is_local() or word in ("self", "cls") or len(word) < 3:
                continue
            if any(_binds(t, word) for t in inner) or symbol.is_imported() or symbol.is_namespace():
                continue
            spans = [
                module.span(n) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == word
            ]
            if symbol.is_parameter():
                yield from _parameter(module, node, word, spans)
                continue
            handlers = [
                n for n in ast.walk(node) if isinstance(n, ast.ExceptHandler) and n.name == word
            ]
            if len(spans) >= 3 and not handlers:
                first, *rest = sorted(spans)
                yield _renamed(module, "rename local", first, rest)


def _parameter(
    module: Module, node: ast.FunctionDef, word: str, spans: list[tuple[int, int]]
) -> Iterator[Case]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    own = [a for a in arguments if a.arg == word]
    if not own or len(spans) < 2:
        return
    start = module.span(own[0])[0]
    keywords = [
        (module.span(k)[0], module.span(k)[0] + len(word))
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == node.name
        for k in call.keywords
        if k.arg == word
    ]
    yield _renamed(module, "rename parameter", (start, start + len(word)), spans + keywords)


def functions(module: Module) -> Iterator[Case]:
    """A function of the module; its definition was renamed."""
    for node in module.tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.decorator_list:
            continue
        bound = [t for t in module.tables() if _binds(t, node.name)]
        spans = names(module, node.name)
        stores = sum(1 for n in ast.walk(module.tree) if getattr(n, "name", None) == node.name)
        if len(bound) != 1 or stores != 1 or not spans:
            continue
        word = "class " if isinstance(node, ast.ClassDef) else "def "
        start = module.at(node.lineno, node.col_offset) + len(word)
        exported = [
            (module.span(c)[0] + 1, module.span(c)[1] - 1)
            for n in module.tree.body
            if isinstance(n, ast.Assign)
            and isinstance(n.targets[0], ast.Name)
            and n.targets[0].id == "__all__"
            for c in ast.walk(n.value)
            if isinstance(c, ast.Constant) and c.value == node.name
        ]
        if module.text[start : start + len(node.name)] == node.name:
            first = (start, start + len(node.name))
            yield _renamed(module, "rename function", first, spans + exported)


def attributes(module: Module) -> Iterator[Case]:
    """An attribute that is only ever used on `self` in one class."""
    classes = [n for n in module.tree.body if isinstance(n, ast.ClassDef)]
    places: dict[str, list[tuple[ast.ClassDef | None, ast.Attribute]]] = defaultdict(list)
    inside = {id(a): c for c in classes for a in ast.walk(c)}
    for n in ast.walk(module.tree):
        if isinstance(n, ast.Attribute):
            places[n.attr].append((inside.get(id(n)), n))
    defined = {getattr(n, "name", None) for n in ast.walk(module.tree)}
    for word, found in places.items():
        owners = {id(c) for c, _ in found}
        on_self = all(isinstance(a.value, ast.Name) and a.value.id == "self" for _, a in found)
        stored = sorted(
            (a.end_lineno or 0, a.end_col_offset or 0)
            for _, a in found
            if isinstance(a.ctx, ast.Store)
        )
        if len(owners) > 1 or not on_self or not stored or len(found) < 3 or word in defined:
            continue
        spans = [(module.span(a)[1] - len(word), module.span(a)[1]) for _, a in found]
        end = module.at(*stored[0])
        first = (end - len(word), end)
        yield _renamed(module, "rename attribute", first, [s for s in spans if s != first])


def methods(module: Module) -> Iterator[Case]:
    """A method; uses on `self` in its class are right, nothing else counts as right."""
    everything = [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef)]
    for owner in (n for n in module.tree.body if isinstance(n, ast.ClassDef)):
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
                continue
            if sum(1 for n in everything if n.name == node.name) > 1 or node.decorator_list:
                continue
            spans = [
                (module.span(n)[1] - len(node.name), module.span(n)[1])
                for n in ast.walk(owner)
                if isinstance(n, ast.Attribute)
                and n.attr == node.name
                and isinstance(n.value, ast.Name)
                and n.value.id == "self"
            ]
            start = module.at(node.lineno, node.col_offset) + 4
            if spans and module.text[start : start + len(node.name)] == node.name:
                yield _renamed(module, "rename method", (start, start + len(node.name)), spans)


def _calls(module: Module) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = defaultdict(list)
    for n in ast.walk(module.tree):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name | ast.Attribute):
            starred = any(isinstance(a, ast.Starred) for a in n.args)
            if not starred and all(k.arg for k in n.keywords):
                found[ast.unparse(n.func)].append(n)
    return {name: sorted(c, key=lambda n: (n.lineno, n.col_offset)) for name, c in found.items()}


def _added(module: Module, call: ast.Call, argument: str) -> Change | None:
    """The argument put last; None where a generator or comma stands in the way."""
    last = [*call.args, *(k.value for k in call.keywords)]
    end = module.span(call)[1] - 1
    if not last:
        return (end, end, argument)
    at = max(module.span(a)[1] for a in last)
    between = module.text[at:end]
    if between.strip() or isinstance(last[-1], ast.GeneratorExp):
        return None
    return (at, at, f", {argument}")


def repeats(module: Module) -> Iterator[Case]:
    """The first two calls of a function got an argument, or another name."""
    for name, calls in _calls(module).items():
        edits = [e for c in calls if (e := _added(module, c, "checked=True")) is not None]
        if len(calls) >= 4 and len(edits) == len(calls):
            yield module.case("repeat argument", edits[:2], edits[2:])
        spans = [
            (module.span(c.func)[1] - len(name.rsplit(".", 1)[-1]), module.span(c.func)[1])
            for c in calls
        ]
        if "." in name and len(calls) >= 4 and not name.startswith("self."):
            changes = [(a, b, FRESH) for a, b in spans]
            yield module.case("repeat call name", changes[:2], changes[2:])


def signatures(module: Module) -> Iterator[Case]:
    """A function got a required parameter and its first call an argument, or lost one."""
    calls = _calls(module)
    for node in module.tree.body:
        if not isinstance(node, ast.FunctionDef) or node.args.vararg or node.args.kwarg:
            continue
        of = calls.get(node.name, [])
        if len(names(module, node.name)) != len(of) or len(of) < 2 or not node.args.args:
            continue
        last = node.args.args[-1]
        if node.args.kwonlyargs or node.args.posonlyargs or last.annotation:
            continue
        end = module.span(last)[1]
        edits = [e for c in of if (e := _added(module, c, "None")) is not None]
        same = all(len(c.args) == len(node.args.args) and not c.keywords for c in of)
        if not node.args.defaults and same and len(edits) == len(of):
            new = (end, end, ", extra")
            yield module.case("signature added", [new, edits[0]], edits[1:])
        if not node.args.defaults and same and len(node.args.args) > 1:
            before = module.span(node.args.args[-2])[1]
            gone = [(module.span(c.args[-2])[1], module.span(c.args[-1])[1], "") for c in of]
            yield module.case("signature removed", [(before, end, "")], gone)


def nothing(module: Module) -> Iterator[Case]:
    """Edits that nothing follows from."""
    functions = [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef)]
    for node in functions:
        uses = [
            n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        ]
        stored = sorted(
            {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            & {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_store(n)}
        )
        for use in uses[:1]:
            other = [w for w in stored if w != use.id]
            if use.id in stored and other:
                yield module.case("none: other variable", [(*module.span(use), other[0])], [])
        body = node.body[-1]
        at = module.at(body.lineno, 0)
        line = " " * body.col_offset + "result = compute(value)\n"
        if body.lineno > node.lineno:
            yield module.case("none: new line", [(at, at, line)], [])
            end = module.at((body.end_lineno or 0), 0) + len(
                module.lines[(body.end_lineno or 1) - 1]
            )
            yield module.case("none: deleted lines", [(at, min(end + 1, len(module.text)), "")], [])
        for kind, value in (("text", str), ("number", int)):
            constants = [
                n
                for n in ast.walk(node)
                if isinstance(n, ast.Constant)
                and type(n.value) is value
                and n.lineno == n.end_lineno
            ]
            if len(constants) > 1:
                new = '"other text"' if value is str else "77"
                yield module.case(f"none: one {kind}", [(*module.span(constants[1]), new)], [])
    yield from undone(module)


def undone(module: Module) -> Iterator[Case]:
    for case in functions(module):
        yield Case("none: undone rename", case.path, case.text, case.done, (), undone=True)


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _binds(table: symtable.SymbolTable, word: str) -> bool:
    if word not in table.get_identifiers():
        return False
    symbol = table.lookup(word)
    return symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported()


def _renamed(
    module: Module, kind: str, first: tuple[int, int], rest: list[tuple[int, int]]
) -> Case:
    return module.case(kind, [(*first, FRESH)], [(*s, FRESH) for s in rest])


MAKERS: tuple[Callable[[Module], Iterator[Case]], ...] = (
    locals_,
    functions,
    attributes,
    methods,
    repeats,
    signatures,
    nothing,
)


def cases(modules: list[Module], per_kind: int, seed: int) -> list[Case]:
    """Up to so many cases of each kind, at most two of a kind from one file."""
    chosen: dict[str, list[Case]] = defaultdict(list)
    pick = random.Random(seed)
    for module in modules:
        by_kind: dict[str, list[Case]] = defaultdict(list)
        for make in MAKERS:
            for case in make(module):
                by_kind[case.kind].append(case)
        for kind, found in by_kind.items():
            chosen[kind] += pick.sample(found, min(2, len(found)))
    return [c for kind in sorted(chosen) for c in _some(chosen[kind], per_kind, pick)]


def _some(made: list[Case], count: int, pick: random.Random) -> list[Case]:
    return pick.sample(made, min(count, len(made)))
