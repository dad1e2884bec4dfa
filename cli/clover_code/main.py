"""The `clover-code` command: finds the subcommand, turns exceptions into one line and a code.

A subcommand is a module with ``add_parser(subparsers)`` and ``run(args) -> int``; adding one is a
line in `COMMANDS`. Only the module of the subcommand that was asked for is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from clover_code import __version__
from clover_code.errors import UserError
from clover_code.places import STDIN

COMMANDS = {
    "fix": "clover_code.fix_cmd",
    "edit": "clover_code.edit_cmd",
    "do": "clover_code.do_cmd",
    "message": "clover_code.message_cmd",
    "undo": "clover_code.undo_cmd",
    "infill": "clover_code.infill_cmd",
    "context": "clover_code.context_cmd",
    "lsp": "clover_code.lsp_cmd",
    "gateway": "clover_code.gateway_cmd",
    "mcp": "clover_code.mcp_cmd",
    "acp": "clover_code.acp_cmd",
    "model": "clover_code.model_cmd",
    "serve": "clover_code.serve_cmd",
    "stats": "clover_code.stats_cmd",
    "doctor": "clover_code.doctor",
}

USER_ERROR = 2
INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

EXAMPLES = """\
examples:
  clover-code fix --check "pytest tests/test_shop.py"
  clover-code edit shop/cart.py:12-20 "return None for an empty cart"
  clover-code infill shop/cart.py:12:5
  clover-code undo
  clover-code doctor

Everything runs on this machine, and nothing is sent anywhere, unless you name a model server.
"""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser with the subcommand `only`, or with all of them."""
    parser = argparse.ArgumentParser(
        prog="clover-code",
        description="Repairs failing programs and fills holes in code with a local model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"clover-code {__version__}")
    parser.add_argument("--debug", action="store_true", help="tracebacks and logs")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        if only in (None, name):
            importlib.import_module(module).add_parser(subparsers)
    for sub in subparsers.choices.values():
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    arguments = [STDIN + a[1:] if a.startswith("-:") else a for a in arguments]
    named = next((a for a in arguments if not a.startswith("-")), None)
    args = build_parser(named if named in COMMANDS else None).parse_args(arguments)
    if args.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        _tidy()
        code = run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("clover-code: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # the last resort: nothing may end in a raw traceback
        return _report(error, args.debug)


def _tidy() -> None:
    """Settles what a killed run left behind in the repository around the current folder."""
    from clover_patcher.repository.leftovers import leftovers

    with contextlib.suppress(OSError):
        here = Path.cwd()
        if leftovers(here):
            from clover_patcher.deliver.recovery import tidy

            for line in tidy(here):
                print(f"clover-code: note: {line}", file=sys.stderr)


def _report(error: Exception, debug: bool) -> int:
    code, prefix, hint = _classify(error)
    if debug:
        traceback.print_exception(error)
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"clover-code: {prefix}{text}{'' if debug else hint}", file=sys.stderr)
    return code


def _classify(error: Exception) -> tuple[int, str, str]:
    """Exit code, prefix and hint for an exception."""
    from clover_engine.errors import EngineCrashed, EngineError
    from clover_patcher.errors import PatcherError

    if isinstance(error, UserError):
        return USER_ERROR, "", ""
    if isinstance(error, PatcherError):
        return error.exit_code, "", ""
    if type(error) is EngineError or isinstance(error, EngineCrashed):
        return 1, "", ""
    if isinstance(error, EngineError):
        return USER_ERROR, "", ""
    hint = "; run again with --debug for the traceback"
    return INTERNAL_ERROR, f"unexpected {type(error).__name__}: ", hint


if __name__ == "__main__":
    sys.exit(main())
