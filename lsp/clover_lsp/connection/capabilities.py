"""What the client said it can do, as plain facts with the protocol's defaults."""

from __future__ import annotations

from lsprotocol import types
from pygls.capabilities import get_capability


class Capabilities:
    """Read from the `initialize` request; before it, nothing is supported."""

    def __init__(self, client: types.ClientCapabilities | None = None) -> None:
        self.client = client or types.ClientCapabilities()

    def _has(self, name: str) -> bool:
        return bool(get_capability(self.client, name))

    def _values(self, name: str) -> frozenset[str]:
        found = get_capability(self.client, name) or ()
        return frozenset(str(getattr(value, "value", value)) for value in found)

    @property
    def inline_completion(self) -> bool:
        return get_capability(self.client, "text_document.inline_completion") is not None

    @property
    def completion(self) -> bool:
        return get_capability(self.client, "text_document.completion") is not None

    @property
    def apply_edit(self) -> bool:
        """`workspace/applyEdit` may be sent."""
        return self._has("workspace.apply_edit")

    @property
    def document_changes(self) -> bool:
        """Edits may carry the version of the document they were made for."""
        return self._has("workspace.workspace_edit.document_changes")

    @property
    def resource_operations(self) -> frozenset[str]:
        """What edits may do to files: "create", "rename", "delete"."""
        return self._values("workspace.workspace_edit.resource_operations")

    @property
    def change_annotations(self) -> bool:
        """Edits may ask for the user's confirmation."""
        return (
            get_capability(self.client, "workspace.workspace_edit.change_annotation_support")
            is not None
        )

    @property
    def code_action_literals(self) -> bool:
        return (
            get_capability(self.client, "text_document.code_action.code_action_literal_support")
            is not None
        )

    @property
    def code_action_data(self) -> bool:
        return self._has("text_document.code_action.data_support")

    @property
    def code_action_resolve(self) -> frozenset[str]:
        """Properties of a code action that may be filled in by `codeAction/resolve`."""
        return self._values("text_document.code_action.resolve_support.properties")

    @property
    def code_action_tags(self) -> frozenset[str]:
        """Values of `CodeActionTag` that the client knows, as text ("1" is LLMGenerated)."""
        return self._values("text_document.code_action.tag_support.value_set")

    @property
    def work_done_progress(self) -> bool:
        """The server may create progress bars of its own."""
        return self._has("window.work_done_progress")

    @property
    def configuration(self) -> bool:
        """`workspace/configuration` may be asked."""
        return self._has("workspace.configuration")

    @property
    def register_configuration(self) -> bool:
        return self._has("workspace.did_change_configuration.dynamic_registration")
