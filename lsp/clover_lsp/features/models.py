"""The models on this machine: what there is, getting one, using one. Nothing is downloaded but at
the client's command, which an editor sends when its user said so."""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from pygls.exceptions import JsonRpcInvalidParams

from clover_engine.api import CancelToken
from clover_engine.checkpoint.catalog import Offered
from clover_engine.checkpoint.fetch import (
    FetchError,
    FetchStopped,
    fetch_from_hub,
    fetch_from_index,
)
from clover_engine.checkpoint.listed import listed, offered, use
from clover_lsp.features.progress import WorkDone, work_done
from clover_lsp.server import CloverServer

MODELS = "clover.models"
"""→ `[{name, bytes, licence, purpose, installed, inUse}]`, the shipped model first."""
GET_MODEL = "clover.getModel"
"""`{name}` → `{installed, reason}`: downloads a model, with progress and a cancel button. What a
broken or stopped download left is used by the next one."""
USE_MODEL = "clover.useModel"
"""`{name}` → `{used, reason}`: from now on, here and wherever clover-code starts."""


@dataclass(frozen=True, slots=True)
class _Models:
    server: CloverServer

    def list(self, *_: object) -> list[dict[str, Any]]:
        return [
            {
                "name": model.name, "bytes": model.size, "licence": model.licence,
                "purpose": model.purpose, "installed": model.is_installed,
                "inUse": model.is_in_use,
            }
            for model in listed()
        ]  # fmt: skip

    def get(self, *arguments: object) -> Awaitable[dict[str, object]]:
        return self._get(_name(arguments, GET_MODEL))

    async def _get(self, name: str) -> dict[str, object]:
        cancel = CancelToken()
        try:
            model = offered(name)
            async with work_done(self.server, f"Get {name}", cancel) as done:
                work = functools.partial(_fetch, model, done, cancel)
                await self.server.workers.later(work)
        except FetchError as error:
            return {"installed": False, "reason": str(error)}
        return {"installed": True, "reason": ""}

    def use(self, *arguments: object) -> dict[str, object]:
        try:
            use(_name(arguments, USE_MODEL))
        except (FetchError, OSError) as error:
            return {"used": False, "reason": str(error)}
        self.server.renew_engine()
        return {"used": True, "reason": ""}


def _fetch(model: Offered, done: WorkDone, cancel: CancelToken) -> None:
    if model.path.is_file():
        return

    def progress(what: str, so_far: int, whole: int) -> None:
        if cancel.cancelled:
            raise FetchStopped(f"{model.name} was stopped; asked for again, it goes on from there")
        percent = min(100, 100 * so_far // whole)
        done.report("checking" if what == "checking" else f"{percent} %", percent)

    fetch = fetch_from_hub if model.repository else fetch_from_index
    fetch(model, progress)


def _name(arguments: tuple[object, ...], command: str) -> str:
    given = arguments[0] if arguments else None
    name = given.get("name") if isinstance(given, dict) else getattr(given, "name", None)
    if not isinstance(name, str):
        raise JsonRpcInvalidParams(f"{command} needs {{name}}")
    return name


def register(server: CloverServer) -> None:
    models = _Models(server)
    server.command(MODELS)(models.list)
    server.command(GET_MODEL)(models.get)
    server.command(USE_MODEL)(models.use)
