"""The served model that writes next edits, as the language server asks it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from clover_engine.api import CancelToken
from clover_engine.choice.wanted import WantedEdits
from clover_engine.clients.edit_layouts import Scene
from clover_engine.clients.edit_model import EditModel
from clover_engine.errors import EngineError, RequestCancelled
from clover_engine.privacy.secrets import redact

log = logging.getLogger(__name__)

__all__ = ["EditServer", "Scene"]

PAUSE_S = 30.0
"""A server that failed is asked nothing for so long."""
MOST_CHARS = 200_000
"""Longer documents are not asked about."""


class EditServer:
    """Proposes, or does not: what goes wrong is logged. Any thread."""

    def __init__(self, wanted: WantedEdits, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises RequestError for an address or a layout that cannot be used."""
        self.name = wanted.model or wanted.layout
        self._clock, self._not_before = clock, 0.0
        self._model = EditModel(
            wanted.url, model=wanted.model, layout=wanted.layout, api_key=wanted.api_key
        )

    def next_edit(
        self, scene: Scene, cancel: CancelToken, deadline_s: float
    ) -> tuple[int, int, str] | None:
        """Replace characters [start, end) by a text; None for no proposal.

        Nothing is sent of a document that holds a secret, or held one a moment ago.
        """
        if self._clock() < self._not_before or len(scene.text) > MOST_CHARS:
            return None
        if any(redact(text) != text for text in (scene.text, *scene.former)):
            return None
        try:
            return self._model.next_edit(scene, cancel, deadline_s)
        except RequestCancelled:
            return None
        except EngineError as error:
            self._not_before = self._clock() + PAUSE_S
            log.warning("the model of next edits: %s", error)
            return None

    def close(self) -> None:
        self._model.close()
