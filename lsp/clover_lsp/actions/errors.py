"""Why an action did nothing: one line that names the next step, shown to the user as it is."""

from __future__ import annotations


class ActionRefused(Exception):
    """Nothing was changed; the message says why and what to do."""
