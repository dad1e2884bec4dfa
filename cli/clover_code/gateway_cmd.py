"""`clover-code gateway`: the engine and the repository's context for plug-ins of other makers."""

from __future__ import annotations

import argparse
import contextlib
import functools
import ipaddress
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clover_code.engine_option import ENVIRONMENT, add_engine_arguments, opened
from clover_code.errors import UserError
from clover_engine.api import Engine, InfillRequest
from clover_engine.errors import EngineError
from clover_engine.gate import SHOWN_CONFIDENCE

if TYPE_CHECKING:
    from clover_code.gateway.guard import Guard
    from clover_lsp.context.room import Room

KEY = "CLOVER_GATEWAY_KEY"

EXAMPLES = (
    """\
examples:
  clover-code gateway
  clover-code gateway --port 8012 --root ~/work/shop
  CLOVER_GATEWAY_KEY=… clover-code gateway --host 0.0.0.0

It serves, on this machine only unless --host says otherwise:
  /infill                 llama.vim, llama.vscode (llama.cpp's interface)
  /v1/completions         Zed's edit predictions, minuet: a hole by `suffix`, or by the marks of a
                          family (<|fim_prefix|> …) in the prompt
  /v1/chat/completions    conversations, for a coder model or a server
  /v1/models, /health
Holes get snippets and look-ups from the repository around the current folder (or --root), and end
with their line, or with the block that begins there. README and docs/gateway.md have what to
paste into each editor.

exit codes:
  0  stopped by Ctrl-C or SIGTERM
  2  the address cannot be used, or something is not installed

"""
    + ENVIRONMENT
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `gateway`."""
    parser = subparsers.add_parser(
        "gateway",
        help="an OpenAI- and llama.cpp-compatible server, for other plug-ins",
        description="Serves completions to plug-ins of other makers, with repository context.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=_port, default=8012, help="%(default)s, llama.vim's own; 0 takes a free one"
    )
    parser.add_argument(
        "--key", default="", help=f"clients must send it; better in the environment, as {KEY}"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="let this web page's scripts ask, as http://localhost:3000 (may be given again)",
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="FOLDER",
        help="whose code is context (default: the repository around the current folder)",
    )
    parser.add_argument("--no-context", action="store_true", help="add nothing from the repository")
    parser.add_argument(
        "--budget", type=_count, default=512, metavar="N", help="tokens of context (%(default)s)"
    )
    parser.add_argument(
        "--lines",
        choices=("auto", "never"),
        default="auto",
        help="several lines for a hole: auto, where a block begins; never (default: %(default)s)",
    )
    parser.add_argument(
        "--min-confidence",
        type=_probability,
        default=SHOWN_CONFIDENCE,
        metavar="P",
        help="leave holes open for texts less probable to be right; 0 answers always "
        "(default: %(default)s, as clover's own plug-ins)",
    )
    parser.add_argument(
        "--deadline", type=_seconds, default=10.0, metavar="SECONDS", help="for a hole (10)"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="withhold these files too"
    )
    add_engine_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until it is stopped."""
    try:
        import uvicorn

        from clover_code.gateway.app import make_app
        from clover_code.gateway.fill import Filler, Options
    except ModuleNotFoundError as error:
        from clover_engine.worker.local import install_command

        command = install_command().replace("[engine]", "[gateway]")
        raise UserError(f"{error.name} is not installed; run: {command}") from None

    key = args.key or os.environ.get(KEY, "")
    guard = _guard(args.host, key, tuple(args.allow_origin))
    root = None if args.no_context else _root(args.root)
    options = Options(root, args.lines, args.min_confidence, args.budget, args.deadline)
    with _listening(args.host, args.port) as listener, opened(args) as engine:
        room = _room(root, tuple(args.exclude))
        try:
            if engine is not None:
                threading.Thread(target=_warm, args=(engine,), daemon=True).start()
            app = make_app(Filler(engine, room, options), guard)
            config = uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
            )
            signal.signal(signal.SIGTERM, _stop)
            _say(listener, root)
            with contextlib.suppress(KeyboardInterrupt):  # also of a signal before it listens
                uvicorn.Server(config).run(sockets=[listener])
            print("clover-code gateway: stopped", file=sys.stderr)
        finally:
            room.close()
    return 0


def _guard(host: str, key: str, origins: tuple[str, ...]) -> functools.partial[Guard]:
    """Who may ask at that address. Raises UserError for other machines without a key."""
    from clover_code.gateway.guard import LOOPBACK, Guard

    if _is_loopback(host):
        hosts: tuple[str, ...] = (*LOOPBACK, host)
    elif key:
        hosts = ()  # the key says who may ask; by which name they came does not matter
    else:
        raise UserError(
            f"whoever reaches {host} could use the model: set a key in {KEY}, or leave --host out"
        )
    return functools.partial(Guard, hosts=hosts, origins=origins, key=key)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _root(chosen: Path | None) -> Path | None:
    """The folder that is indexed: the one chosen, else the repository around this one."""
    if chosen is not None:
        if not chosen.is_dir():
            raise UserError(f"{chosen} is not a folder")
        return chosen.absolute()
    here = Path.cwd()
    return next((p for p in (here, *here.parents) if (p / ".git").exists()), None)


def _room(root: Path | None, exclude: tuple[str, ...]) -> Room:
    from clover_lsp.context.room import Room, RoomOptions

    room = Room(RoomOptions(exclude=exclude))
    room.start()
    room.set_roots([str(root)] if root else [])
    return room


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port"
        ) from None


def _warm(engine: Engine) -> None:
    """Loads the model before the first keystroke asks; what fails is said by the requests."""
    try:
        engine.infill(InfillRequest("x = ", max_tokens=1))
    except EngineError as error:
        print(f"clover-code gateway: {error}", file=sys.stderr)


def _say(listener: socket.socket, root: Path | None) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    context = f"context from {root}" if root else "no repository: no context is added"
    print(f"clover-code gateway: http://{shown}:{port}/v1 ({context})", file=sys.stderr, flush=True)


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 32768:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens from 0 to 32768")
    return int(text)


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no probability from 0 to 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.05 to 60")
    return value
