"""A served model that writes the next edit, over ``/v1/completions``."""

from __future__ import annotations

import contextlib
from typing import Any

from clover_engine.api import CancelToken
from clover_engine.clients.call import Call, valid
from clover_engine.clients.edit_layouts import Scene, layout_for
from clover_engine.clients.http import DeadlineReached, HttpTransport
from clover_engine.clients.openai_answer import Answer

PATH = "/v1/completions"
_TOKENS = 512


class EditModel:
    """One model on one server. Calls may come from any thread; nothing is sent before the first."""

    def __init__(self, url: str, *, model: str = "", layout: str = "", api_key: str = "") -> None:
        """Raises RequestError for an address that cannot be used, and where neither the layout nor
        the model's name says how to ask."""
        self.model, self._layout = model, layout_for(layout, model)
        self._http = HttpTransport(url.rstrip("/").removesuffix("/v1"), api_key=api_key)

    def next_edit(
        self, scene: Scene, cancel: CancelToken | None = None, deadline_s: float | None = None
    ) -> tuple[int, int, str] | None:
        """Replace characters [start, end) by a text; None where nothing is proposed in time.

        Raises the engine's errors.
        """
        if not self._layout.may_ask(scene):
            return None
        region = self._layout.region(scene)
        body: dict[str, Any] = {
            "prompt": valid(self._layout.prompt(scene, region)),
            "max_tokens": _TOKENS,
            "temperature": 0,
            "stream": True,
            "stop": list(self._layout.ends),
        }
        if self.model:
            body["model"] = self.model
        call, answer = Call(self._http, deadline_s, cancel), Answer(self._http.address, PATH)
        try:
            with contextlib.closing(call.events(PATH, body)) as events:
                for event in events:
                    answer.take(event)
        except DeadlineReached:
            return None
        # An answer that was cut off would remove what it did not come to.
        return self._layout.edit(answer.text, region) if answer.reason == "eom" else None

    def close(self) -> None:
        self._http.close()
