"""What a user chose: which engine, and where the servers are.

The language server makes a `Wanted` of its settings, the command line of its options; what they
leave out comes from the environment (`servers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

EngineName = Literal["auto", "embedded", "sglang", "llamacpp", "openai", "none"]
ServerName = Literal["sglang", "llamacpp", "openai"]

SERVERS: Final[tuple[ServerName, ...]] = ("sglang", "llamacpp", "openai")
"""In the order in which `auto` tries them."""


@dataclass(frozen=True, slots=True)
class WantedServer:
    """What a user said of one server; empty where nothing was said."""

    url: str = ""
    api_key: str = field(default="", repr=False)
    model: str = ""
    ca_file: str = ""
    fim: str = ""
    """How a hole is written, where the model's name does not tell."""


@dataclass(frozen=True, slots=True)
class WantedEdits:
    """The served model that is to write next edits; without an address there is none."""

    url: str = ""
    model: str = ""
    layout: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The engine that a user chose; `Wanted()` is the default."""

    engine: EngineName = "auto"
    sglang: WantedServer = WantedServer()
    llamacpp: WantedServer = WantedServer()
    openai: WantedServer = WantedServer()
    quick: bool = False
    """clover-nano beside a larger model: `Engines.quick`."""
    threads: int = 0
    """Of the embedded model; 0: as many as it chooses itself."""

    def server(self, name: ServerName) -> WantedServer:
        """What was said of the server of that name."""
        servers = {"sglang": self.sglang, "llamacpp": self.llamacpp, "openai": self.openai}
        return servers[name]
