"""Edits of texts: prefixes and suffixes, splitting, joining, normal forms, and encodings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tree_sitter import Node

from clover_patcher.propose.clues import ENCODED
from clover_patcher.propose.forms import grouped, literal, method_call, plain_call, simple
from clover_patcher.propose.names import is_expression
from clover_patcher.propose.templates import Change, Site, change, expression_rule

_SET_OF_CHARACTERS = re.compile(r"[\s'\"`]*")
"""What `strip` is rightly given: blanks and quotes."""
_NAMED_AFFIX = re.compile(r"prefix|suffix|start|end|ext|head|tail|sep", re.IGNORECASE)
_MODES = re.compile(r"[rwax+]*b[rwax+]*")
_CODECS = ("utf-8", "utf-8-sig", "latin-1")


@expression_rule("call")
def affix(node: Node, site: Site) -> Iterator[Change]:
    """`lstrip("ab")` takes letters: the prefix itself is meant."""
    found = method_call(node, site.source)
    if found is None or not simple(node, site.source, 90):
        return
    owner, method, arguments = found
    if method not in ("lstrip", "rstrip", "strip") or len(arguments) != 1:
        return
    part, text = arguments[0], site.text(owner)
    if not _is_affix(part, site):
        return
    piece = site.text(part)
    modern = site.clues.python is None or site.clues.python >= (3, 9)
    if method != "rstrip":
        yield from _without_prefix(node, text, piece, site, modern=modern)
    if method != "lstrip":
        yield from _without_suffix(node, text, piece, site, modern=modern)
    if method == "strip" and modern:
        both = f"{text}.removeprefix({piece}).removesuffix({piece})"
        yield change(node, both, "affix", 2.0)


def _is_affix(part: Node, site: Site) -> bool:
    value = literal(site.source, part)
    if value is not None:
        return len(value) > 1 and _SET_OF_CHARACTERS.fullmatch(value) is None
    name = site.text(part)
    if part.type not in ("identifier", "attribute"):
        return False
    tested = any(f"with({name})" in text for _, text in site.scope.expressions)
    return tested or _NAMED_AFFIX.search(name) is not None


def _without_prefix(
    node: Node, text: str, piece: str, site: Site, *, modern: bool
) -> Iterator[Change]:
    cut = f"{text}[len({piece}):]"
    tested = f"{text}.startswith({piece})"
    if modern:
        yield change(node, f"{text}.removeprefix({piece})", "affix", 3.0)
    known = any(other == tested for _, other in site.scope.expressions)
    yield change(node, cut, "affix", 2.0 if known else 0.5)
    yield change(node, grouped(node, f"{cut} if {tested} else {text}"), "affix", 1.0)


def _without_suffix(
    node: Node, text: str, piece: str, site: Site, *, modern: bool
) -> Iterator[Change]:
    cut = f"{text}[:-len({piece})]"
    tested = f"{text}.endswith({piece})"
    if modern:
        yield change(node, f"{text}.removesuffix({piece})", "affix", 3.0)
    known = any(other == tested for _, other in site.scope.expressions)
    yield change(node, cut, "affix", 2.0 if known else 0.5)
    yield change(node, grouped(node, f"{cut} if {tested} else {text}"), "affix", 1.0)


@expression_rule("call")
def method_of_text(node: Node, site: Site) -> Iterator[Change]:
    """Only the first or last of several, blanks in general, and texts made of other values."""
    found = method_call(node, site.source)
    if found is None or not simple(node, site.source, 90):
        return
    owner, method, arguments = found
    text, pieces = site.text(owner), [site.text(argument) for argument in arguments]
    if method in ("split", "rsplit") and len(pieces) == 1:
        (separator,) = pieces
        for other in ("split", "rsplit"):
            yield change(node, f"{text}.{other}({separator}, 1)", "text", 1.0)
        if separator in ('" "', "' '"):
            yield change(node, f"{text}.{method}()", "text", 2.0)
    elif method == "replace" and len(pieces) == 2:
        yield change(node, f"{text}.replace({pieces[0]}, {pieces[1]}, 1)", "text", 0.7)
        value = literal(site.source, arguments[0])
        if pieces[1] in ('""', "''") and value and len(value) > 1:
            for name in ("removeprefix", "removesuffix"):
                yield change(node, f"{text}.{name}({pieces[0]})", "text", 0.7)
    elif method == "join" and len(pieces) == 1 and not pieces[0].startswith("map("):
        yield change(arguments[0], f"map(str, {pieces[0]})", "text", 1.5)
    elif method in ("title", "capitalize"):
        other = "capitalize" if method == "title" else "title"
        yield change(node, f"{text}.{other}()", "text", 0.5)


@expression_rule("binary_operator")
def joined(node: Node, site: Site) -> Iterator[Change]:
    """A text and something else, added."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None or operator is None or site.text(operator) != "+":
        return
    for side, other in ((right, left), (left, right)):
        if side.type in ("string", "binary_operator") or not simple(side, site.source):
            continue
        likely = 1.5 if other.type == "string" else 0.4
        yield change(side, f"str({site.text(side)})", "text", likely)
        if other.type != "string":
            for kind in ("int", "float", "list"):
                yield change(side, f"{kind}({site.text(side)})", "text", 0.3)


@expression_rule("identifier", "attribute", "subscript", "call")
def normal_form(node: Node, site: Site) -> Iterator[Change]:
    """A text without blanks around it, or in lower case, where it is compared or kept."""
    parent = node.parent
    if parent is None or not is_expression(node) or not simple(node, site.source):
        return
    compared = parent.type == "comparison_operator"
    kept = parent.type in ("assignment", "return_statement", "argument_list", "list_comprehension")
    looked_up = parent.type == "subscript" and parent.child_by_field_name("value") != node
    if not (compared or kept or looked_up):
        return
    text = site.text(node)
    spacing, casing = _differs_in(site.clues.text)
    for method, weight in (
        ("strip()", 4.0 if spacing else 0.3),
        ("lower()", 4.0 if casing else 0.3),
    ):
        if not text.endswith(f".{method}"):
            yield change(node, f"{text}.{method}", "text", weight * (1.5 if compared else 1.0))
    if spacing:
        for method in ("rstrip()", "lstrip()", 'rstrip("\\n")'):
            yield change(node, f"{text}.{method}", "text", 0.5)
    if casing:
        for method in ("upper()", "casefold()"):
            yield change(node, f"{text}.{method}", "text", 0.5)


_COMPARED = re.compile(r"('[^'\n]*'|\"[^\"\n]*\") == ('[^'\n]*'|\"[^\"\n]*\")")


@lru_cache(8)
def _differs_in(message: str) -> tuple[bool, bool]:
    """Whether two compared texts differ only by blanks at an end, only by upper and lower case."""
    pairs = [(m[1][1:-1], m[2][1:-1]) for m in _COMPARED.finditer(message)]
    pairs = [(a.replace("\\n", "\n"), b.replace("\\n", "\n")) for a, b in pairs if a != b]
    spacing = any(a.strip() == b.strip() for a, b in pairs)
    return spacing, any(a.lower() == b.lower() for a, b in pairs)


@expression_rule("call")
def encoding(node: Node, site: Site) -> Iterator[Change]:
    """How a file is read and written, and texts turned into bytes and back."""
    called = plain_call(node, site.source)
    method = method_call(node, site.source)
    name = called[0] if called else method[1] if method else ""
    arguments = called[1] if called else method[2] if method else []
    pieces = [site.text(argument) for argument in arguments]
    if name in ("open", "read_text", "write_text", "fdopen", "NamedTemporaryFile"):
        yield from _opened(node, name, arguments, pieces, site)
    elif name in ("encode", "decode"):
        for codec in _CODECS:
            yield change(node, _with_arguments(node, [f'"{codec}"'], site), "encoding", 0.7)
        if pieces and len(pieces) == 1:
            for errors in ("replace", "ignore"):
                new = _with_arguments(node, [*pieces, f'errors="{errors}"'], site)
                yield change(node, new, "encoding", 0.5)


def _opened(
    node: Node, name: str, arguments: list[Node], pieces: list[str], site: Site
) -> Iterator[Change]:
    plain = [piece for piece in pieces if not piece.startswith("encoding=")]
    binary = any(_MODES.fullmatch(literal(site.source, one) or "") for one in arguments[1:2])
    if not binary:
        for index, codec in enumerate(_CODECS):
            new = _with_arguments(node, [*plain, f'encoding="{codec}"'], site)
            yield change(node, new, "encoding", 3.0 / (1 + 2 * index))
        if not any(piece.startswith("errors=") for piece in pieces):
            new = _with_arguments(node, [*pieces, 'errors="replace"'], site)
            yield change(node, new, "encoding", 0.5)
    if name == "open":
        mode = literal(site.source, arguments[1]) if len(arguments) > 1 else "r"
        if mode is not None:
            other = mode.replace("b", "") if binary else f"{mode}b"
            first, rest = pieces[:1], [p for p in pieces[2:] if binary]
            yield change(
                node, _with_arguments(node, [*first, f'"{other}"', *rest], site), "encoding"
            )


def _with_arguments(node: Node, pieces: list[str], site: Site) -> str:
    function = node.child_by_field_name("function")
    assert function is not None
    return f"{site.text(function)}({', '.join(pieces)})"


@expression_rule("identifier", "attribute", "call")
def bytes_or_text(node: Node, site: Site) -> Iterator[Change]:
    """A text for bytes, where the failure speaks of them."""
    if not site.clues.says(ENCODED) or not is_expression(node) or not simple(node, site.source):
        return
    parent = node.parent
    if parent is not None and parent.type in ("call", "attribute") and parent.children[0] == node:
        return
    for method in ("encode()", "decode()"):
        yield change(node, f"{site.text(node)}.{method}", "encoding", 0.7)
