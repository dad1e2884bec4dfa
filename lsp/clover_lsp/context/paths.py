"""URIs of the editor as paths."""

from __future__ import annotations

from pathlib import Path

from clover_engine.privacy.uris import to_path


def same_notebook(one: str, other: str) -> bool:
    """Whether two URIs are different cells of one notebook."""
    a, b = one.partition("#"), other.partition("#")
    return one != other and bool(a[2]) and bool(b[2]) and to_path(one) == to_path(other)


def relative(path: Path, root: Path) -> str | None:
    """The path below a root with posix separators, or None if it is not below it."""
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return None
