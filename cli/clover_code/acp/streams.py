"""Standard input and output as the protocol's alone: what checks and git print goes elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys

LIMIT = 64 << 20
"""Longest message: clients send whole files."""


async def take_over() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The client's messages, and ours to it; others read nothing, and print to standard error."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), outgoing
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
