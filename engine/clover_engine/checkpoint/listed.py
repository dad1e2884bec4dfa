"""Which models there are on this machine, and which is in use: for the command and the editors."""

from __future__ import annotations

import os
from dataclasses import dataclass

from clover_engine.checkpoint.catalog import OFFERED, Offered, choose, chosen
from clover_engine.checkpoint.fetch import FetchError
from clover_engine.checkpoint.known import DEFAULT_CHECKPOINT

NANO = "nano"
"""The model in the package, by the name that a user gives it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One model as a user sees it. `size` in bytes."""

    name: str
    size: int
    licence: str
    purpose: str
    is_installed: bool
    is_in_use: bool


def listed() -> list[Listed]:
    """All models, the shipped one first."""
    wanted = os.environ.get("CLOVER_CHECKPOINT") or chosen() or NANO
    size = sum(path.stat().st_size for path in DEFAULT_CHECKPOINT.glob("*.safetensors"))
    purpose = "in the package: quick, small and young"
    found = [Listed(NANO, size, "Apache-2.0", purpose, True, wanted == NANO)]
    for model in OFFERED.values():
        is_used = wanted in (model.name, str(model.path))
        installed = model.path.is_file()
        found.append(
            Listed(model.name, model.size, model.licence, model.purpose, installed, is_used)
        )
    return found


def offered(name: str) -> Offered:
    """The model of that name. Raises FetchError."""
    if name not in OFFERED:
        raise FetchError(f"no model {name!r}; there are: {', '.join(OFFERED)}")
    return OFFERED[name]


def use(name: str) -> None:
    """Remembers the model for all that starts from now on. Raises FetchError where it is not
    installed, OSError where that cannot be written."""
    if name != NANO and not offered(name).path.is_file():
        raise FetchError(f"{name} is not installed; run: clover-code model get {name}")
    choose("" if name == NANO else name)
