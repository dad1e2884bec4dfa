"""The house: which room may import which, listed once; no circles, nothing upwards.

A room is a folder of a package, or a few modules at its top (`AT_THE_TOP`). Imports inside
functions and for types alone count as well: they are what hides a circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "clover_engine": "engine", "clover_patcher": "patcher", "clover_lsp": "lsp",
    "clover_code": "cli",
}  # fmt: skip
MOST_ARGUMENTS = 7

AT_THE_TOP = {
    "clover_engine": "engine.load",
    "clover_engine.loading": "engine.load",
    **dict.fromkeys(
        (f"clover_engine.{n}" for n in
         ("api", "errors", "folders", "gate", "generation", "languages", "line_ends",
          "validation")), "engine.api",
    ),
    **dict.fromkeys(
        (f"clover_patcher.{n}" for n in
         ("edits", "errors", "progress", "request", "stopping", "types")), "patcher.types",
    ),
    **dict.fromkeys(
        (f"clover_patcher.propose.{n}" for n in ("pool", "questions", "source")), "patcher.source",
    ),
    "clover_patcher": "patcher.fix",
    "clover_patcher.checking": "patcher.fix",
    "clover_patcher.fix": "patcher.fix",
    "clover_patcher.ending": "patcher.fix",
    **dict.fromkeys(
        (f"clover_code.{n}" for n in
         ("context_output", "desk", "engine_option", "errors", "fix_output", "places")), "cli.desk",
    ),
    "clover_lsp": "lsp.server",
    "clover_lsp.server": "lsp.server",
    "clover_lsp.session": "lsp.session",
    "clover_lsp.stats": "lsp.status",
    "clover_lsp.status": "lsp.status",
}  # fmt: skip
"""Modules that are in no folder, or above the rest of theirs: the rooms they form. `cli` is one."""

ROOMS: dict[str, str] = {
    # engine: the door that everyone may use, and what needs no torch
    "engine.api": "",
    "engine.text": "engine.api",
    "engine.privacy": "engine.api",
    "engine.clients": "engine.api engine.text",
    "engine.testing": "engine.api",
    # engine: the network, from its equations to a process of its own
    "engine.model": "engine.api",
    "engine.capacity": "engine.api engine.model",
    "engine.checkpoint": "engine.api engine.model",
    "engine.cpu": "engine.api engine.model engine.checkpoint",
    "engine.decode": "engine.api engine.model engine.text",
    "engine.statistics": "engine.api engine.text",
    "engine.inprocess": (
        "engine.api engine.model engine.text engine.checkpoint engine.cpu engine.decode"
    ),
    "engine.worker": "engine.api engine.checkpoint engine.inprocess engine.testing",
    "engine.serving": "engine.api engine.model engine.checkpoint engine.capacity engine.decode",
    "engine.choice": "engine.api engine.privacy engine.checkpoint engine.clients engine.worker",
    "engine.load": "engine.api engine.checkpoint engine.clients engine.inprocess engine.worker",
    # nobody imports training
    "engine.train": "engine.api engine.model engine.text engine.checkpoint",
    # patcher: the order of a fix
    "patcher.types": "engine.api",
    "patcher.repository": "patcher.types",
    "patcher.check": "engine.privacy patcher.types patcher.repository patcher.check.fork",
    "patcher.check.fork": "",
    "patcher.task": "engine.api patcher.types patcher.repository patcher.check",
    "patcher.locate": (
        "engine.api engine.statistics patcher.types patcher.repository patcher.check patcher.task"
    ),
    "patcher.propose": "engine.api patcher.types patcher.locate",
    "patcher.propose.rules": "patcher.propose",
    "patcher.source": (
        "engine.api patcher.types patcher.locate patcher.propose patcher.propose.rules"
    ),
    "patcher.propose.rewrite": (
        "engine.api engine.privacy patcher.types patcher.locate patcher.propose"
    ),
    "patcher.instruct": (
        "engine.api patcher.types patcher.repository patcher.locate patcher.propose.rewrite"
    ),
    "patcher.validate": (
        "patcher.types patcher.repository patcher.check patcher.task patcher.locate "
        "patcher.propose patcher.report"
    ),
    "patcher.deliver": "patcher.types patcher.repository",
    "patcher.agent": (
        "engine.api patcher.types patcher.repository patcher.check patcher.task patcher.locate "
        "patcher.propose.rewrite patcher.validate patcher.deliver patcher.instruct"
    ),
    "patcher.report": "patcher.types patcher.repository patcher.propose patcher.deliver",
    "patcher.fix": (
        "engine.api patcher.types patcher.repository patcher.check patcher.task patcher.locate "
        "patcher.propose patcher.source patcher.propose.rewrite patcher.validate patcher.deliver "
        "patcher.report"
    ),
    # lsp: a keystroke's way
    "lsp.status": "",
    "lsp.settings": "engine.api engine.choice engine.clients",
    "lsp.context": ("engine.api engine.privacy patcher.types patcher.repository"),
    "lsp.documents": "engine.api engine.privacy lsp.context",
    "lsp.isolated": "engine.api",
    "lsp.connection": "engine.api lsp.isolated",
    "lsp.suggest": "engine.api lsp.context",
    "lsp.completion": (
        "engine.api engine.choice lsp.status lsp.connection lsp.context lsp.documents "
        "lsp.settings lsp.suggest"
    ),
    "lsp.session": "lsp.connection lsp.server",
    "lsp.server": (
        "engine.choice lsp.status lsp.connection lsp.context lsp.documents lsp.settings "
        "lsp.completion"
    ),
    "lsp.actions": (
        "engine.api engine.privacy patcher.types patcher.repository patcher.source patcher.fix "
        "patcher.instruct lsp.isolated lsp.context lsp.documents"
    ),
    "lsp.features": (
        "engine.api engine.choice engine.checkpoint lsp.status lsp.connection lsp.context "
        "lsp.documents lsp.isolated lsp.settings lsp.suggest lsp.completion lsp.actions lsp.server"
    ),
    # cli: arguments and printing, over everything; a room for each protocol that it speaks
    "cli.gateway": (
        "engine.api engine.privacy engine.clients lsp.context lsp.settings lsp.suggest "
        "lsp.completion"
    ),
    "cli.desk": (
        "engine.api engine.choice engine.clients engine.privacy engine.worker lsp.context "
        "lsp.actions patcher.types patcher.fix patcher.repository patcher.deliver "
        "patcher.instruct patcher.agent"
    ),
    "cli.mcp": "cli.desk engine.api patcher.types patcher.repository",
    "cli.acp": (
        "cli.desk engine.api engine.privacy patcher.types patcher.repository patcher.deliver "
        "patcher.instruct patcher.agent"
    ),
    "cli": (
        "cli.desk cli.gateway cli.mcp cli.acp "
        "engine.api engine.capacity engine.checkpoint engine.choice engine.serving "
        "engine.privacy engine.worker patcher.types patcher.fix patcher.repository patcher.deliver "
        "patcher.instruct patcher.agent "
        "lsp.context lsp.session lsp.status"
    ),
}
"""Room → the rooms it may import, each below it."""

COMPILED = (
    "torch.ops.", "types.", "panel_product", "_tile_", "rotated_heads", "attend", "_write_",
    "_panels_", "grouped_", "add_product", "refine",
)  # fmt: skip
"""Compiled kernels, whose arguments are registers: they may have more than `MOST_ARGUMENTS`."""
WORDS = "repository.run"
"""Takes the words of a git command."""


@cache
def modules() -> Mapping[str, Path]:
    """Every module's name and file."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Module → the modules of ours that it imports, also inside functions."""
    found = {}
    for module, path in modules().items():
        names = set(_imported(ast.parse(path.read_text("utf-8"))))
        found[module] = frozenset(name for name in names if name != module)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    known = modules()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in whole]
        yield from (name for name in names if name in known)


def _all_imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def room(module: str) -> str:
    """The room that a module is in: the longest name in `ROOMS` that begins its own."""
    if module in AT_THE_TOP:
        return AT_THE_TOP[module]
    package, _, rest = module.partition(".")
    parts = [FOLDERS[package], *rest.split(".")] if rest else [FOLDERS[package]]
    for count in range(len(parts), 0, -1):
        if (name := ".".join(parts[:count])) in ROOMS:
            return name
    raise AssertionError(f"{module} is in no room; name its room in ROOMS or AT_THE_TOP")


def arrows() -> dict[tuple[str, str], list[str]]:
    """The arrows between rooms that there are, and the imports that each is made of."""
    found: dict[tuple[str, str], list[str]] = {}
    for module, names in imports().items():
        for name in sorted(names):
            if (here := room(module)) != (there := room(name)):
                found.setdefault((here, there), []).append(f"{module} imports {name}")
    return found


@pytest.mark.parametrize("package", FOLDERS)
def test_rooms_import_only_what_the_table_allows(package: str) -> None:
    wrong = [
        line
        for (here, there), lines in arrows().items()
        if here.split(".")[0] == FOLDERS[package]
        if there not in ROOMS[here].split()
        for line in lines
    ]
    assert not wrong, f"not in ROOMS of {Path(__file__).name}"


def test_actions_know_nothing_of_the_protocol() -> None:
    """Its types are made into ours, and ours into its, in `features/`."""
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if room(module) == "lsp.actions"
        for name in _all_imported(ast.parse(path.read_text("utf-8")))
        if name.split(".")[0] in ("lsprotocol", "pygls")
    ]
    assert not wrong


def test_no_room_is_above_itself() -> None:
    """The table can be drawn with all arrows downwards."""
    height: dict[str, int] = {}

    def measure(name: str, above: tuple[str, ...] = ()) -> int:
        assert name not in above, " → ".join((*above, name))
        if name not in height:
            below = [measure(other, (*above, name)) for other in ROOMS[name].split()]
            height[name] = 1 + max(below, default=0)
        return height[name]

    for name in ROOMS:
        measure(name)


def test_the_table_allows_nothing_that_nobody_needs() -> None:
    needed = arrows()
    allowed = {(here, there) for here, names in ROOMS.items() for there in names.split()}
    assert not [pair for pair in allowed if pair not in needed]


def test_modules_do_not_import_each_other_in_circles() -> None:
    assert not list(circles(imports()))


def circles(graph: Mapping[str, frozenset[str]]) -> Iterator[list[str]]:
    """Groups of modules each of which leads to all others (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                yield from visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                yield group

    for node in graph:
        if node not in number:
            yield from visit(node)


def test_circles_are_found() -> None:
    graph = {"a": "b", "b": "c", "c": "ad", "d": "e", "e": "d", "f": "a"}
    found = circles({name: frozenset(others) for name, others in graph.items()})
    assert {frozenset(group) for group in found} == {frozenset("abc"), frozenset("de")}


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_no_call_has_more_than_seven_positional_arguments(folder: str) -> None:
    """More are for groups: a frozen dataclass or a named tuple, or keywords."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > MOST_ARGUMENTS:
                name = ast.unparse(node.func)
                if not name.startswith(COMPILED) and name != WORDS:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not found
