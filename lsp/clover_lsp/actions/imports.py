"""The import that an undefined Python name lacks, for the standard library."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from clover_lsp.actions.names import Names
from clover_lsp.actions.scopes import Occurrence
from clover_lsp.context.types import Edit

_FROM = {
    "abc": "ABC abstractmethod",
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "collections.abc": "Callable Iterable Iterator Mapping Sequence",
    "contextlib": "contextmanager nullcontext suppress",
    "copy": "deepcopy",
    "dataclasses": "dataclass",
    "datetime": "timedelta timezone",
    "decimal": "Decimal",
    "enum": "Enum IntEnum",
    "fractions": "Fraction",
    "functools": "cached_property lru_cache partial reduce wraps",
    "pathlib": "Path PurePath PurePosixPath",
    "textwrap": "dedent",
    "types": "ModuleType SimpleNamespace",
    "typing": "Any ClassVar Final Literal NamedTuple Optional Protocol TypeVar Union cast overload",
    "unittest.mock": "MagicMock",
}
"""Names that mean one thing wherever they stand."""
_HOME = {name: module for module, names in _FROM.items() for name in names.split()}
_AMBIGUOUS = frozenset({"this", "antigravity", "test", "code", "token", "types", "select", "time"})
"""Modules whose names are more often variables."""


def missing_imports(names: Names, text: str, place: Occurrence) -> Iterator[tuple[str, Edit]]:
    """(statement, edit) for each place in the file where the import could go, best first."""
    statement = _statement(text, place)
    if statement is None:
        return
    eol = "\r\n" if "\r\n" in text else "\n"
    for at, blank in dict.fromkeys(_places(names, text, statement)):
        before = eol if at == len(text) and text and not text.endswith("\n") else ""
        yield statement, Edit(at, at, before + statement + eol + (eol if blank else ""))


def _statement(text: str, place: Occurrence) -> str | None:
    word = place.name
    if home := _HOME.get(word):
        return f"from {home} import {word}"
    dotted = re.match(r"\s*\.\s*[A-Za-z_]", text[place.end :])
    known = word in sys.stdlib_module_names and not word.startswith("_")
    return f"import {word}" if known and dotted and word not in _AMBIGUOUS else None


def _places(names: Names, text: str, statement: str) -> Iterator[tuple[int, bool]]:
    """Offsets of line starts, and whether a blank line has to follow."""
    top = names.tree.root_node.named_children
    imports = [n for n in top if n.type in ("import_statement", "import_from_statement")]
    kind = statement.split()[0]
    for node in imports:
        line = names.text(node)
        if line.split()[0] == kind and line.split()[1] > statement.split()[1]:
            yield _line_start(text, names.char(node.start_byte)), False
            break
    if imports:
        same = [n for n in imports if names.text(n).split()[0] == kind]
        yield _after(text, names.char((same or imports)[-1].end_byte)), False
        yield _after(text, names.char(imports[-1].end_byte)), False
        return
    skipped = 0
    for node in top:
        text_of = node.type == "expression_statement" and node.named_children[0].type == "string"
        if node.type == "comment" or node.type == "future_import_statement" or text_of:
            skipped = _after(text, names.char(node.end_byte))
        else:
            break
    yield skipped, True


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _after(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end + 1
