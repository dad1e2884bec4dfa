"""Addresses of editors' documents as paths.

`to_path` is for documents that are files. `paths_in` is for the question what a document may be,
whatever its scheme: versions of a file (`git:`, `gitlens:`, `fugitive:`, `gitsigns:`,
`diffview:`), files elsewhere (`vscode-vfs:`, `vscode-remote:`, `scp:`, `sftp:`), parts of archives
(`zip:`, `jar:`), documents that are not saved (`untitled:`), cells (`vscode-notebook-cell:`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

_FILE_SCHEMES = ("file", "vscode-notebook-cell")
_INSIDE_GIT = re.compile(
    r"(?P<top>.*?)/?\.git(?:/(?:worktrees|modules)/[^/]+)*/+(?P<rest>.+)", re.S
)
_MOST_DECODINGS = 3


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


def paths_in(uri: str) -> tuple[str, ...]:
    """All paths that a URI may mean, as they are and with the top of a repository in front of a
    path inside of it; decoded, with posix separators. Never empty."""
    try:
        parts = urlsplit(uri)
        raw = [parts.path, parts.fragment, *_values(parts.query)]
    except ValueError:
        raw = [uri.partition(":")[2]]
    found: dict[str, None] = {}
    for text in raw:
        for decoded in _decodings(text):
            for path in _inner(decoded.replace("\\", "/")):
                found[path] = None
    return tuple(path for path in found if path) or (uri,)


def _values(query: str) -> Iterator[str]:
    """Texts of a query: those of JSON, as VS Code's git has it, or of name=value pairs."""
    for decoded in _decodings(query):
        yield from _texts(decoded)
    yield from (value for _, value in parse_qsl(query))
    if query and "=" not in query and not query.startswith(("{", "%7B")):
        yield query


def _texts(text: str) -> Iterator[str]:
    try:
        value = json.loads(text)
    except ValueError:
        return
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list):
            pending += each


def _decodings(text: str) -> Iterator[str]:
    """The text, and what is left of it when percent-encodings are taken off, more than once
    where editors put one inside another."""
    for _ in range(_MOST_DECODINGS):
        yield text
        plain = unquote(text, errors="surrogateescape")
        if plain == text:
            return
        text = plain
    yield text


def _inner(path: str) -> Iterator[str]:
    """A path, and the one inside of it: of a member in an archive, of a version in git."""
    path = path.rstrip("/")
    if os.name == "nt" and path[:1] == "/" and path[2:3] == ":":
        path = path[1:]
    yield path
    for mark in ("::", "!/", "!", "?", "#", ":"):
        if mark in path:
            yield path.rpartition(mark)[2]
    if match := _INSIDE_GIT.fullmatch(path):
        version, _, rest = match["rest"].partition("/")
        rest = rest or version
        yield rest.rpartition(":")[2]
        yield f"{match['top']}/{rest.rpartition(':')[2]}"
    if path.endswith(".git"):
        yield path.removesuffix(".git")
