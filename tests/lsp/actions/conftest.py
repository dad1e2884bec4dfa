"""A client that takes edits, shows progress, and applies both forms of a workspace edit."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types

WAIT_S = 60.0


def abilities(
    encoding: str = "utf-16",
    *,
    versioned: bool = True,
    annotations: bool = True,
    literals: bool = True,
    resolve: bool = True,
    progress: bool = True,
    apply: bool = True,
) -> types.ClientCapabilities:
    """What the client says it can do."""
    kinds = types.ClientCodeActionKindOptions([types.CodeActionKind.QuickFix])
    support = types.ClientCodeActionLiteralOptions(kinds)
    lazily = types.ClientCodeActionResolveOptions(["edit", "command"])
    action = types.CodeActionClientCapabilities(
        code_action_literal_support=support if literals else None,
        disabled_support=True,
        data_support=resolve,
        resolve_support=lazily if resolve else None,
        tag_support=types.CodeActionTagOptions([types.CodeActionTag.LlmGenerated]),
    )
    edit = types.WorkspaceEditClientCapabilities(
        document_changes=versioned,
        change_annotation_support=types.ChangeAnnotationsSupportOptions() if annotations else None,
    )
    return types.ClientCapabilities(
        text_document=types.TextDocumentClientCapabilities(code_action=action),
        workspace=types.WorkspaceClientCapabilities(apply_edit=apply, workspace_edit=edit),
        window=types.WindowClientCapabilities(work_done_progress=progress),
        general=types.GeneralClientCapabilities(position_encodings=[encoding]),
    )


class Bench:
    """One editor with a server of its own. `refuse` makes it refuse the server's edits."""

    def __init__(self, editor: Any) -> None:
        self.editor = editor
        self.asked: list[types.ApplyWorkspaceEditParams] = []
        self.progress: list[Any] = []
        self.refuse = ""
        self.on_progress: Callable[[types.ProgressParams], None] = lambda params: None
        client = editor.client

        @client.feature(types.WORKSPACE_APPLY_EDIT)
        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.asked.append(params)
            if self.refuse:
                return types.ApplyWorkspaceEditResult(False, self.refuse)
            return types.ApplyWorkspaceEditResult(True)

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def create(params: types.WorkDoneProgressCreateParams) -> None:
            return None

        @client.feature(types.PROGRESS)
        def progress(params: types.ProgressParams) -> None:
            self.progress.append(params)
            self.on_progress(params)

    def command(self, name: str, *arguments: Any) -> Any:
        """Runs a command of the server."""
        return self.start_command(name, *arguments).result(WAIT_S)

    def start_command(self, name: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(name, arguments=list(arguments))
        return self.editor.send(types.WORKSPACE_EXECUTE_COMMAND, params)

    def diagnostic(
        self, uri: str, word: str, message: str, code: str = "", source: str = "Ruff"
    ) -> types.Diagnostic:
        """A diagnostic that underlines the last `word` of the client's text."""
        start = self.editor.texts[uri].rindex(word)
        span = types.Range(
            self.editor.position(uri, start), self.editor.position(uri, start + len(word))
        )
        return types.Diagnostic(
            span, message, types.DiagnosticSeverity.Error, code=code or None, source=source
        )

    def actions(
        self,
        uri: str,
        diagnostics: Sequence[types.Diagnostic] = (),
        span: types.Range | None = None,
        only: Sequence[Any] | None = None,
    ) -> list[Any]:
        place = span or (diagnostics[0].range if diagnostics else zero())
        context = types.CodeActionContext(list(diagnostics), only)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), place, context)
        found = self.editor.request(types.TEXT_DOCUMENT_CODE_ACTION, params) or []
        return [_action(one) for one in found]

    def resolve(self, action: types.CodeAction) -> types.CodeAction:
        found: types.CodeAction = self.editor.request(types.CODE_ACTION_RESOLVE, action)
        return found

    def after(self, edit: types.WorkspaceEdit, uri: str) -> str:
        """The document's text after the edit, by the client's own arithmetic."""
        text: str = self.editor.texts[uri]
        edits = [e for name, found in edits_of(edit) if name == uri for e in found]
        places = [
            (self.editor.offset(uri, e.range.start), self.editor.offset(uri, e.range.end), e)
            for e in edits
        ]
        for start, end, change in sorted(places, key=lambda p: p[0], reverse=True):
            text = text[:start] + change.new_text + text[end:]
        return text


def _action(found: Any) -> Any:
    """lsprotocol's decoder takes an action that has a command for a bare command."""
    if isinstance(found, types.Command) and found.command.startswith("{"):
        inner = types.Command(**ast.literal_eval(found.command))
        return types.CodeAction(found.title, command=inner)
    return found


def zero() -> types.Range:
    return types.Range(types.Position(0, 0), types.Position(0, 0))


def edits_of(edit: types.WorkspaceEdit) -> list[tuple[str, list[Any]]]:
    """(uri, edits), whichever form the server chose."""
    if edit.document_changes:
        return [(c.text_document.uri, list(c.edits)) for c in edit.document_changes]  # type: ignore[union-attr]
    return [(uri, list(found)) for uri, found in (edit.changes or {}).items()]


def apply_to_file(edit: types.WorkspaceEdit, encoding: str) -> dict[Path, str]:
    """What files on disk would hold; positions in UTF-16 of the decoded bytes."""
    found = {}
    for uri, edits in edits_of(edit):
        path = Path(unquote(urlsplit(uri).path))
        text = path.read_bytes().decode(encoding)
        for change in sorted(edits, key=lambda e: -e.range.start.line):
            starts = [0, *(m.end() for m in re.finditer(r"\r\n|\n|\r", text))]
            start = starts[change.range.start.line] + change.range.start.character
            end = starts[change.range.end.line] + change.range.end.character
            text = text[:start] + change.new_text + text[end:]
        found[path] = text
    return found


class Benches:
    """Starts a server for a client: `benches(benches.abilities("utf-8"), roots=[…])`."""

    abilities = staticmethod(abilities)

    def __init__(self, servers: Any) -> None:
        self._servers = servers

    def __call__(
        self,
        client: types.ClientCapabilities | None = None,
        roots: Sequence[Path] = (),
        settings: Any = None,
        worker: str | None = None,
    ) -> Bench:
        editor = self._servers(say_hello=False, worker=worker)
        bench = Bench(editor)
        folders = [types.WorkspaceFolder(root.as_uri(), root.name) for root in roots]
        editor.hello(client or abilities(), settings, folders)
        editor.wait_ready()
        return bench


@pytest.fixture
def benches(servers: Any) -> Benches:
    return Benches(servers)


def fake_worker(**options: Any) -> str:
    """The command of a model process with a `FakeEngine` of these fields."""
    command = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(options)]
    return shlex.join(command)


@pytest.fixture
def worker() -> Callable[..., str]:
    return fake_worker


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, client_loop: Any) -> Iterator[Bench]:
    """A server for a whole file of tests; documents get names of their own."""
    helpers = sys.modules["lsp_client"]
    folder = tmp_path_factory.mktemp("bench")
    editor = helpers.Editor(client_loop.loop)
    editor.connect("stdio", helpers.environment(folder, fake_worker()))
    made = Bench(editor)
    editor.hello(abilities())
    editor.wait_ready()
    yield made
    assert editor.stop() == 0, editor.stderr


@pytest.fixture(autouse=True)
def _quiet(request: pytest.FixtureRequest) -> None:
    """What earlier tests of the file left in the shared client."""
    if "bench" in request.fixturenames:
        shared: Bench = request.getfixturevalue("bench")
        shared.refuse, shared.on_progress = "", lambda params: None
        shared.asked.clear()
        shared.progress.clear()
        shared.editor.messages.clear()
