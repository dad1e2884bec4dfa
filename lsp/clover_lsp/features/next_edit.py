"""`textDocument/copilotInlineEdit`: the next edit, away from the cursor, or null.

As the Copilot language server has it, with two more fields in each edit: `kind` (rename, repeat,
signature, diagnostic, model) and `reason`, in words. `range` is where to jump to. Clients say what
they show with `textDocument/didShowInlineEdit`; an edit that was shown twice and not taken, or was
rejected, is not proposed again.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.exceptions import JsonRpcInvalidParams

from clover_engine.choice.edits import EditServer, Scene
from clover_engine.choice.wanted import WantedEdits
from clover_engine.errors import EngineError
from clover_lsp.actions.next_edit import Memory
from clover_lsp.actions.proposals import Moment, Proposal
from clover_lsp.actions.search import Search
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.context.types import Edit
from clover_lsp.documents.documents import Snapshot
from clover_lsp.features.arguments import plain
from clover_lsp.server import CloverServer

REQUEST = "textDocument/copilotInlineEdit"
DID_SHOW = "textDocument/didShowInlineEdit"
ACCEPT = "clover.acceptNextEdit"
"""The command of every edit: clients run it after making the edit."""
REJECT = "clover.rejectNextEdit"
"""With the same argument: the user does not want it."""
_REMEMBERED = 64
_INVOKED = 1
MODEL_S = 4.0
"""So long a served model may think about the next edit."""
_CONVERTER = get_converter()


@dataclass(frozen=True, slots=True)
class _Offer:
    snapshot: Snapshot
    proposal: Proposal


@dataclass(slots=True)
class _NextEdit:
    server: CloverServer
    search: Search
    memories: dict[str, Memory] = field(default_factory=dict)
    offers: OrderedDict[str, _Offer] = field(default_factory=OrderedDict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    last_shown: dict[str, int | None] = field(default_factory=dict)
    """By document, the version for which an edit was shown."""

    wanted: WantedEdits = field(default_factory=WantedEdits)
    model: EditServer | None = None
    """The served model that is asked where no rule says what follows, as the settings are."""

    def request(self, params: Any) -> Awaitable[dict[str, object] | None] | None:
        uri, version, position, asked = _read(params)
        snapshot = self.server.documents.get(uri)
        if snapshot is None or snapshot.version != version:
            return None  # it is about a text that is gone, or not here yet
        if snapshot.is_too_large or not self.server.settings.next_edit.enabled:
            return None
        memory = self.memories.setdefault(uri, Memory())
        if self.last_shown.pop(uri, version) != version:
            memory.passed_over()
        moment = Moment(
            snapshot.text,
            snapshot.language,
            snapshot.offset(position),
            self.server.buffers.log.former(uri),
            self.server.buffers.log.problems(snapshot),
            asked,
        )
        return self._answer(snapshot, moment, memory)

    async def _answer(
        self, snapshot: Snapshot, moment: Moment, memory: Memory
    ) -> dict[str, object] | None:
        ticket = self.server.tickets.take(_ticket_key(snapshot.uri))
        search = functools.partial(self.search.run, moment, copy.deepcopy(memory), ticket.cancel)
        work = asyncio.ensure_future(self.server.workers.edit(search))
        try:
            found = await ticket.unless_over(work)
            if not found and not ticket.is_over:
                found = await self._written(snapshot, moment, memory, ticket)
        finally:
            ticket.end()  # also where the client cancelled: the search stops at its next look
            self.server.tickets.done(ticket)
        if not found or not self.server.documents.is_current(snapshot):
            return None
        return {"edits": [self._item(snapshot, proposal) for proposal in found]}

    async def _written(
        self, snapshot: Snapshot, moment: Moment, memory: Memory, ticket: Ticket
    ) -> list[Proposal]:
        """What the served model proposes, where the user named one; at most one edit."""
        model = self._model()
        if model is None or not moment.history or self.server.context.withheld(snapshot.uri):
            return []
        if "\r" in snapshot.text:
            return []
        scene = Scene(snapshot.uri.rpartition("/")[2], moment.text, moment.cursor, moment.history)
        ask = functools.partial(model.next_edit, scene, ticket.cancel, MODEL_S)
        found = await ticket.unless_over(asyncio.ensure_future(self.server.workers.edit(ask)))
        if found is None:
            return []
        start, end, new = found
        proposal = Proposal(start, end, new, "model", 0.0, f"suggested by {model.name}")
        return [proposal] if memory.allows(moment.text, proposal) else []

    def _model(self) -> EditServer | None:
        wanted = self.server.settings.next_edit.wanted
        if wanted != self.wanted:
            if self.model is not None:
                self.server.workers.background.submit(self.model.close)
            self.wanted, self.model = wanted, None
            try:
                self.model = EditServer(wanted) if wanted.url else None
            except EngineError as error:
                kind = types.MessageType.Warning
                message = f"clover-code: clover.nextEdit: {error}"
                self.server.window_show_message(types.ShowMessageParams(kind, message))
        return self.model

    def _item(self, snapshot: Snapshot, proposal: Proposal) -> dict[str, object]:
        number = f"next-{next(self.numbers)}"
        self.offers[number] = _Offer(snapshot, proposal)
        while len(self.offers) > _REMEMBERED:
            self.offers.popitem(last=False)
        return {
            "text": proposal.new,
            "textDocument": {"uri": snapshot.uri, "version": snapshot.version},
            "range": _CONVERTER.unstructure(snapshot.range(proposal.start, proposal.end)),
            "command": {"title": "Next edit made", "command": ACCEPT, "arguments": [number]},
            "kind": proposal.kind,
            "reason": proposal.reason,
        }

    def shown(self, params: Any) -> None:
        item = plain(params).get("item") if isinstance(plain(params), dict) else None
        command = item.get("command") if isinstance(item, dict) else None
        arguments = command.get("arguments") if isinstance(command, dict) else None
        offer = self._offer(arguments[0] if isinstance(arguments, list) and arguments else None)
        if offer is not None:
            uri = offer.snapshot.uri
            self.memories.setdefault(uri, Memory()).shown(offer.snapshot.text, offer.proposal)
            self.last_shown[uri] = offer.snapshot.version

    def accepted(self, *arguments: object) -> None:
        if (offer := self._offer(next(iter(arguments), None))) is not None:
            uri = offer.snapshot.uri
            self.last_shown.pop(uri, None)
            self.memories.setdefault(uri, Memory()).accepted()

    def rejected(self, *arguments: object) -> None:
        if (offer := self._offer(next(iter(arguments), None))) is not None:
            uri = offer.snapshot.uri
            self.last_shown.pop(uri, None)
            self.memories.setdefault(uri, Memory()).reject(offer.snapshot.text, offer.proposal)

    def changed(self, before: Snapshot, snapshot: Snapshot, edits: Sequence[Edit]) -> None:
        self.server.tickets.end(_ticket_key(snapshot.uri))

    def closed(self, uri: str) -> None:
        self.server.tickets.end(_ticket_key(uri))
        self.memories.pop(uri, None)
        self.last_shown.pop(uri, None)

    def _offer(self, number: object) -> _Offer | None:
        return self.offers.get(number) if isinstance(number, str) else None


def _ticket_key(uri: str) -> str:
    return f"next edit of {uri}"


def _read(params: Any) -> tuple[str, int, types.Position, bool]:
    """(uri, version, position, asked for by hand). Raises the protocol's InvalidParams."""
    data = plain(params)
    try:
        document, position = data["textDocument"], data["position"]
        uri, version = document["uri"], document["version"]
        place = types.Position(position["line"], position["character"])
        if not isinstance(uri, str) or not isinstance(version, int):
            raise TypeError("`uri` is a text and `version` a number")
        asked = (data.get("context") or {}).get("triggerKind") == _INVOKED
    except Exception as error:
        raise JsonRpcInvalidParams(
            f"{REQUEST} takes {{textDocument: {{uri, version}}, position, context?}}: {error}"
        ) from error
    return uri, version, place, asked


def register(server: CloverServer) -> None:
    feature = _NextEdit(server, Search(server.workers.edit_helper))
    server.buffers.on_change(feature.changed)
    server.buffers.on_close(feature.closed)
    server.feature(REQUEST)(feature.request)
    server.feature(DID_SHOW)(feature.shown)
    server.command(ACCEPT)(feature.accepted)
    server.command(REJECT)(feature.rejected)
