"""`textDocument/codeAction` and its `resolve`: fix a diagnostic, fix with tests, edit lines.

The list is made without asking anybody: what an action does is found out when it is chosen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from lsprotocol import types

from clover_engine.api import CancelToken
from clover_lsp.actions.buffers import DocumentEdit
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.actions.instructed import PRESETS
from clover_lsp.actions.quickfix import may_help
from clover_lsp.documents.documents import Snapshot
from clover_lsp.features.arguments import Target
from clover_lsp.features.commands import FIX_DIAGNOSTIC, FIX_TESTS
from clover_lsp.features.diagnostics import problem_of
from clover_lsp.features.edit_selection import selection_edit
from clover_lsp.features.instruct import EDIT_SELECTION, preset_edit
from clover_lsp.features.service import Service
from clover_lsp.server import CloverServer

QUICK_FIX = types.CodeActionKind.QuickFix
REWRITE = types.CodeActionKind.RefactorRewrite
_MOST_DIAGNOSTICS = 8
_TITLE_CHARS = 60
_FIX, _EDIT = "fix", "edit"
_RESOLVED = ("docstring", "types", "simplify")
"""Presets that change the selection; the others say something or write a new file."""


@dataclass(frozen=True, slots=True)
class _CodeActions:
    server: CloverServer
    service: Service

    def offer(
        self, params: types.CodeActionParams
    ) -> list[types.CodeAction | types.Command] | None:
        snapshot = self.server.documents.get(params.text_document.uri)
        if snapshot is None or snapshot.is_too_large or not self.server.settings.fix.enabled:
            return None
        diagnostics = params.context.diagnostics
        log = self.server.buffers.log
        log.diagnosed(snapshot, [problem_of(d) for d in diagnostics])
        self.server.guard(self.server.context.diagnosed, snapshot.uri, log.problems(snapshot))
        found: list[types.CodeAction] = []
        is_python = snapshot.language == "python"
        if is_python and _wanted(QUICK_FIX, params.context.only):
            found += self._fixes(snapshot, diagnostics)
        if _wanted(REWRITE, params.context.only) and self._selects(snapshot, params.range):
            found += [self._selection(snapshot, params.range)] if is_python else []
            found += self._presets(snapshot, params.range)
        if not self.server.capabilities.code_action_literals:
            return [a.command for a in found if a.command is not None]
        return list(found)

    def resolve(self, action: types.CodeAction) -> Awaitable[types.CodeAction] | types.CodeAction:
        """Some clients ask about every action without an edit, also where a command does it."""
        if action.data is None and action.command is not None:
            return action
        target = Target.read(action.data, "codeAction/resolve")
        return self._resolve(action, target)

    async def _resolve(self, action: types.CodeAction, target: Target) -> types.CodeAction:
        cancel = CancelToken()
        try:
            if target.kind in PRESETS:
                change = await preset_edit(self.service, target, cancel)
                action.edit = self.service.edit([change], action.title)
            elif target.kind == _EDIT:
                change = await selection_edit(self.service, target, cancel)
                action.edit = self.service.edit([change], action.title)
            else:
                snapshot, fixes = await self.service.fixes(target, cancel)
                fix = fixes[min(target.choice, len(fixes) - 1)]
                action.edit = self.service.edit([DocumentEdit(snapshot, fix.edits)], fix.title)
                action.is_preferred = fix.is_sure
                action.tags = self._tags() if fix.from_model else None
        except ActionRefused as refused:
            action.edit, action.command = None, None
            action.disabled = types.CodeActionDisabled(str(refused))
            self.service.tell(str(refused))
        return action

    def _fixes(
        self, snapshot: Snapshot, diagnostics: Sequence[types.Diagnostic]
    ) -> list[types.CodeAction]:
        found = []
        for diagnostic in diagnostics[:_MOST_DIAGNOSTICS]:
            if not may_help(problem_of(diagnostic)):
                continue
            target = Target(snapshot.uri, snapshot.version, diagnostic=diagnostic)
            title = f"Fix: {_short(problem_of(diagnostic).message)}"
            action = self._action(title, QUICK_FIX, target, _FIX, FIX_DIAGNOSTIC)
            action.diagnostics = [diagnostic]
            found.append(action)
        if diagnostics:
            target = Target(snapshot.uri, snapshot.version, diagnostic=diagnostics[0])
            command = types.Command("Fix with tests", FIX_TESTS, arguments=[target.data(_FIX)])
            action = types.CodeAction(
                "Fix with tests", QUICK_FIX, diagnostics=[diagnostics[0]], command=command
            )
            action.tags = self._tags()
            found.append(action)
        return found

    def _selection(self, snapshot: Snapshot, span: types.Range) -> types.CodeAction:
        target = Target(snapshot.uri, snapshot.version, range=span)
        return self._action("Write the selection anew", REWRITE, target, _EDIT, EDIT_SELECTION)

    def _presets(self, snapshot: Snapshot, span: types.Range) -> list[types.CodeAction]:
        """What a model that converses does with a selection; nothing where none is expected."""
        if not self.server.engine.may_converse:
            return []
        target = Target(snapshot.uri, snapshot.version, range=span)
        found = []
        for name, title in PRESETS.items():
            if name in _RESOLVED:
                action = self._action(title, REWRITE, target, name, EDIT_SELECTION)
            else:
                action = types.CodeAction(title, REWRITE, tags=self._tags())
                action.command = types.Command(title, EDIT_SELECTION, arguments=[target.data(name)])
            if action.command is not None:
                data = {**target.data(name), "preset": name, "apply": True}
                action.command.arguments = [data]
            found.append(action)
        return found

    def _action(
        self, title: str, kind: types.CodeActionKind, target: Target, which: str, command: str
    ) -> types.CodeAction:
        """Resolved later where the client can; else the command does it all."""
        action = types.CodeAction(title, kind, tags=self._tags())
        data = target.data(which)
        can = self.server.capabilities
        if can.code_action_literals and can.code_action_data and "edit" in can.code_action_resolve:
            action.data = data
        else:
            action.command = types.Command(title, command, arguments=[data])
        return action

    def _selects(self, snapshot: Snapshot, span: types.Range) -> bool:
        start, end = snapshot.offsets(span)
        has_model = self.server.engine.interactive(snapshot.language) is not None
        return has_model and bool(snapshot.text[start:end].strip())

    def _tags(self) -> list[types.CodeActionTag] | None:
        """A model may have a part in it."""
        if self.server.engine.interactive("python") is None:
            return None
        known = str(types.CodeActionTag.LlmGenerated.value) in (
            self.server.capabilities.code_action_tags
        )
        return [types.CodeActionTag.LlmGenerated] if known else None


def _wanted(kind: types.CodeActionKind, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether the client asks for actions of that kind: all, the kind itself, or one above it."""
    if only is None:
        return True
    names = [str(getattr(o, "value", o)) for o in only]
    return any(not n or n == kind.value or kind.value.startswith(f"{n}.") for n in names)


def _short(message: str) -> str:
    line = message.split("\n", 1)[0].strip()
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


def register(server: CloverServer) -> None:
    actions = _CodeActions(server, Service(server))
    options = types.CodeActionOptions(code_action_kinds=[QUICK_FIX, REWRITE], resolve_provider=True)
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(actions.offer)
    server.feature(types.CODE_ACTION_RESOLVE)(actions.resolve)
