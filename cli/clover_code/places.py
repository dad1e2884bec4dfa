"""FILE:LINE:COL on the command line, and the text on both sides of such a place."""

from __future__ import annotations

import io
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from clover_code.errors import UserError
from clover_engine.line_ends import LINE_END, line_starts, to_lf

STDIN = "<standard input>"
"""Stands for "-" as FILE: argparse would take "-:12:5" for an option."""


@dataclass(frozen=True, slots=True)
class Place:
    """FILE:LINE:COL; `path` is None for standard input."""

    path: Path | None
    line: int
    column: int

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)


@dataclass(frozen=True, slots=True)
class CursorText:
    """The text around the place, with ``\\n`` line ends, and the file's own line end."""

    prefix: str
    suffix: str
    newline: str


def parse_place(text: str) -> Place:
    """Splits FILE:LINE:COL; the file's name may hold colons."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not all(_is_number(p) for p in parts[1:]):
        raise UserError(f"{text!r} is not FILE:LINE:COL with LINE and COL from 1, as in a.py:12:5")
    path = None if parts[0] in ("-", STDIN) else Path(parts[0])
    return Place(path, int(parts[1]), int(parts[2]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= 1


def read_text(place: Place) -> str:
    """The file's text: UTF-8, or what a Python file declares; a byte order mark is left out."""
    try:
        data = sys.stdin.buffer.read() if place.path is None else place.path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {place.name}: {error.strerror or error}") from None
    encoding = "utf-8-sig"
    try:
        if place.path is not None and place.path.suffix in (".py", ".pyi"):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (UnicodeDecodeError, SyntaxError, LookupError):
        raise UserError(f"{place.name} is not text in UTF-8 or its declared encoding") from None
    if "\0" in text:
        raise UserError(f"{place.name} is a binary file; give a text file")
    return text


def cut(text: str, place: Place) -> CursorText:
    """Divides the text at the place."""
    starts = line_starts(text)
    if place.line > len(starts):
        raise UserError(f"{place.name} ends at line {len(starts)}; there is no line {place.line}")
    start = starts[place.line - 1]
    end = LINE_END.search(text, start)
    width = (end.start() if end else len(text)) - start
    if place.column > width + 1:
        raise UserError(
            f"line {place.line} of {place.name} has {width} characters; "
            f"COL can be 1 to {width + 1}, not {place.column}"
        )
    at = start + place.column - 1
    prefix, suffix = to_lf(text[:at]), to_lf(text[at:])
    crlf = text.count("\r\n")
    return CursorText(prefix, suffix, "\r\n" if crlf > text.count("\n") - crlf else "\n")
