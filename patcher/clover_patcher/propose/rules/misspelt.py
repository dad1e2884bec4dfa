"""Names that the failure says do not exist, corrected to ones that do; missing imports."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import cache

from tree_sitter import Node

from clover_patcher.propose.clues import Unknown
from clover_patcher.propose.forms import literal
from clover_patcher.propose.names import identifier_role
from clover_patcher.propose.syntax import load_source, walk
from clover_patcher.propose.templates import (
    Change,
    Proposal,
    Site,
    change,
    expression_rule,
    statement_rule,
)

_CUTOFF = 0.6
_MOST = 6
_BUILTINS = tuple(name for name in dir(builtins) if not name.startswith("_"))
_FROM = {
    "collections": "Counter defaultdict deque OrderedDict namedtuple ChainMap",
    "collections.abc": "Callable Iterable Iterator Mapping MutableMapping Sequence",
    "contextlib": "contextmanager suppress ExitStack closing redirect_stdout",
    "copy": "deepcopy",
    "dataclasses": "dataclass field asdict replace",
    "datetime": "datetime timedelta date timezone",
    "decimal": "Decimal",
    "enum": "Enum IntEnum Flag auto",
    "fractions": "Fraction",
    "functools": "partial reduce wraps lru_cache cached_property cache total_ordering",
    "io": "StringIO BytesIO",
    "itertools": "chain product permutations combinations groupby islice accumulate repeat "
    "zip_longest starmap",
    "math": "sqrt ceil floor gcd log pi inf isclose prod",
    "operator": "itemgetter attrgetter",
    "pathlib": "Path PurePath PurePosixPath",
    "abc": "ABC abstractmethod",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation",
    "textwrap": "dedent indent",
    "types": "SimpleNamespace MappingProxyType",
    "typing": "Any Optional Union List Dict Tuple Set NamedTuple TypeVar Generic Protocol cast",
    "urllib.parse": "urljoin urlparse quote unquote urlencode urlsplit",
    "uuid": "uuid4",
}
"""Where names come from that are used without their module."""


@expression_rule("identifier")
def misspelt(node: Node, site: Site) -> Iterator[Change]:
    """Another name, attribute, keyword or module for one that does not exist."""
    text = site.text(node)
    unknown = site.clues.unknown.get(text)
    role = _role(node)
    if unknown is None:
        yield from _defined_otherwise(node, text, role, site)
        return
    if not _fits(unknown, role):
        return
    if role == "name" and text in site.scope.own:
        yield change(node, f"self.{text}", "misspelt", 1.5)
    for index, name in enumerate(_likely(unknown, _known(unknown, role, site))):
        yield change(node, name, "misspelt", 1.0 / (1 + index))


@expression_rule("string")
def misspelt_key(node: Node, site: Site) -> Iterator[Change]:
    """Another string of the file for a key that is missing."""
    text = literal(site.source, node)
    unknown = site.clues.unknown.get(text) if text else None
    if unknown is None or unknown.what != "key":
        return
    quote = site.text(node)[-1]
    others = [s[1:-1] for s in site.scope.strings if s[0] in "\"'"]
    for index, name in enumerate(_likely(unknown, others)):
        yield change(node, f"{quote}{name}{quote}", "misspelt", 0.5 / (1 + index))


def _role(node: Node) -> str:
    """What the identifier is a name of."""
    parent = node.parent
    if parent is not None and parent.type == "dotted_name":
        above = parent.parent
        if above is not None and above.type == "aliased_import":
            parent, above = above, above.parent
        named = above is not None and parent in above.children_by_field_name("name")
        if above is None or above.type != "import_from_statement":
            return "module"
        return "import" if named else "module"
    if parent is not None and parent.type in ("function_definition", "class_definition"):
        return "definition"
    role = identifier_role(node)
    return {"function": "name", "value": "name"}.get(role, role)


def _fits(unknown: Unknown, role: str) -> bool:
    wanted = {"module": ("module", "name"), "import": ("import",)}.get(
        unknown.what, (unknown.what,)
    )
    return role in wanted


def _known(unknown: Unknown, role: str, site: Site) -> list[str]:
    """Names that exist where this one does not."""
    scope = site.scope
    if unknown.what == "name":
        own = [f"self.{name}" for name in scope.own]
        words = ("True", "False", "None")
        return [*scope.names, *scope.functions, *own, *scope.keywords, *_BUILTINS, *words]
    if unknown.what == "keyword":
        parameters = [name for s in scope.signatures for name in s.parameters]
        return [*scope.keywords, *parameters, *scope.local]
    if unknown.what == "module":
        return sorted(sys.stdlib_module_names)
    found = list(_attributes(unknown.owner))
    if unknown.what == "attribute" or not found:
        found += [*scope.own, *scope.methods, *scope.attributes, *scope.functions]
    return found


def _likely(unknown: Unknown, known: Iterable[str]) -> list[str]:
    """Names alike, most alike first; those that Python suggests before all others."""
    bare: dict[str, str] = {}
    for name in known:
        last = name.rsplit(".", 1)[-1]
        if last != unknown.name:
            bare.setdefault(last, name)
    close = difflib.get_close_matches(unknown.name, bare, _MOST, _CUTOFF)
    close += [n for n in bare if n.lower() == unknown.name.lower() and n not in close]
    meant = [bare.get(name, name) for name in unknown.meant]
    return list(dict.fromkeys([*meant, *(bare[name] for name in close)]))


def _defined_otherwise(node: Node, text: str, role: str, site: Site) -> Iterator[Change]:
    """A definition whose name is nearly the one that is looked for."""
    if role not in ("definition", "attribute", "target") or len(text) < 3:
        return
    if role == "attribute" and not _is_target(node):
        return
    wanted = [u.name for u in site.clues.unknown.values() if u.what in ("attribute", "import")]
    for name in difflib.get_close_matches(text, wanted, 1, 0.7):
        yield change(node, name, "misspelt", 0.5)


def _is_target(node: Node) -> bool:
    owner = node.parent
    above = owner.parent if owner is not None else None
    return above is not None and above.type == "assignment" and owner in above.children[:1]


@cache
def _attributes(owner: str) -> tuple[str, ...]:
    """What a built-in type or a module of the standard library has."""
    thing = getattr(builtins, owner, None) if owner != "NoneType" else None
    if thing is None and owner in sys.stdlib_module_names | {"os.path"}:
        thing = sys.modules.get(owner)
        if thing is None:
            return _top_names(owner)
    if thing is None:
        return ()
    return tuple(name for name in dir(thing) if not name.startswith("__"))


def _top_names(module: str) -> tuple[str, ...]:
    """The functions and classes of a module's file, which is not run for that."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return ()
    with open(spec.origin, "rb") as file:
        source = load_source(spec.origin, file.read())
    names = (s.node.child_by_field_name("name") for s in source.statements) if source else ()
    return tuple(source.text(name) for name in names if source and name is not None)


# --- imports ----------------------------------------------------------------------------------


@statement_rule
def missing_import(site: Site) -> Iterator[Proposal]:
    """An import of what the line uses and nothing binds."""
    wanted = [u.name for u in site.clues.unknown.values() if u.what == "name"]
    if not wanted:
        return
    used = {site.text(n) for n in walk(site.statement.node) if n.type == "identifier"}
    for name in wanted:
        lines = list(_imports_of(name)) if name in used else []
        at = _after_imports(site)
        for index, line in enumerate(lines):
            new = f"{line}{site.source.eol_near(at)}"
            yield Proposal(at, at, new, "import", 1.0 / (1 + index), None, line)


def _imports_of(name: str) -> Iterator[str]:
    for module, names in _FROM.items():
        if name in names.split():
            yield f"from {module} import {name}"
    if name in sys.stdlib_module_names:
        yield f"import {name}"


def _after_imports(site: Site) -> int:
    """Where a new import may stand: before the first one that is no `__future__`, or after the
    module's docstring."""
    source = site.source
    for statement in source.statements:
        string = statement.kind == "expression_statement" and statement.node.named_children
        is_text = bool(string) and statement.node.named_children[0].type == "string"
        if statement.kind != "future_import_statement" and not is_text:
            return source.line_start(statement.first_line)
    return len(source.code)
