"""A selected range written anew, with words (`instruct.py`) or without: the command, the action."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from clover_engine.api import CancelToken
from clover_lsp.actions.buffers import DocumentEdit
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.context.types import Edit
from clover_lsp.features.arguments import Target
from clover_lsp.features.instruct import EDIT_SELECTION, Instructor, is_instruction
from clover_lsp.features.service import Service
from clover_lsp.server import CloverServer

LIST_ALTERNATIVES = "clover.listAlternatives"
"""`{uri, version?, range}` → `{applied, alternatives: [{text, confidence}]}`; applies nothing.
`clover.editSelection` without words applies alternative `choice`, the surest if not given."""


@dataclass(frozen=True, slots=True)
class _EditSelection:
    service: Service
    instructor: Instructor

    def apply(self, *arguments: object) -> Awaitable[dict[str, object]]:
        if is_instruction(next(iter(arguments), None)):
            return self.instructor.run(*arguments)
        return self._run(Target.read(next(iter(arguments), None), EDIT_SELECTION), True)

    def list(self, *arguments: object) -> Awaitable[dict[str, object]]:
        return self._run(Target.read(next(iter(arguments), None), LIST_ALTERNATIVES), False)

    async def _run(self, target: Target, applies: bool) -> dict[str, object]:
        cancel = CancelToken()
        try:
            async with self.service.progress("Edit selection", cancel):
                snapshot, start, end, found = await self.service.alternatives(target, cancel)
            if applies:
                chosen = found[min(target.choice, len(found) - 1)]
                change = DocumentEdit(snapshot, (Edit(start, end, chosen.text),))
                await self.service.apply([change], "Edit selection")
        except ActionRefused as refused:
            self.service.tell(str(refused))
            return {"applied": False, "reason": str(refused), "alternatives": []}
        shown = [{"text": a.text, "confidence": round(a.confidence, 3)} for a in found]
        return {"applied": applies, "alternatives": shown}


async def selection_edit(service: Service, target: Target, cancel: CancelToken) -> DocumentEdit:
    """The surest alternative as an edit. Raises `ActionRefused` where there is none."""
    snapshot, start, end, found = await service.alternatives(target, cancel)
    chosen = found[min(target.choice, len(found) - 1)]
    return DocumentEdit(snapshot, (Edit(start, end, chosen.text),))


def register(server: CloverServer) -> None:
    service = Service(server)
    feature = _EditSelection(service, Instructor(service))
    server.command(EDIT_SELECTION)(feature.apply)
    server.command(LIST_ALTERNATIVES)(feature.list)
