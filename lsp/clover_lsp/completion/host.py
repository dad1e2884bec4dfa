"""What completion asks of the server that it works for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from clover_engine.choice.engines import Engines
from clover_lsp.completion.metrics import Metrics
from clover_lsp.completion.offers import Offers
from clover_lsp.connection.scheduler import Tickets, Workers
from clover_lsp.context.types import ContextRoom, Place
from clover_lsp.documents.documents import Documents, Snapshot
from clover_lsp.documents.workspace import Workspace
from clover_lsp.settings.power import Power
from clover_lsp.settings.settings import Settings


class Host(Protocol):
    """`server.CloverServer` is the one there is."""

    buffers: Workspace
    engine: Engines
    metrics: Metrics
    offers: Offers
    power: Power
    settings: Settings
    tickets: Tickets
    workers: Workers

    @property
    def context(self) -> ContextRoom: ...

    @property
    def documents(self) -> Documents: ...

    def place(self, snapshot: Snapshot, offset: int) -> Place: ...

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...
