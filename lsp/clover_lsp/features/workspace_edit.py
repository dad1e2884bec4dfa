"""Edits as the protocol's `WorkspaceEdit`, and applying one through the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from clover_lsp.actions.buffers import DocumentEdit
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.connection.capabilities import Capabilities
from clover_lsp.documents.documents import Documents

if TYPE_CHECKING:
    from clover_lsp.server import CloverServer

_ANNOTATION = "clover"


def workspace_edit(
    changed: Sequence[DocumentEdit],
    capabilities: Capabilities,
    documents: Documents,
    label: str,
    description: str = "",
) -> types.WorkspaceEdit:
    """The edits for this client: versioned where it can, to be confirmed if there are many files.

    Raises `ActionRefused` where a document is not what the edits were made for any more.
    """
    changed = [change for change in changed if change.edits]
    for change in changed:
        if not documents.is_current(change.snapshot):
            name = change.snapshot.path or change.snapshot.uri
            raise ActionRefused(f"{name} changed meanwhile: ask again")
    if not capabilities.document_changes:
        return types.WorkspaceEdit(changes={c.snapshot.uri: _text_edits(c) for c in changed})
    confirm = len(changed) > 1 and capabilities.change_annotations
    return types.WorkspaceEdit(
        document_changes=[_document_edit(change, confirm) for change in changed],
        change_annotations={_ANNOTATION: types.ChangeAnnotation(label, True, description or None)}
        if confirm
        else None,
    )


async def apply(server: CloverServer, edit: types.WorkspaceEdit, label: str) -> None:
    """Has the client apply an edit. Raises `ActionRefused` with its reason where it did not."""
    if not server.capabilities.apply_edit:
        raise ActionRefused(f"{label}: this editor takes no edits from a server; see its settings")
    answer = await server.workspace_apply_edit_async(
        types.ApplyWorkspaceEditParams(edit=edit, label=label)
    )
    if not answer.applied:
        reason = answer.failure_reason or "no reason given"
        raise ActionRefused(f"{label}: the editor did not apply it ({reason}); ask again")


def _document_edit(change: DocumentEdit, confirm: bool) -> types.TextDocumentEdit:
    document = types.OptionalVersionedTextDocumentIdentifier(
        change.snapshot.uri, change.snapshot.version
    )
    if not confirm:
        return types.TextDocumentEdit(document, _text_edits(change))
    annotated = [
        types.AnnotatedTextEdit(_ANNOTATION, edit.range, edit.new_text)
        for edit in _text_edits(change)
    ]
    return types.TextDocumentEdit(document, annotated)


def _text_edits(change: DocumentEdit) -> list[types.TextEdit]:
    """All ranges refer to the text as it is, as the protocol wants it."""
    snapshot = change.snapshot
    return [
        types.TextEdit(snapshot.range(edit.start, edit.end), edit.new)
        for edit in sorted(change.edits, key=lambda e: e.start)
    ]
