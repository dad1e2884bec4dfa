"""Reading what a program writes to a terminal."""

from __future__ import annotations

import os


def read_all(terminal: int) -> bytes:
    """What a terminal shows until its program ends."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        if not piece:
            os.close(terminal)
            return shown
        shown += piece
