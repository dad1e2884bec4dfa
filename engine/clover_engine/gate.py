"""When a generated text is good enough to be shown without being asked for."""

from __future__ import annotations

from clover_engine.api import Infill

SHOWN_CONFIDENCE = 0.5
"""Mean token probability from which a completion is shown; the one place that says so."""


def is_shown(infill: Infill) -> bool:
    """True for text that an editor would show by itself: there is some, and it is sure enough."""
    return bool(infill.text.strip()) and infill.confidence >= SHOWN_CONFIDENCE
