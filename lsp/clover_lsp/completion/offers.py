"""What was offered to the client: identities for acceptance, and the events for statistics."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clover_lsp.documents.text import units
from clover_lsp.stats import Event, EventKind

REMEMBERED = 500


@dataclass(frozen=True, slots=True)
class Offer:
    """One suggestion as the client got it."""

    id: str
    uri: str
    language: str
    origin: str
    text: str
    """The item's `insertText`."""
    ms: float
    model: str = ""
    """Which model made it; empty for a look-up."""

    @property
    def chars(self) -> int:
        return units(self.text, "utf-16")


class Offers:
    """Event loop only. A suggestion that is typed through keeps its id and counts once.

    Clients that say what they show (`textDocument/didShowCompletion`) decide what counts as
    shown; for others everything that they were given does.
    """

    def __init__(self) -> None:
        self._record: Callable[[Event], None] = lambda event: None
        self._session = os.urandom(4).hex()
        self._offers: OrderedDict[str, Offer] = OrderedDict()
        self._counted: set[tuple[EventKind, str]] = set()
        self._client_tells = False
        self.last: Offer | None = None
        """What the client was given last."""

    def record_with(self, record: Callable[[Event], None]) -> None:
        """Who gets the events."""
        self._record = record

    def id_of(self, identity: int) -> str:
        """The id of a suggestion with this identity in `suggest.reuse.Shown`."""
        return f"{self._session}-{identity}"

    def offered(self, offer: Offer) -> None:
        """The offer goes to the client now. The text of a first offer stays its text."""
        self.last = offer
        self._offers.setdefault(offer.id, offer)
        self._offers.move_to_end(offer.id)
        while len(self._offers) > REMEMBERED:
            gone, _ = self._offers.popitem(last=False)
            self._counted -= {(kind, gone) for kind in ("shown", "accepted")}
        if not self._client_tells:
            self._count("shown", offer.id)

    def shown(self, item: Any) -> None:
        """The client shows the item (plain JSON)."""
        self._client_tells = True
        if (offer := self._find(item)) is not None:
            self._count("shown", offer.id)

    def accepted(self, id: object) -> Offer | None:
        """The client inserted the whole item."""
        offer = self._offers.get(id) if isinstance(id, str) else None
        if offer is not None:
            self._count("shown", offer.id)
            self._count("accepted", offer.id)
        return offer

    def partly_accepted(self, item: Any, length: int) -> Offer | None:
        """The client inserted the first `length` UTF-16 units of the item's text, all in all."""
        offer = self._find(item)
        if offer is not None and length > 0:
            self._count("shown", offer.id)
            self._write("partial", offer, min(length, offer.chars))
        return offer

    def _find(self, item: Any) -> Offer | None:
        """By the id in the item's command, else by its text, newest first."""
        if not isinstance(item, dict):
            return None
        command = item.get("command")
        arguments = command.get("arguments") if isinstance(command, dict) else None
        if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
            return self._offers.get(arguments[0])
        text = item.get("insertText")
        return next((o for o in reversed(self._offers.values()) if o.text == text), None)

    def _count(self, kind: EventKind, id: str) -> None:
        if (kind, id) not in self._counted:
            self._counted.add((kind, id))
            offer = self._offers[id]
            self._write(kind, offer, offer.chars)

    def _write(self, kind: EventKind, offer: Offer, chars: int) -> None:
        self._record(Event(kind, offer.id, offer.language, offer.origin, chars, round(offer.ms, 1)))
