"""How a run shows itself while it goes on: a live line, or plain lines."""

from __future__ import annotations

import math
import os
import shutil
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from clover_patcher.progress import Stage

_REDRAW_S = 0.1
_REPEAT_S = 10.0
"""How often a plain line is printed within one stage."""


class Screen:
    """Shows progress on a terminal as one line, in a CI log as lines, else not at all."""

    def __init__(self, stream: TextIO, *, ci: bool = False, name: str = "fix") -> None:
        """`name`: of the subcommand."""
        self._stream, self._name = stream, name
        self._ci = ci
        self._live = not ci and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = -math.inf
        self._stage: Stage | None = None

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        """Shows where the run is, at most ten times a second within one stage."""
        now = time.monotonic()
        pause = _REPEAT_S if self._ci else _REDRAW_S
        if stage == self._stage and now - self._shown_at < pause:
            return
        if self._live or self._ci:
            self._stage, self._shown_at = stage, now
            parts = _parts(stage, message, numbers)
            if self._live:
                self._draw(f"{stage:9}  " + "  ".join(parts))
            else:
                print(f"clover-code {self._name}: {stage}: {', '.join(parts)}", file=self._stream)

    def clear(self) -> None:
        """Removes the live line."""
        if self._live and self._stage is not None:
            self._draw("")
            self._stage = None

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()


def _parts(stage: Stage, message: str, numbers: dict[str, float]) -> list[str]:
    """The numbers first: the message may be cut off."""
    parts = []
    if "tried" in numbers:
        parts.append(f"{numbers['tried']:.0f} tried")
    if numbers.get("passing"):
        parts.append(f"{numbers['passing']:.0f} passing")
    if "left_s" in numbers:
        parts.append(f"{numbers['left_s']:.0f} s left")
    text = printable(message)
    return [*parts, f"best: {text}" if stage == "found" else text]


def printable(text: str) -> str:
    """The text without control characters: source code can hold anything."""
    return "".join(char if char.isprintable() else " " for char in text)
