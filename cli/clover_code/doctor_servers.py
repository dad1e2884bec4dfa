"""Does a model server answer? One tiny completion through the client that editors use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from clover_engine.api import InfillRequest
from clover_engine.errors import EngineError

if TYPE_CHECKING:
    from clover_engine.choice.servers import Server
    from clover_engine.choice.wanted import Wanted

ANSWER_S = 30.0


def look_at_servers(
    wanted: Wanted, environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[str, str, str]]:
    """For every server that has an address: its name, what it said, and what mends it (empty
    where it answers)."""
    from clover_engine.choice.servers import configured
    from clover_engine.choice.wanted import SERVERS

    for name in SERVERS:
        server = configured(name, wanted, environ)
        if server is not None and wanted.engine in ("auto", name):
            detail, fix = _look_at(server)
            yield name, detail, fix


def _look_at(server: Server) -> tuple[str, str]:
    from clover_engine.choice.servers import served_engine, where_to_set

    fix = f"start the server, or set {where_to_set(server.name)} to where it listens"
    try:
        engine = served_engine(server)
    except EngineError as error:
        return str(error), fix
    try:
        health = engine.health()
        if not health.ready:
            return health.detail, fix
        begun = time.monotonic()
        request = InfillRequest("def add(a, b):\n    return ", max_tokens=4, deadline_s=ANSWER_S)
        result = engine.infill(request)
    except EngineError as error:
        return str(error), fix
    finally:
        engine.close()
    seconds = time.monotonic() - begun
    if result.choices[0].finish_reason == "deadline":
        return f"no answer within {ANSWER_S:g} s", fix
    sends = f", sends code to {server.sends_to}" if server.sends_to else ""
    return f"{health.model} at {server.url}: answered in {seconds:.2f} s{sends}", ""
