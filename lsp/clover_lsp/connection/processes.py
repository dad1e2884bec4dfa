"""Looking after another process."""

from __future__ import annotations

import os


def is_alive(process: int) -> bool:
    """Is there such a process on this machine?"""
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
