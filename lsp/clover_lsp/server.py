"""The server object: what every feature uses.

A feature is a module in `features/` with ``register(server)``. Handlers run on the event loop and
must not block it: ``await server.workers.now(...)`` for what a user waits for, ``.later(...)`` for
the rest. A handler's synchronous part runs before the next message is read, so take snapshots
there: a plain function that returns an awaitable. Methods unknown to `lsprotocol` get plain JSON as
`params`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.lsp.server import LanguageServer

from clover_engine.choice.engines import Engines, choose_engines
from clover_engine.choice.wanted import Wanted
from clover_lsp.completion.completer import Completer
from clover_lsp.completion.metrics import Metrics
from clover_lsp.completion.offers import Offers
from clover_lsp.connection.capabilities import Capabilities
from clover_lsp.connection.processes import is_alive
from clover_lsp.connection.protocol import CloverProtocol, make_converter
from clover_lsp.connection.scheduler import Tickets, Workers
from clover_lsp.context.types import ContextRoom, Place
from clover_lsp.documents.documents import Documents, Snapshot, folder_path, path_uri
from clover_lsp.documents.notebooks import Notebooks
from clover_lsp.documents.text import Encoding
from clover_lsp.documents.workspace import Workspace
from clover_lsp.settings.power import Power
from clover_lsp.settings.read import read_settings
from clover_lsp.settings.settings import SECTION, Settings
from clover_lsp.status import Kind, Report, Status

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

_ENCODINGS: dict[str, Encoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}
NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(
            notebook="*", cells=[types.NotebookCellLanguage(language="*")]
        )
    ]
)


class CloverServer(LanguageServer):
    """Shared by all features. Attributes change on the event loop only."""

    protocol: CloverProtocol

    def __init__(
        self,
        version: str = "",
        engines: Callable[[Wanted], Engines] | None = None,
        fixed_settings: object = None,
    ) -> None:
        """`version` is what clients are told; `engines` replaces the choice by setting (tests).
        `fixed_settings` win over whatever the client sends."""
        super().__init__(
            "clover-code",
            version,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=NOTEBOOKS,
            protocol_cls=CloverProtocol,
            converter_factory=make_converter,
        )
        self._make_engines = engines or choose_engines
        self._on_initialize: list[Callable[[types.InitializeParams], None]] = []
        self._on_settings: list[Callable[[Settings], None]] = []
        self._on_ready: list[Callable[[], None]] = []
        self._language: str | None = None
        self.client_process: int | None = None
        """The client's process, where it was seen alive on this machine: in another container, or
        on another machine, its number says nothing."""
        self._first_settings: object = None
        self._fixed_settings = fixed_settings
        self._complained: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.buffers = Workspace()
        self.notebooks = Notebooks(self.buffers.documents)
        self.settings = Settings()
        self.capabilities = Capabilities()
        self.roots: tuple[str, ...] = ()
        """Folders of the workspace, as paths."""
        self.workers = Workers()
        self.offers = Offers()
        self.metrics = Metrics()
        self.power = Power()
        self.tickets = Tickets()
        """The current interactive request of each document."""
        self.status = Status(lambda params: self.protocol.notify("didChangeStatus", params))
        self.engine = Engines([], "not initialized")
        self.completer = Completer(self)
        self.feature(types.INITIALIZE)(self._initialize)
        self.feature(types.INITIALIZED)(self._initialized)
        self.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(self._settings_changed)

    @property
    def documents(self) -> Documents:
        """All open documents; take a snapshot with `get` (open) or `read` (open or on disk)."""
        return self.buffers.documents

    @property
    def context(self) -> ContextRoom:
        return self.buffers.context

    def place(self, snapshot: Snapshot, offset: int) -> Place:
        """What the model may see of the document; cells get their notebook's code around them."""
        before, after = self.notebooks.around(snapshot)
        return Place(
            snapshot.uri,
            snapshot.language,
            before + snapshot.text[:offset],
            snapshot.text[offset:] + after,
            snapshot.version,
        )

    def feature(self, feature_name: str, options: Any | None = None) -> Callable[[F], F]:
        """Like pygls's, and takes bound methods too."""
        return _for_methods(super().feature(feature_name, options))

    def command(self, command_name: str) -> Callable[[F], F]:
        """Like pygls's, and takes bound methods too."""
        return _for_methods(super().command(command_name))

    def on_initialize(self, call: Callable[[types.InitializeParams], None]) -> None:
        """`call` runs before the server says what it can do; capabilities, settings, roots and
        engines are known then, and features may still be registered."""
        self._on_initialize.append(call)

    def on_settings(self, call: Callable[[Settings], None]) -> None:
        """`call` runs whenever settings changed."""
        self._on_settings.append(call)

    def on_ready(self, call: Callable[[], None]) -> None:
        """`call` runs once, when the client is initialized and may be sent anything."""
        self._on_ready.append(call)

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine beside the messages; an exception is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task failed: %s", "".join(traceback.format_exception(error)))

    def apply_settings(self, raw: object) -> None:
        """Takes over what a client sent, above what it said at the start; says once what is wrong
        in it."""
        settings, complaints = read_settings(self._first_settings, raw, self._fixed_settings)
        for complaint in complaints:
            log.warning("%s", complaint.text)
            if complaint.text not in self._complained:
                self._complained.add(complaint.text)
                kind = types.MessageType.Error if complaint.is_error else types.MessageType.Warning
                self.window_show_message(
                    types.ShowMessageParams(kind, f"clover-code: {complaint.text}")
                )
        before, self.settings = self.settings, settings
        if before.wanted != settings.wanted or not self.engine.providers:
            self._make_engine()
        for call in self._on_settings:
            self.guard(call, settings)
        self.show_engine()

    def renew_engine(self) -> None:
        """Another model is to answer from now on; what was remembered is forgotten."""
        self._make_engine()
        self.completer.clear()
        self.show_engine()
        if self._language is not None:
            self.workers.background.submit(self.engine.warm, self._language)

    def _make_engine(self) -> None:
        old, self.engine = self.engine, self._make_engines(self.settings.wanted)
        self.engine.changed = self.engine_changed
        self.workers.background.submit(old.close)

    def engine_changed(self) -> None:
        """From any thread: the status may differ now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.show_engine)

    def show_engine(self, language: str | None = None) -> None:
        """Says which engine answers for the language, or for the one that was shown last."""
        self._language = language or self._language
        works, text = self.engine.describe(self._language)
        self.status.busy("engine", self.engine.is_loading)
        kind: Kind = "Warning" if self.engine.stands_in(self._language) else "Normal"
        self.status.report("engine", Report(kind if works else "Error", text))

    def set_roots(self, roots: tuple[str, ...]) -> None:
        """The workspace's folders changed; settings are those of the first one."""
        first_changed, self.roots = roots[:1] != self.roots[:1], roots
        if first_changed and self.capabilities.configuration:
            self.start_task(self._pull_settings())

    def guard(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls; an exception is logged and gives None."""
        try:
            return call(*arguments)
        except Exception:
            log.exception("%s failed", getattr(call, "__qualname__", call))
            return None

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls would show every exception to the user as a message box."""
        log.error("%s: %s", getattr(source, "__name__", source), error)

    def close(self) -> None:
        """Ends the engine's process and the room; quick, whatever still runs."""
        self.tickets.end_all()
        for task in list(self._tasks):
            task.cancel()
        self.guard(self.context.close)
        self.guard(self.engine.close)
        self.workers.close()

    _loop: asyncio.AbstractEventLoop | None = None

    def _initialize(self, params: types.InitializeParams) -> None:
        self._loop = asyncio.get_running_loop()
        if params.process_id is not None and is_alive(params.process_id):
            self.client_process = params.process_id
        self.capabilities = Capabilities(params.capabilities)
        chosen = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        self.documents.encoding = _ENCODINGS[chosen]
        self.roots = _roots(params)
        self._first_settings = params.initialization_options
        self.apply_settings(None)
        for call in self._on_initialize:
            self.guard(call, params)

    def _initialized(self, _: types.InitializedParams) -> Coroutine[Any, Any, None] | None:
        self.status.open()
        self._register_for_settings()
        for call in self._on_ready:
            self.guard(call)
        return self._pull_settings() if self.capabilities.configuration else None

    def _settings_changed(
        self, params: types.DidChangeConfigurationParams
    ) -> Coroutine[Any, Any, None] | None:
        """Clients that can be asked send no settings here, or all of an editor's."""
        if self.capabilities.configuration:
            return self._pull_settings()
        if params.settings is not None:
            self.apply_settings(params.settings)
        return None

    async def _pull_settings(self) -> None:
        scope = path_uri(self.roots[0]) if self.roots else None
        item = types.ConfigurationItem(scope_uri=scope, section=SECTION)
        answer = await self.workspace_configuration_async(types.ConfigurationParams([item]))
        if answer and answer[0] is not None:
            self.apply_settings(answer[0])

    def _register_for_settings(self) -> None:
        """Some clients tell of changed settings only where they were asked to."""
        if self.capabilities.register_configuration:
            registration = types.Registration(
                "clover-settings",
                types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                types.DidChangeConfigurationRegistrationOptions(section=SECTION),
            )
            self.client_register_capability(types.RegistrationParams([registration]))


def _for_methods(
    register: Callable[[Callable[..., Any]], Any],
) -> Callable[[F], F]:
    """pygls sets attributes on what it registers, which a bound method does not have."""

    def decorate(handler: F) -> F:
        register(functools.partial(handler) if inspect.ismethod(handler) else handler)
        return handler

    return decorate


def _roots(params: types.InitializeParams) -> tuple[str, ...]:
    folders = [folder.uri for folder in params.workspace_folders or ()]
    if not folders and params.root_uri:
        folders = [params.root_uri]
    paths = [path for uri in folders if (path := folder_path(uri)) is not None]
    if not paths and params.root_path and not params.root_uri:
        paths = [os.path.abspath(params.root_path)]
    return tuple(dict.fromkeys(paths))
