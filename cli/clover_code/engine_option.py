"""The arguments that choose an engine, and the engine that they choose."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code.errors import UserError
from clover_engine.choice.wanted import SERVERS

if TYPE_CHECKING:
    from clover_engine.api import Engine
    from clover_engine.choice.wanted import Wanted
    from clover_engine.generation import Converses

ENGINES = ("auto", "embedded", *SERVERS, "none")

ENVIRONMENT = """\
CLOVER_SGLANG_URL, CLOVER_LLAMACPP_URL or CLOVER_OPENAI_URL (Ollama, LM Studio, vLLM, a service)
names a model server, as --engine-url does; the same names with API_KEY and MODEL are its key and
its model. Code is sent to that server, secrets inside of it are not, nor are files that hold
secrets or are ignored. While it is away, the embedded model answers.
"""


def add_engine_arguments(
    parser: argparse.ArgumentParser,
    choices: Sequence[str] = ENGINES,
    default: str | None = "auto",
    what: str = "the model to ask",
) -> None:
    """Adds `--engine` and `--engine-url`."""
    parser.add_argument(
        "--engine",
        choices=choices,
        default=default,
        help=f"{what}; auto: the server that CLOVER_SGLANG_URL, CLOVER_LLAMACPP_URL or "
        "CLOVER_OPENAI_URL names, else the embedded one"
        + ("; none: no model" if "none" in choices else ""),
    )
    parser.add_argument(
        "--engine-url",
        metavar="URL",
        help="where the server of --engine sglang, llamacpp or openai listens; code is sent there",
    )


def chosen_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that the arguments stand for; empty where there are none."""
    if args.engine_url is not None and args.engine not in SERVERS:
        raise UserError(f"--engine-url is a server's: add --engine {', '.join(SERVERS)}")
    chosen: dict[str, Any] = {} if args.engine is None else {"engine": args.engine}
    if args.engine_url is not None:
        chosen[args.engine] = {"url": _require_address(args.engine_url)}
    return chosen


def _require_address(url: str) -> str:
    from clover_engine.clients.address import Address
    from clover_engine.errors import RequestError

    try:
        return Address.parse(url).url
    except RequestError:
        raise UserError(
            "--engine-url must be an address like http://127.0.0.1:8080, no password"
        ) from None


def wanted_by(args: argparse.Namespace) -> Wanted:
    """The engine that the arguments choose. Raises UserError where a server was named and has no
    address."""
    from clover_engine.choice.servers import configured
    from clover_engine.choice.wanted import Wanted, WantedServer

    chosen = chosen_settings(args)
    servers = {name: WantedServer(**chosen[name]) for name in SERVERS if name in chosen}
    sglang, llamacpp, openai = (servers.get(name, WantedServer()) for name in SERVERS)
    wanted = Wanted(chosen.get("engine", "auto"), sglang, llamacpp, openai)
    name = next((each for each in SERVERS if each == wanted.engine), None)
    if name and configured(name, wanted, os.environ) is None:
        raise UserError(
            f"--engine {name} needs the server's address: add --engine-url URL, or set "
            f"CLOVER_{name.upper()}_URL"
        )
    return wanted


@contextmanager
def opened(args: argparse.Namespace, withheld: str = "") -> Iterator[Engine | None]:
    """The engine that the arguments choose, or None; closed at the end. Nothing starts yet.

    `withheld`: why no server may be asked, in words. Then only the embedded model is, and the
    user is told.
    """
    from clover_engine.choice.engines import choose_engines

    engines = choose_engines(wanted_by(args))
    if withheld and any(provider.is_served for provider in engines.providers):
        engines.providers = [each for each in engines.providers if not each.is_served]
        print(f"clover-code: note: {withheld}: no server is sent it", file=sys.stderr)
    embedded_only = len(engines.providers) == 1 and not engines.providers[0].is_served
    try:
        with _notes():
            # Alone, it needs no choice, which would hide its own words for what is wrong.
            yield engines.providers[0].engine if embedded_only else engines.interactive(None)
    finally:
        engines.close()


@contextmanager
def conversing(args: argparse.Namespace, withheld: str = "") -> Iterator[Converses]:
    """The same for conversations: where the engine only fills holes, an installed coder model."""
    from clover_engine.choice.talking import Talking

    with opened(args, withheld) as engine:
        assert engine is not None  # "none" is no choice where there is to be a conversation
        talking = Talking(engine)
        try:
            yield talking
        finally:
            talking.close()


def withheld_from_servers(path: Path | None) -> str:
    """Why no server may read the file, in words; "" if one may. Of standard input (None) nothing
    is known."""
    from clover_engine.privacy.withheld import Withheld
    from clover_engine.worker.local import install_command

    if path is None:
        return ""
    try:
        return Withheld().of_path(path)
    except ModuleNotFoundError as error:  # what reads ignore files
        raise UserError(f"{error.name} is not installed; run: {install_command()}") from error


@contextmanager
def _notes() -> Iterator[None]:
    """What the choice of engines logs (who gets the code, who is away) is for the user."""
    log, notes = logging.getLogger("clover_engine.choice"), _Notes(logging.WARNING)
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"clover-code: note: {record.getMessage()}", file=sys.stderr)
