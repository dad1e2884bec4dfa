"""Where copies are made, and what their folders are called.

Every command looks there when it starts, so nothing heavy is imported here. The home folder is
no such place: it is never looked at, even where TMPDIR names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PREFIX = "clover-fix-"
MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one."""
_SHARED = ("/tmp", "/var/tmp")
_GIVEN = ("TMPDIR", "TEMP", "TMP")
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{8}}")


def is_folder_name(name: str) -> bool:
    """Whether a folder of ours could be called so; a user's own folder may be, too."""
    return _NAME.fullmatch(name) is not None


def places(root: Path | None = None) -> list[Path]:
    """Existing folders that may hold copies, links resolved, the preferred one first.

    Not inside of `root`. TMPDIR (or TEMP, or TMP) has the last word where it can be used.
    """
    given = next((os.environ[name] for name in _GIVEN if os.environ.get(name)), None)
    wanted = [Path(given)] if given else [MEMORY]
    found = []
    for place in [*wanted, *map(Path, _SHARED)]:
        path = place.resolve()
        inside = root is not None and path.is_relative_to(root)
        if path.is_dir() and os.access(path, os.W_OK) and not inside and path != _home():
            found.append(path)
    return found[:1] if given else list(dict.fromkeys(found))


def folders(root: Path | None = None) -> Iterator[Path]:
    """Folders in those places that are called like ours."""
    for place in places(root):
        with suppress(OSError), os.scandir(place) as entries:
            names = [entry.name for entry in entries if is_folder_name(entry.name)]
            yield from (place / name for name in names)


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None
