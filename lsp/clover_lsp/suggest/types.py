"""Suggestions as data. Text has LF line ends here; the server gives it the document's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["model", "lookup", "reuse", "prefetch"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A raw text for a place, before it is fit to be shown."""

    text: str
    confidence: float
    """0..1, calibrated: the share of such texts that are exactly right."""
    origin: Origin
    complete: bool = True
    """False where generation was cut off (length, deadline, cancellation)."""
    model: str = ""
    """Which model made it."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text to show at the cursor.

    Accepting replaces [-replace_before, +replace_after) characters around the cursor, all on the
    cursor's line, by `text`; `text` starts with the characters it replaces before the cursor.
    """

    text: str
    confidence: float
    origin: Origin
    replace_before: int = 0
    replace_after: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Popup:
    """The completion item selected in the editor's own popup (selectedCompletionInfo)."""

    text: str
    replace_before: int
    """How many characters before the cursor it replaces."""
    replace_after: int = 0
