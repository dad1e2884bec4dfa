"""The engines there are: the embedded model, and the model servers that are configured.

A server's address, key and model are what the user chose (`wanted.py`), else they come from the
environment: its address from CLOVER_SGLANG_URL, CLOVER_LLAMACPP_URL or CLOVER_OPENAI_URL, the rest
from the same name with API_KEY, MODEL, CA_FILE or FIM at its end. Keys stand in no log, no status
and no `repr`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clover_engine.api import Engine
from clover_engine.checkpoint.known import candidate_at
from clover_engine.choice.providers import Provider, ServedProvider
from clover_engine.choice.wanted import ServerName, Wanted
from clover_engine.errors import RequestError

NANO_LANGUAGES = frozenset({"python"})
"""What the shipped model was trained on."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where one server is, and how to be let in."""

    name: ServerName
    url: str
    api_key: str = field(default="", repr=False)
    model: str = ""
    ca_file: str = ""
    fim: str = ""

    @property
    def sends_to(self) -> str:
        """Whom code is sent to; empty for this machine, and for an address that is none."""
        from clover_engine.clients.address import Address

        with contextlib.suppress(RequestError):
            address = Address.parse(self.url)
            if not address.is_loopback:
                plain = "" if address.url.startswith("https:") else ", unencrypted"
                return address.host + plain
        return ""


def configured(name: ServerName, wanted: Wanted, environ: Mapping[str, str]) -> Server | None:
    """The server of that name; None where nobody gave its address."""
    chosen = wanted.server(name)

    def either(setting: str, variable: str) -> str:
        return setting or environ.get(f"CLOVER_{name.upper()}_{variable}", "").strip()

    url = either(chosen.url, "URL").rstrip("/")
    if not url:
        return None
    return Server(
        name,
        url,
        either(chosen.api_key, "API_KEY"),
        either(chosen.model, "MODEL"),
        either(chosen.ca_file, "CA_FILE"),
        either(chosen.fim, "FIM"),
    )


def where_to_set(name: ServerName) -> str:
    """The names under which a user gives the address."""
    return f"clover.{name}.url or CLOVER_{name.upper()}_URL"


def server_provider(
    name: ServerName, wanted: Wanted, environ: Mapping[str, str]
) -> ServedProvider | None:
    """The server's provider; None where nobody gave its address. Connects to nothing yet."""
    server = configured(name, wanted, environ)
    if server is None:
        return None
    where = "" if "@" in server.url else server.url  # a password, perhaps
    return ServedProvider(
        name,
        lambda: served_engine(server),
        where=where,
        ranks=name == "sglang",  # the others have no scores of a text that they are given
        sends_to=server.sends_to,
    )


def served_engine(server: Server) -> Engine:
    """The server as an engine that is never sent a secret. Raises RequestError for an address
    that cannot be used; connects to nothing yet."""
    from clover_engine.privacy.discreet import DiscreetEngine

    make = _client(server.name)
    return DiscreetEngine(
        make(
            server.url,
            api_key=server.api_key,
            model=server.model,
            ca_file=server.ca_file,
            fim=server.fim,
        )
    )


def _client(name: ServerName) -> Callable[..., Engine]:
    if name == "sglang":
        from clover_engine.clients.sglang import SGLangEngine

        return SGLangEngine
    if name == "llamacpp":
        from clover_engine.clients.llamacpp import LlamaCppEngine

        return LlamaCppEngine
    from clover_engine.clients.openai import OpenAIEngine

    return OpenAIEngine


def embedded_provider(threads: int = 0) -> Provider:
    """The chosen model in its own process; everything heavy starts on first use."""
    from clover_engine.worker.local import LocalEngine, checkpoint_path

    is_general = is_large(checkpoint_path())
    return Provider(
        "embedded",
        lambda: LocalEngine(threads=threads or None),
        None if is_general else NANO_LANGUAGES,
        ranks=not is_general,
    )


def quick_provider() -> Provider:
    """clover-nano beside another model, on one thread: its answers take milliseconds."""
    from clover_engine.checkpoint.known import DEFAULT_CHECKPOINT
    from clover_engine.worker.local import LocalEngine

    return Provider(
        "clover-nano", lambda: LocalEngine(DEFAULT_CHECKPOINT, 1), NANO_LANGUAGES, is_quick=True
    )


def is_large(checkpoint: Path) -> bool:
    """A model that others trained: it knows all languages, and takes its time on a CPU."""
    return checkpoint.suffix == ".gguf" or candidate_at(checkpoint) is not None
