"""What can go wrong with the fake server of `testing_server`, on request."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal[
    "status",  # answers with an error status
    "redirect",  # sends the client elsewhere
    "silent",  # reads the request and never says a word, as behind a dead network
    "stall",  # says no more after some events, and keeps the connection
    "drip",  # one byte at a time, for ever, that never makes an answer
    "cut",  # resets the connection after some events
    "end",  # closes the connection in the middle of a stream
    "garbage",  # JSON that is none
    "types",  # JSON of wrong types
    "huge",  # an answer, or an event, without end
    "not-utf8",  # bytes that are no text
    "html",  # a page, as a proxy's
]
IN_STREAMS = frozenset({"stall", "drip", "cut", "end", "garbage", "types", "huge", "not-utf8"})
"""Those that can begin in the middle of a stream."""


@dataclass
class Fault:
    """Something that goes wrong with the next requests."""

    kind: FaultKind
    path: str = "/generate"
    """Which requests; empty: all."""
    after: int = 0
    """Events of a stream that are sent first."""
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "something broke"
    times: int | None = 1
    """So many requests; None: until it is taken out of the list."""


def reset(connection: socket.socket) -> None:
    """Ends a connection at once, with a reset instead of an end."""
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
