"""What a failure's message or a program's output quotes from files that may not be read.

Tracebacks show lines of the files they go through, and assertions the texts that stand in them.
A conversation about a failure must not carry those of a withheld file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from clover_engine.privacy.secrets import MARK

MAX_BYTES = 1_000_000
SHORTEST = 6
"""Shorter lines and texts of a file say nothing about it (`pass`, `else:`, `""`)."""
_PATH = re.compile(
    r"\"([^\"\n]+)\"|'([^'\n]+)'|[\w.~+@-]*(?:[/\\][\w.~+@-]+)+|[\w~+@-]*\.[\w.~+@-]+"
)
"""A path, or anything in quotes, which may be one with blanks."""
_TEXT = re.compile(r"([\"'])((?:(?!\1)[^\n\\]|\\.){6,})\1|[=:]\s*([^\s\"'#][^\n#]{5,})")


def hide_quotes(text: str, top: Path, is_withheld: Callable[[str], bool]) -> str:
    """The text with what it quotes from withheld files replaced by as many `*`.

    A file counts where `text` names it: by its path below `top`, or by a path that ends with that
    (as in a copy of the tree). `is_withheld` takes the path below `top`, with posix separators.
    """
    quotes: set[str] = set()
    for path in _named(text, top):
        if is_withheld(path):
            quotes.update(_pieces(top / path))
    for quote in sorted(quotes, key=len, reverse=True):
        if quote in text:
            text = text.replace(quote, MARK * len(quote))
    return text


def _named(text: str, top: Path) -> Iterator[str]:
    """Files below `top` that a text names, each once."""
    seen: set[str] = set()
    for match in _paths(text):
        parts = [part for part in re.split(r"[/\\]", match) if part not in ("", ".")]
        for first in range(len(parts)):
            path = "/".join(parts[first:])
            if path in seen or ".." in parts[first:]:
                continue
            seen.add(path)
            try:
                if (top / path).is_file():
                    yield path
                    break
            except OSError:
                continue


def _paths(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for match in _PATH.finditer(line):
            quoted = match[1] or match[2]
            if quoted is None:
                yield match[0].rstrip(".")
            else:
                yield quoted
                yield from (inner[0].rstrip(".") for inner in _PATH.finditer(quoted))


def _pieces(path: Path) -> Iterator[str]:
    """Lines of a file and the texts in them, as a message may quote them."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for line in content.splitlines():
        whole = line.strip()
        if len(whole) >= SHORTEST:
            yield whole
        for match in _TEXT.finditer(line):
            piece = (match[2] or match[3]).strip()
            if len(piece) >= SHORTEST:
                yield piece
