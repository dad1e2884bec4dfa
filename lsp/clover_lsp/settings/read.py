"""Settings from what a client sends: tolerant, with one complaint for each thing that is wrong."""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, Literal

from clover_engine.errors import RequestError
from clover_lsp.settings.settings import SECTION, Settings


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something wrong in the settings; `text` is one line for the user."""

    name: str
    text: str
    is_error: bool
    """False: an unknown name, perhaps of another version."""


EDITORS_OWN = frozenset({"server", "trace"})
"""Groups that editors keep beside ours for themselves."""


def camel(name: str) -> str:
    """`max_tokens` → `maxTokens`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)


def read_settings(*sources: object) -> tuple[Settings, tuple[Complaint, ...]]:
    """The settings in `sources`, later ones first in rank, and what is wrong in them.

    A source is nested objects or dotted names (``{"completion.maxTokens": 32}``), either of them
    perhaps inside an object `clover`.
    """
    complaints: list[Complaint] = []
    tree: dict[str, Any] = {}
    for raw in sources:
        if isinstance(raw, Mapping):
            _merge(tree, _nested(_inner(raw)))
        elif raw is not None:
            text = f"settings are an object, not {_show(raw)}; the defaults are used"
            complaints.append(Complaint("", text, True))
    settings = _read_group(Settings, tree, "", complaints)
    return settings, tuple(complaints)


def _merge(tree: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        old = tree.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        elif value is not None:
            tree[name] = value


def _inner(raw: Mapping[Any, Any]) -> Mapping[Any, Any]:
    inner = raw.get(SECTION)
    return inner if isinstance(inner, Mapping) else raw


def _nested(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """Turns dotted names into objects; a prefix `clover.` is dropped."""
    tree: dict[str, Any] = {}
    for name, value in raw.items():
        path = str(name).removeprefix(SECTION + ".").split(".")
        node = tree
        for part in path[:-1]:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                below = node[part] = {}
            node = below
        old = node.get(path[-1])
        if isinstance(old, dict) and isinstance(value, Mapping):
            old.update(value)
        else:
            node[path[-1]] = dict(value) if isinstance(value, Mapping) else value
    return tree


def _read_group(kind: Any, raw: Mapping[str, Any], where: str, complaints: list[Complaint]) -> Any:
    hints = typing.get_type_hints(kind)
    known = {camel(f.name): f for f in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in raw.items():
        full = f"{where}{name}"
        entry = known.get(name) or known.get(camel(_snake(str(name)).replace("-", "_")))
        if entry is None and not where and name in EDITORS_OWN:
            continue
        if entry is None:
            complaints.append(_unknown(full))
        elif value is None:
            continue  # editors send null for what the user has not set
        elif is_dataclass(hints[entry.name]):
            if isinstance(value, Mapping):
                values[entry.name] = _read_group(hints[entry.name], value, f"{full}.", complaints)
            else:
                complaints.append(_bad(full, "an object", _show(value), "its defaults"))
        else:
            try:
                values[entry.name] = _value(hints[entry.name], entry.metadata, value)
            except ValueError as error:
                default = _show(_default(entry))
                shown = _HIDDEN if _may_be_secret(entry.metadata, value) else _show(value)
                complaints.append(_bad(full, str(error), shown, f"the default, {default},"))
    return kind(**values)


def _default(entry: Field[Any]) -> object:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


_HIDDEN = "what stands there"


def _may_be_secret(metadata: Mapping[str, Any], value: object) -> bool:
    return metadata["kind"] == "secret" or metadata["kind"] == "url" and "@" in str(value)


def _bad(name: str, wanted: str, shown: str, instead: str) -> Complaint:
    text = f"{SECTION}.{name} must be {wanted}, not {shown}; {instead} is used".replace(
        "defaults is", "defaults are"
    )
    return Complaint(name, text, True)


def _unknown(name: str) -> Complaint:
    close = difflib.get_close_matches(name, all_names(), n=1, cutoff=0.5)
    hint = f"; did you mean {SECTION}.{close[0]}?" if close else ""
    return Complaint(name, f"unknown setting {SECTION}.{name}{hint}", False)


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else text[:57] + "…"


def _value(hint: Any, metadata: Mapping[str, Any], value: object) -> Any:
    """The value as the field has it; raises `ValueError` with what it must be."""
    if hint is bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if hint in (int, float):
        return _number(hint, metadata, value)
    if hint is str:
        if not isinstance(value, str):
            raise ValueError("a text")
        if metadata["kind"]:
            value = value.strip()
        return _url(value) if value and metadata["kind"] == "url" else value
    if typing.get_origin(hint) is Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            raise ValueError("one of " + ", ".join(f'"{a}"' for a in allowed))
        return value
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise ValueError("a list of texts")
        return tuple(value)
    if not isinstance(value, Mapping) or not all(isinstance(v, bool) for v in value.values()):
        raise ValueError("an object with true or false for each language")
    return types.MappingProxyType({str(k): v for k, v in value.items()})


def _url(value: str) -> str:
    from clover_engine.clients.address import Address

    try:
        return Address.parse(value).url
    except RequestError as error:
        raise ValueError("an address like http://127.0.0.1:8080, without a password") from error


def _number(hint: Any, metadata: Mapping[str, Any], value: object) -> int | float:
    low, high = metadata["minimum"], metadata["maximum"]
    wanted = f"{'a whole number' if hint is int else 'a number'} from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(wanted)
    if not low <= value <= high or (hint is int and value != int(value)):
        raise ValueError(wanted)
    number: int | float = hint(value)
    return number


def all_names() -> list[str]:
    """Every setting's full name without the section, in the order of the documentation."""

    def walk(kind: Any, where: str) -> list[str]:
        hints = typing.get_type_hints(kind)
        found: list[str] = []
        for entry in fields(kind):
            name = where + camel(entry.name)
            inner = hints[entry.name]
            found += walk(inner, name + ".") if is_dataclass(inner) else [name]
        return found

    return walk(Settings, "")
