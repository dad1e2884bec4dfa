"""What became of suggestions: the Copilot language server's notifications and our own command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clover_lsp.server import CloverServer
from clover_lsp.settings.settings import Settings
from clover_lsp.stats import Event, Recorder

ACCEPTED = "clover.accepted"
"""The command of every item; clients run it after the insertion."""
DID_SHOW = "textDocument/didShowCompletion"
DID_ACCEPT_PART = "textDocument/didPartiallyAcceptCompletion"


@dataclass(slots=True)
class _Acceptance:
    server: CloverServer
    recorder: Recorder | None = None

    def configure(self, settings: Settings) -> None:
        self.recorder = Recorder() if settings.statistics else None

    def record(self, event: Event) -> None:
        if self.recorder is not None:
            self.server.workers.background.submit(self.recorder.record, event)

    def shown(self, params: Any) -> None:
        if isinstance(params, dict):
            self.server.offers.shown(params.get("item"))

    def partly(self, params: Any) -> None:
        if isinstance(params, dict) and isinstance(params.get("acceptedLength"), int):
            self.server.offers.partly_accepted(params.get("item"), params["acceptedLength"])

    def accepted(self, *arguments: Any) -> None:
        offer = self.server.offers.accepted(arguments[0] if arguments else None)
        if offer is not None:
            self.server.completer.accepted(offer.id)


def register(server: CloverServer) -> None:
    acceptance = _Acceptance(server)
    server.offers.record_with(acceptance.record)
    server.on_settings(acceptance.configure)
    server.feature(DID_SHOW)(acceptance.shown)
    server.feature(DID_ACCEPT_PART)(acceptance.partly)
    server.command(ACCEPTED)(acceptance.accepted)
