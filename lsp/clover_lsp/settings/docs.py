"""Documentation made from the settings: a page, a JSON schema, VS Code's configuration."""

from __future__ import annotations

import argparse
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from clover_lsp.settings.read import camel
from clover_lsp.settings.settings import SECTION, Settings

INTRODUCTION = f"""\
# Settings

Generated from `lsp/clover_lsp/settings/settings.py` by
`python -m clover_lsp.settings --markdown`; do not edit. `make test` fails where this page differs
from the code.

Editors send these as `{SECTION}.NAME`: VS Code from its settings, others as nested objects in
`initializationOptions`, by `workspace/configuration` or by `workspace/didChangeConfiguration`. A
value that does not fit is reported once and its default is used; an unknown name is reported with
the nearest known one.

"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as documentation needs it."""

    name: str
    kind: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def doc(self) -> str:
        return str(self.metadata["doc"])


def entries(kind: Any = Settings, where: str = "") -> Iterator[Entry]:
    """All settings, in the order in which they are defined."""
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        name, inner = where + camel(field.name), hints[field.name]
        if is_dataclass(inner):
            yield from entries(inner, name + ".")
            continue
        default = getattr(kind(), field.name)
        yield Entry(name, inner, default, field.metadata)


def markdown() -> str:
    """The page docs/settings.md."""
    rows = ["|Setting|Type|Default|Meaning|", "|-|-|-|-|"]
    for entry in entries():
        default = json.dumps(_plain(entry.default))
        meaning = entry.doc.replace("|", "\\|")
        for value, doc in (entry.metadata["values"] or {}).items():
            meaning += f"<br>`{value}`: {doc}."
        rows.append(f"|`{SECTION}.{entry.name}`|{_type_words(entry)}|`{default}`|{meaning}|")
    return INTRODUCTION + "\n".join(rows) + "\n"


def json_schema() -> dict[str, Any]:
    """The schema of the nested object, as `initializationOptions` has it."""
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "clover-code",
        **_object(),
    }
    for entry in entries():
        *path, last = entry.name.split(".")
        node = root
        for part in path:
            node = node["properties"].setdefault(part, _object())
        node["properties"][last] = {**_schema(entry), "description": entry.doc}
    return root


def vscode() -> dict[str, Any]:
    """`contributes.configuration` of an extension's package.json."""
    properties = {}
    for entry in entries():
        shape = _schema(entry)
        if entry.metadata["values"]:
            shape["enumDescriptions"] = [f"{doc}." for doc in entry.metadata["values"].values()]
        if entry.metadata["own"]:
            shape["scope"] = "machine"  # not from a folder's .vscode/settings.json
        properties[f"{SECTION}.{entry.name}"] = {**shape, "markdownDescription": entry.doc}
    return {"title": "Clover Code", "properties": properties}


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _schema(entry: Entry) -> dict[str, Any]:
    shape: dict[str, Any] = {"default": _plain(entry.default)}
    if typing.get_origin(entry.kind) is Literal:
        return {"type": "string", "enum": list(typing.get_args(entry.kind)), **shape}
    if typing.get_origin(entry.kind) is tuple:
        return {"type": "array", "items": {"type": "string"}, **shape}
    if typing.get_origin(entry.kind) is not None:
        return {"type": "object", "additionalProperties": {"type": "boolean"}, **shape}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    limits = {k: entry.metadata[k] for k in ("minimum", "maximum")}
    return {
        "type": names[entry.kind],
        **{k: v for k, v in limits.items() if v is not None},
        **shape,
    }


def _type_words(entry: Entry) -> str:
    shape = _schema(entry)
    if "enum" in shape:
        return " \\| ".join(f"`{value}`" for value in shape["enum"])
    if shape["type"] == "array":
        return "list of texts"
    if shape["type"] == "object":
        return "object of true/false"
    if "minimum" in shape:
        return f"{shape['type']}, {shape['minimum']:g} to {shape['maximum']:g}"
    return {"boolean": "true/false", "string": "text"}[shape["type"]]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one of the three."""
    parser = argparse.ArgumentParser(
        prog="python -m clover_lsp.settings", description="Prints documentation of the settings."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--markdown", action="store_true", help="the page docs/settings.md")
    what.add_argument("--json-schema", action="store_true")
    what.add_argument("--vscode", action="store_true", help="contributes.configuration")
    args = parser.parse_args(argv)
    if args.markdown:
        print(markdown(), end="")
    else:
        print(json.dumps(json_schema() if args.json_schema else vscode(), indent=2))
    return 0
