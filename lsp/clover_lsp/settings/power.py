"""Whether to save power: then nothing is computed that nobody has asked for yet."""

from __future__ import annotations

import time
from typing import Literal

PowerName = Literal["auto", "full", "low"]

_LOOK_S = 30.0
"""A battery is looked at so often at most."""


class Power:
    """Any thread."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._on_battery = False

    def is_low(self, wanted: PowerName) -> bool:
        """True where the user wants it so, and for "auto" where a battery feeds the machine."""
        if wanted != "auto":
            return wanted == "low"
        now = time.monotonic()
        if now - self._looked > _LOOK_S:
            self._looked, self._on_battery = now, on_battery()
        return self._on_battery


def on_battery() -> bool:
    """Does the machine run on its battery? False where that cannot be told."""
    import psutil

    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError, ValueError):  # a platform without the call
        return False
    return battery is not None and battery.power_plugged is False
