"""Where this project keeps what it can make again: indexes, compiled code, converted models.

Torch-free and free of everything else, since the language server and the command use it, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """CLOVER_CACHE_DIR, or the platform's folder for caches. It may not exist yet."""
    if chosen := os.environ.get("CLOVER_CACHE_DIR"):
        return Path(chosen).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "clover-code"
