"""Edits of names, attributes, calls and their arguments, subscripts and slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from clover_patcher.propose.names import identifier_role, is_expression
from clover_patcher.propose.rules.values import names_for
from clover_patcher.propose.templates import Change, Site, change, expression_rule

_FAMILIES = (
    ("min", "max"),
    ("any", "all"),
    ("sum", "len", "max", "min", "any", "all"),
    ("sorted", "list", "set", "tuple", "reversed"),
    ("int", "float", "str", "bool", "round"),
    ("str", "repr"),
    ("isinstance", "issubclass"),
    ("getattr", "hasattr", "setattr"),
    ("list", "dict", "set", "tuple", "frozenset"),
    ("range", "enumerate", "reversed", "len"),
)
_ATTRIBUTE_FAMILIES = (
    ("append", "extend", "insert", "add", "appendleft"),
    ("pop", "popleft", "remove", "discard"),
    ("add", "update", "discard", "remove"),
    ("keys", "values", "items"),
    ("get", "pop", "setdefault"),
    ("lower", "upper", "title", "casefold"),
    ("strip", "lstrip", "rstrip"),
    ("startswith", "endswith"),
    ("find", "rfind", "index", "rindex"),
    ("split", "rsplit", "splitlines", "partition", "rpartition"),
    ("read", "readline", "readlines"),
    ("encode", "decode"),
    ("union", "intersection", "difference", "symmetric_difference"),
    ("issubset", "issuperset"),
)
_METHODS = (
    "append", "get", "join", "split", "items", "keys", "values", "strip", "add", "pop", "format",
    "extend", "update", "replace", "startswith", "endswith", "lower", "upper", "copy", "index",
    "insert", "remove", "sort", "count", "find", "group", "match", "read", "write", "close",
)  # fmt: skip
_TYPES = ("str", "dict", "list", "tuple", "int", "float", "set", "bool", "bytes")
_BUILTINS = (
    "len", "isinstance", "sum", "type", "sorted", "range", "enumerate", "zip", "min", "max",
    "any", "all", "abs", "int", "str", "list", "set", "dict", "tuple", "print", "iter", "next",
    "map", "getattr", "hasattr", "super", "repr", "float", "bool", "reversed",
)  # fmt: skip


@expression_rule("identifier")
def identifier(node: Node, site: Site) -> Iterator[Change]:
    """Another name in scope, an attribute of `self`, or a function of the same family."""
    role, text = identifier_role(node), site.text(node)
    if role == "function":
        yield from _other_function(node, text, site)
    elif role == "target":
        for index, name in enumerate(n for n in site.scope.local[:12] if n != text):
            yield change(node, name, "target", 1.0 / (1 + index))
    elif role == "keyword":
        for index, name in enumerate(n for n in site.scope.keywords[:16] if n != text):
            yield change(node, name, "keyword", 1.0 / (1 + index))
    elif role == "value":
        local = text in site.scope.local
        for name, weight in _other_names(text, local, site):
            yield change(node, name, "name", weight)
        if text in site.scope.own and text != "self":
            yield change(node, f"self.{text}", "name", 2.0)
        for constant in ("None", "0", "1", "True", "False"):
            yield change(node, constant, "name", 0.05)


def _other_names(text: str, local: bool, site: Site) -> Iterator[tuple[str, float]]:
    for index, name in enumerate(n for n in site.scope.local[:24] if n != text):
        likely = (1.0 if local else 0.3) * (3.0 if name in site.scope.unused else 1.0)
        yield name, likely * _likeness(name, text) / (3 + index)
    for index, name in enumerate(n for n in site.scope.module[:24] if n != text):
        yield name, (0.15 if local else 0.7) * _likeness(name, text) / (3 + index)


def _likeness(name: str, text: str) -> float:
    """Names that look alike are confused more often."""
    common = len(set(name.lower().split("_")) & set(text.lower().split("_")))
    prefix = name[:3] == text[:3] and len(name) > 2
    return 1.0 + common + prefix


def _other_function(node: Node, text: str, site: Site) -> Iterator[Change]:
    seen = {text}
    for family in _FAMILIES:
        for name in family if text in family else ():
            if name not in seen:
                seen.add(name)
                yield change(node, name, "function", 1.5)
    for index, name in enumerate(n for n in site.scope.functions[:20] if n not in seen):
        yield change(node, name, "function", _likeness(name, text) / (2 + index))
    for index, name in enumerate(site.scope.local[:8]):
        yield change(node, name, "function", 0.2 / (2 + index))
    for name in _BUILTINS:
        yield change(node, name, "function", 0.03)
    if text in site.scope.own:
        yield change(node, f"self.{text}", "function", 2.0)


@expression_rule("attribute")
def attribute(node: Node, site: Site) -> Iterator[Change]:
    """Another attribute, its owner alone, or the same attribute's plain name."""
    name = node.child_by_field_name("attribute")
    thing = node.child_by_field_name("object")
    if name is None or thing is None:
        return
    text = site.text(name)
    called = node.parent is not None and node.parent.child_by_field_name("function") == node
    seen = {text}
    for family in _ATTRIBUTE_FAMILIES if called else ():
        for other in family if text in family else ():
            if other not in seen:
                seen.add(other)
                yield change(name, other, "attribute", 1.0)
    if site.text(thing) == "self":
        pool: Sequence[str] = site.scope.own
        if text in site.scope.local or text in site.scope.module:
            yield change(node, text, "attribute", 1.0)
    else:
        pool = site.scope.methods if called else site.scope.attributes
    for index, other in enumerate(n for n in pool[:40] if n not in seen):
        yield change(name, other, "attribute", _likeness(other, text) / (2 + index))
    for index, other in enumerate(_METHODS if called else ()):
        if other not in seen:
            yield change(name, other, "attribute", 0.4 / (2 + index))
    if is_expression(node):
        yield change(node, site.text(thing), "unwrap", 0.5)


@expression_rule("call")
def call(node: Node, site: Site) -> Iterator[Change]:
    """The call's wrapper or its parentheses removed; arguments changed."""
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    if arguments.type == "generator_expression":
        yield change(node, f"[{site.text(arguments)[1:-1]}]", "unwrap", 0.3)
        return
    items = [c for c in arguments.named_children if c.type != "comment"]
    if site.statement.node.type != "expression_statement" or node.parent != site.statement.node:
        for index, item in enumerate(items):
            if item.type not in ("keyword_argument", "dictionary_splat", "list_splat"):
                yield change(node, site.text(item), "unwrap", 1.5 / (1 + index))
        yield change(node, site.text(function), "unwrap", 0.3)
        if function.type == "attribute" and (owner := function.child_by_field_name("object")):
            yield change(node, site.text(owner), "unwrap", 0.7)
    yield from _arguments(arguments, items, site)
    if site.text(function).endswith(".get") and 1 <= len(items) <= 2:
        owner = function.child_by_field_name("object")
        if owner is not None:
            yield change(node, f"{site.text(owner)}[{site.text(items[0])}]", "unwrap", 0.5)
    if site.text(function) == "range":
        yield from _range(arguments, items, site)
    if site.text(function) in ("isinstance", "issubclass") and len(items) == 1:
        yield from _classes(items[0], site)


def _arguments(arguments: Node, items: list[Node], site: Site) -> Iterator[Change]:
    """Arguments deleted, exchanged, repeated, added."""
    for index, item in enumerate(items):
        if index:
            yield Change(items[index - 1].end_byte, item.end_byte, "", "argument", 1.0)
        else:
            end = items[1].start_byte if len(items) > 1 else item.end_byte
            yield Change(item.start_byte, end, "", "argument", 1.0)
        for name, weight in _extra_values(site):
            if item.type not in ("identifier", "keyword_argument", "generator_expression"):
                yield change(item, name, "argument", 0.3 * weight)
    for i, first in enumerate(items):
        for second in items[i + 1 :]:
            middle = site.source.slice(first.end_byte, second.start_byte)
            new = site.text(second) + middle + site.text(first)
            yield Change(first.start_byte, second.end_byte, new, "swap", 2.0)
    yield from _added_arguments(arguments, items, site)


def _added_arguments(arguments: Node, items: list[Node], site: Site) -> Iterator[Change]:
    start, end = arguments.start_byte + 1, arguments.end_byte - 1
    if len(items) > 5:
        return
    for name, weight in _extra_values(site):
        if not items:
            yield Change(start, end, name, "argument", weight)
            continue
        yield Change(items[-1].end_byte, items[-1].end_byte, f", {name}", "argument", weight)
        for item in items:
            yield Change(item.start_byte, item.start_byte, f"{name}, ", "argument", weight / 2)
    for index, keyword in enumerate(site.scope.keywords[:4]):
        for value in ("True", "False", "None", keyword):
            glue = ", " if items else ""
            at = items[-1].end_byte if items else start
            yield Change(at, at, f"{glue}{keyword}={value}", "keyword", 0.5 / (1 + index))


def _extra_values(site: Site) -> Iterator[tuple[str, float]]:
    for index, name in enumerate(site.scope.local[:12]):
        yield name, 1.0 / (2 + index)
    yield from (("0", 0.2), ("1", 0.2), ("None", 0.1), ("True", 0.1), ("-1", 0.1))
    for index, text in enumerate((*site.scope.strings[:8], *site.scope.integers[:2])):
        yield text, 0.3 / (2 + index)
    for index, text in enumerate(site.scope.module[:6]):
        yield text, 0.2 / (2 + index)


def _classes(value: Node, site: Site) -> Iterator[Change]:
    """What a value may be an instance of."""
    own = [name for name in site.scope.functions if name[0].isupper()]
    for kind in (*_TYPES, *own[:6]):
        yield Change(value.end_byte, value.end_byte, f", {kind}", "argument", 0.5)


def _range(arguments: Node, items: list[Node], site: Site) -> Iterator[Change]:
    """The usual slips with the ends and the direction of a range."""
    texts = [site.text(item) for item in items]
    if any("\n" in text for text in texts):
        return
    if len(texts) == 1:
        (stop,) = texts
        options = [f"1, {stop}", f"1, {stop} + 1", f"{stop} - 1, -1, -1", f"0, {stop}, 2"]
    elif len(texts) == 2:
        start, stop = texts
        options = [f"{start}, {stop} + 1", f"{start} + 1, {stop} + 1", f"{start}, {stop}, -1"]
        options += [f"{stop} - 1, {start} - 1, -1", f"{stop}, {start}, -1"]
    else:
        return
    for option in options:
        yield change(arguments, f"({option})", "argument", 0.6)


@expression_rule("keyword_argument")
def keyword_argument(node: Node, site: Site) -> Iterator[Change]:
    value = node.child_by_field_name("value")
    if value is not None:
        yield change(node, site.text(value), "keyword", 0.3)


@expression_rule("subscript")
def subscript(node: Node, site: Site) -> Iterator[Change]:
    """The index moved by one, a slice for an index, the subscript removed, indices exchanged."""
    value = node.child_by_field_name("value")
    indices = node.children_by_field_name("subscript")
    for first, second in zip(indices, indices[1:], strict=False):
        middle = site.source.slice(first.end_byte, second.start_byte)
        new = site.text(second) + middle + site.text(first)
        yield Change(first.start_byte, second.end_byte, new, "index", 2.0)
    if value is None or len(indices) != 1:
        return
    index = indices[0]
    text = site.text(index)
    if is_expression(node):
        yield change(node, site.text(value), "index", 1.0)
    inner = value.children_by_field_name("subscript") if value.type == "subscript" else []
    if len(inner) == 1:
        middle = site.source.slice(inner[0].end_byte, index.start_byte)
        new = text + middle + site.text(inner[0])
        yield Change(inner[0].start_byte, index.end_byte, new, "index", 2.0)
    if index.type == "slice":
        yield from _slice(index, site)
        return
    if is_expression(node):
        for default in ("", ", None", ", 0", ", []"):
            new = f"{site.text(value)}.get({text}{default})"
            yield change(node, new, "index", 0.2)
    if index.type == "string":
        return
    for new, weight in ((f"{text} + 1", 1.5), (f"{text} - 1", 1.5), ("0", 0.5), ("-1", 0.5)):
        yield change(index, new, "index", weight)
    yield change(index, f"-{text}", "index", 0.3)
    for new in (f":{text}", f"{text}:", f"{text} + 1:", f"{text}:{text} + 1"):
        yield change(index, new, "slice", 0.3)
    yield from names_for(index, "index", site)


def _slice(node: Node, site: Site) -> Iterator[Change]:
    """Bounds removed, added or moved by one; steps."""
    bounds: list[str] = [""]
    for child in node.children:
        if child.type == ":":
            bounds.append("")
        else:
            bounds[-1] = site.text(child)
    low, high, *step = bounds
    values = [name for name in site.scope.local[:12]]
    lows = [f"{low} + 1", f"{low} - 1", ""] if low else ["1", "2", "-1", *values]
    highs = [f"{high} + 1", f"{high} - 1", ""] if high else ["-1", "1", *values, *_plus_one(values)]
    rest = f":{step[0]}" if step and step[0] else ""
    for index, new in enumerate(lows):
        yield change(node, f"{new}:{high}{rest}", "slice", 1.5 / (1 + index / 2))
    for index, new in enumerate(highs):
        yield change(node, f"{low}:{new}{rest}", "slice", 1.5 / (1 + index / 2))
    yield change(node, f"{high}:{low}{rest}", "slice", 0.5)
    yield change(node, f"{low}:{high}" if rest else f"{low}:{high}:-1", "slice", 0.3)
    if not rest:
        yield change(node, f"{low}:{high}:2", "slice", 0.2)


def _plus_one(names: Sequence[str]) -> list[str]:
    return [f"{name} + 1" for name in names[:4]]
