"""URIs of the editor as paths."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FILE_SCHEMES = ("file", "vscode-notebook-cell")


def to_path(uri: str) -> Path | None:
    """The file behind a URI; None for documents that are on no disk (untitled, git, …).

    A cell of a notebook has the notebook's path.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme not in _FILE_SCHEMES:
        return None
    path = unquote(parts.path, errors="surrogateescape")
    if os.name == "nt":
        path = path.lstrip("/") if path[2:3] == ":" else path
        path = f"//{parts.netloc}{path}" if parts.netloc else path
    return Path(path) if path and "\0" not in path else None


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


def lf(text: str) -> str:
    """The text with LF line ends."""
    return text.replace("\r\n", "\n") if "\r" in text else text
