"""Line ends as editors and Python have them: LF, CRLF and CR, nothing else."""

from __future__ import annotations

import re
from itertools import accumulate

LINE_END = re.compile(r"\r\n|\n|\r")


def to_lf(text: str) -> str:
    """The text with every line end as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def line_starts(text: str) -> list[int]:
    """Offsets of the lines' first characters; there is always at least one line."""
    if "\r" in text:
        return [0, *(found.end() for found in LINE_END.finditer(text))]
    return list(accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0))
