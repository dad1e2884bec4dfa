"""Arguments of commands and the data of code actions: JSON from the client, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.exceptions import JsonRpcInvalidParams

from clover_lsp.actions.errors import ActionRefused
from clover_lsp.documents.documents import Documents, Snapshot

_CONVERTER = get_converter()


@dataclass(frozen=True, slots=True)
class Target:
    """A place in a document; on the wire an object of these, all but `uri` optional."""

    uri: str
    version: int | None = None
    range: types.Range | None = None
    diagnostic: types.Diagnostic | None = None
    choice: int = 0
    """Which of several fixes or alternatives."""
    kind: str = ""
    """Which code action this is the data of."""

    @classmethod
    def read(cls, value: object, command: str) -> Target:
        """Raises the protocol's InvalidParams, in one line, for anything else."""
        data = {"uri": value} if isinstance(value, str) else plain(value)
        try:
            if not isinstance(data, dict) or not isinstance(data.get("uri"), str):
                raise TypeError("it has no `uri`")
            version, choice = data.get("version"), data.get("choice", 0)
            if version is not None and not isinstance(version, int):
                raise TypeError("`version` is no number")
            if not isinstance(choice, int) or choice < 0:
                raise TypeError("`choice` is no number from 0")
            span, diagnostic = data.get("range"), data.get("diagnostic")
            return cls(
                data["uri"],
                version,
                None if span is None else _CONVERTER.structure(span, types.Range),
                None if diagnostic is None else _CONVERTER.structure(diagnostic, types.Diagnostic),
                choice,
                str(data.get("kind", "")),
            )
        except Exception as error:
            wanted = "{uri, version?, range?, diagnostic?, choice?}"
            message = f"{command} takes one argument {wanted}: {error}"
            raise JsonRpcInvalidParams(message) from error

    def data(self, kind: str) -> dict[str, Any]:
        """As JSON for a code action's `data` or a command's argument."""
        found: dict[str, Any] = {"uri": self.uri, "kind": kind}
        if self.version is not None:
            found["version"] = self.version
        for name in ("range", "diagnostic"):
            if (value := getattr(self, name)) is not None:
                found[name] = _CONVERTER.unstructure(value)
        return found

    def snapshot(self, documents: Documents) -> Snapshot:
        """The open document. Raises `ActionRefused` where it is closed or another version."""
        snapshot = documents.get(self.uri)
        if snapshot is None:
            raise ActionRefused("the document is not open: open it and ask again")
        if snapshot.is_too_large:
            raise ActionRefused("the document is too large: nothing is suggested for it")
        if self.version is not None and snapshot.version != self.version:
            raise ActionRefused("the document changed meanwhile: ask again")
        return snapshot


def plain(value: object) -> Any:
    """JSON as dicts and lists, however the protocol layer built it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
