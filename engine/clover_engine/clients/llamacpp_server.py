"""llama-server over HTTP: what it says of itself, and a hole in the form that its model wants."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from clover_engine.api import CancelToken
from clover_engine.clients.address import Address
from clover_engine.clients.call import Deadline, valid
from clover_engine.clients.faults import Lost, Refused, event_error, malformed
from clover_engine.clients.fim import FimParts, FimTemplate, fit, template_for, template_named
from clover_engine.clients.http import HttpLimits, HttpTransport
from clover_engine.clients.llamacpp_answer import Answer
from clover_engine.errors import EngineUnavailable, RequestError

_CHARS_PER_TOKEN = 3.0
_CONTEXT = 4096
"""Tokens, where the server does not say."""
_TOO_LONG = re.compile(r"\((\d+) tokens\) exceeds the available context size \((\d+)")
_SHRINKS = 4
_NOTHING = "\n"
"""Stands for an empty prompt, which llama-server answers with nothing."""


@dataclass(frozen=True, slots=True)
class Props:
    """What the server says of itself."""

    model: str
    context: int
    """Tokens of one slot."""


class LlamaServer:
    """One llama-server. Any thread; nothing is sent before the first call."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        model: str = "",
        ca_file: str = "",
        template: str = "",
        slot: int | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.http = HttpTransport(url, api_key=api_key, ca_file=ca_file, limits=limits)
        self.model = model
        self._slot = slot
        self._lock = threading.Lock()
        self._known: Props | None = None
        self._template = template_named(template) if template else None
        self._chars_per_token = _CHARS_PER_TOKEN

    def ask(
        self,
        hole: FimParts,
        body: Mapping[str, Any],
        tokens: int,
        cancel: CancelToken | None,
        left: Deadline,
        send: Callable[[str, Mapping[str, Any]], None],
        is_unanswered: Callable[[], bool],
    ) -> None:
        """`send`s the hole as the model wants it, with less text while the server has no room.

        Sent again once where the connection broke while it `is_unanswered`: llama-server closes
        connections that it kept alive just when the next request may be on its way.
        """
        hole = _valid(hole)
        was_lost = False
        for _ in range(_SHRINKS):
            room = max(256, self.props(cancel, left).context - tokens - 16)
            fitting = fit(hole, int(room * self._chars_per_token))
            template = self._template
            try:
                if template is None:
                    return send("/infill", {**body, **_infill(fitting)})
                stop = [*body["stop"], *template.ends]
                prompt = {"prompt": template.prompt(fitting) or _NOTHING, "stop": stop}
                return send("/completion", {**body, **prompt})
            except Refused as error:
                if template is not None or error.status not in (404, 501):
                    raise
                self._template = self._fitting_template(cancel, left)
            except Lost:
                if was_lost or not is_unanswered():
                    raise
                was_lost = True
            except RequestError as error:
                found = _TOO_LONG.search(str(error))
                if found is None:
                    raise
                self._chars_per_token *= 0.9 * int(found[2]) / int(found[1])
        raise RequestError(
            f"{self.url} has no room for the request; ask for fewer tokens, or start "
            "it with a longer context (--ctx-size)"
        )

    def _fitting_template(self, cancel: CancelToken | None, left: Deadline) -> FimTemplate:
        """The template of the model's family, if its marks are tokens of the vocabulary."""
        found = template_for(self.props(cancel, left).model)
        for mark in filter(None, (found.before, found.after, found.middle)):
            tokens = self._tokenized(mark.strip(), cancel, left)
            if len(tokens) != 1:
                return template_named("plain")
        return found

    def _tokenized(self, text: str, cancel: CancelToken | None, left: Deadline) -> list[Any]:
        body = {**self.common(), "content": text}
        data = self.http.json(
            "POST", "/tokenize", body, cancel=cancel, deadline_s=left(), retry=True
        )
        tokens = data.get("tokens") if isinstance(data, Mapping) else None
        if not isinstance(tokens, list):
            raise malformed(self.http.address, "/tokenize gives no tokens")
        return tokens

    def props(self, cancel: CancelToken | None, left: Deadline) -> Props:
        """What the server says of itself, asked once after every look at its health."""
        with self._lock:
            known = self._known
        if known is not None:
            return known
        path = "/props" + (f"?model={quote(self.model, safe='')}" if self.model else "")
        data = self.http.json("GET", path, cancel=cancel, deadline_s=left())
        if not isinstance(data, Mapping):
            raise malformed(self.http.address, "/props is no object")
        known = read_props(data, self.model)
        with self._lock:
            self._known = known
        return known

    def forget(self) -> None:
        """What the server said of itself may be out of date: another model, perhaps."""
        with self._lock:
            self._known = None

    @property
    def url(self) -> str:
        return self.http.address.url

    def common(self) -> dict[str, Any]:
        """Fields of every request."""
        fields: dict[str, Any] = {"cache_prompt": True}
        if self.model:
            fields["model"] = self.model
        if self._slot is not None:
            fields["id_slot"] = self._slot
        return fields


def take(address: Address, answer: Answer, event: object, path: str) -> None:
    """Adds what `path` answered. Raises EngineUnavailable for an error, or for anything else than
    llama-server sends."""
    error = event_error(event)
    if error is not None:
        raise EngineUnavailable(f"{address.url} failed: {error}; see its log")
    if not isinstance(event, Mapping):
        raise malformed(address, f"{path} answers with no object")
    try:
        answer.take(event)
    except ValueError as wrong:
        raise malformed(address, f"{path}: {wrong}") from wrong


def read_props(data: Mapping[str, Any], model: str) -> Props:
    alias, path = data.get("model_alias"), data.get("model_path")
    name = model or (alias if isinstance(alias, str) else "")
    if not name and isinstance(path, str):
        name = PurePath(path.replace("\\", "/")).name.removesuffix(".gguf")
    defaults = data.get("default_generation_settings")
    context = defaults.get("n_ctx") if isinstance(defaults, Mapping) else None
    return Props(name, context if isinstance(context, int) and context > 0 else _CONTEXT)


def _infill(hole: FimParts) -> dict[str, Any]:
    extra = [{"filename": s.path or "untitled", "text": s.text} for s in reversed(hole.snippets)]
    return {"input_prefix": hole.prefix, "input_suffix": hole.suffix, "input_extra": extra}


def _valid(hole: FimParts) -> FimParts:
    """Without lone surrogates, which no server reads."""
    snippets = tuple(replace(s, text=valid(s.text), path=valid(s.path)) for s in hole.snippets)
    return replace(hole, prefix=valid(hole.prefix), suffix=valid(hole.suffix), snippets=snippets)
