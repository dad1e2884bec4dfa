"""`clover-code lsp`: the language server for one editor."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import sys
from typing import NoReturn

from clover_code import __version__
from clover_code.engine_option import add_engine_arguments, chosen_settings
from clover_code.errors import UserError

_KEY = re.compile(r"""(api_?key\\?["']?\s*[:=]\s*)(\\?["'])(?:\\.|(?!\2).)*\2""", re.IGNORECASE)
LEVELS = ("error", "warning", "info", "debug")

EXAMPLES = """\
examples:
  clover-code lsp
  clover-code lsp --log /tmp/clover.log --log-level debug
  clover-code lsp --tcp 127.0.0.1:6789

An editor starts this by itself and talks to it over standard input and output. With --tcp it
waits for one client at the address (port 0 takes a free one), says on standard error where it
listens, and ends when that client leaves. The protocol has no password: listen on 127.0.0.1 only.

exit codes:
  0  the client said goodbye, or went away
  1  the client said `exit` without `shutdown`
  2  the address or the log file cannot be used
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `lsp`."""
    parser = subparsers.add_parser(
        "lsp",
        help="the language server, for editors",
        description="Serves one editor by the Language Server Protocol.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="standard input and output (default)")
    way.add_argument("--tcp", metavar="HOST:PORT", help="wait for one client at this address")
    parser.add_argument("--log", metavar="FILE", help="append the log to FILE")
    parser.add_argument("--log-level", choices=LEVELS, default="warning", help="debug: code too")
    # vscode-languageclient adds this by itself; the process that it names is in `initialize` too.
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)
    add_engine_arguments(parser, default=None, what="the model to ask, whatever the editor says")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until the client leaves. Ends the process: threads that still wait are left."""
    address = None if args.tcp is None else parse_address(args.tcp)
    settings = chosen_settings(args)
    start_log(args.log, "debug" if args.debug else args.log_level)
    gc.disable()  # the imports make hundreds of thousands of objects that stay
    try:
        from clover_lsp.session import make_server, serve_stdio, serve_tcp
    except ModuleNotFoundError as error:
        from clover_engine.worker.local import install_command

        command = install_command().replace("[engine]", "")
        raise UserError(f"{error.name} is not installed; run: {command}") from None

    server = make_server(__version__, fixed_settings=settings)
    gc.freeze()
    gc.enable()
    try:
        code = serve_stdio(server) if address is None else serve_tcp(server, *address)
    except OSError as error:
        if address is None:
            raise
        reason = error.strerror or error
        raise UserError(f"cannot listen on {args.tcp}: {reason}; choose another port") from None
    end(code)


def end(code: int) -> NoReturn:
    """Leaves at once: a thread that waits for a check or for input must not hold the process."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 host may stand in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{text!r} is not HOST:PORT, as in 127.0.0.1:6789")
    return host.strip("[]"), int(port)


def start_log(path: str | None, level: str) -> None:
    """Sends the log to the file, else to standard error (editors show that)."""
    try:
        logging.basicConfig(
            filename=path,
            level=level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            encoding="utf-8" if path else None,
            force=True,
        )
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; give another --log"
        ) from None
    for handler in logging.getLogger().handlers:
        handler.addFilter(without_keys)
    # pygls logs whole messages, code included, at level info.
    logging.getLogger("pygls").setLevel("DEBUG" if level == "debug" else "ERROR")


def without_keys(record: logging.LogRecord) -> bool:
    """A filter for handlers: API keys, which clients send among their settings, become stars."""
    text = record.getMessage()
    if "key" in text.lower():
        record.msg, record.args = _KEY.sub(r"\1\2***\2", text), ()
    return True
