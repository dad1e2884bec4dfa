"""Definitions of the whole workspace: open documents as the editor has them, the rest from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clover_lsp.context.buffers import Buffer
from clover_lsp.context.grammars import grammar_of
from clover_lsp.context.store import Reader
from clover_lsp.context.symbols import Definition


@dataclass(frozen=True, slots=True)
class Sited:
    """A definition and the file that it stands in. `secret`: redact before anyone reads it."""

    path: str
    language: str
    definition: Definition
    secret: bool


class Known:
    """An open document that was parsed hides its file in the index."""

    def __init__(self, reader: Reader, open_: Mapping[str, Buffer]) -> None:
        self._reader = reader
        self._open = {path: b for path, b in open_.items() if b.symbols is not None}

    def definitions(self, name: str, limit: int) -> list[Sited]:
        """Everything defined under a name, open documents first."""
        found = [
            self._sited(path, buffer, definition)
            for path, buffer in self._open.items()
            for definition in _definitions(buffer)
            if definition.name == name
        ]
        for located in self._reader.definitions(name, limit):
            file = self._reader.files.get(located.file)
            if file is not None and file.path not in self._open:
                found.append(Sited(file.path, file.language, located.definition, file.secret))
        return found[:limit]

    def members(self, owner: Sited, limit: int) -> list[Definition]:
        """What is defined in a class."""
        name = owner.definition.name
        if owner.path in self._open:
            found = _definitions(self._open[owner.path])
            return [d for d in found if d.container == name][:limit]
        file = self._reader.by_path.get(owner.path)
        if file is None:
            return []
        return [m.definition for m in self._reader.members(file, name, limit)]

    def _sited(self, path: str, buffer: Buffer, definition: Definition) -> Sited:
        return Sited(path, grammar_of(path, buffer.language) or "", definition, True)


def _definitions(buffer: Buffer) -> tuple[Definition, ...]:
    return buffer.symbols.definitions if buffer.symbols else ()
