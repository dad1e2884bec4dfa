"""`clover-code mcp`: repairs, checks and context as tools for other assistants."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from clover_code import __version__
from clover_code.engine_option import ENVIRONMENT, add_engine_arguments, opened
from clover_code.errors import UserError

EXAMPLES = (
    """\
examples:
  claude mcp add clover -- clover-code mcp
  clover-code mcp --root ~/work/shop

A host (Claude Code, Claude Desktop, Cursor, VS Code, Zed) starts this by itself, and talks to it by
the Model Context Protocol over standard input and output. Tools: fix (a dry run unless asked
otherwise), apply, undo, check, context, infill, decide. docs/assistants.md has what to paste.

exit codes:
  0  the host went away
  2  the folder is in no git repository, or something is not installed

"""
    + ENVIRONMENT
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `mcp`."""
    parser = subparsers.add_parser(
        "mcp",
        help="tools for other assistants, by the Model Context Protocol",
        description="Serves repairs, checks and context of one repository as tools.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("."),
        metavar="FOLDER",
        help="a folder of the repository (default: the current one)",
    )
    add_engine_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until the host leaves."""
    try:
        from clover_code.mcp.server import make_server
    except ModuleNotFoundError as error:
        from clover_engine.worker.local import install_command

        command = install_command().replace("[engine]", "[mcp]")
        raise UserError(f"{error.name} is not installed; run: {command}") from None
    from clover_code.desk import Desk, Models

    if not args.root.is_dir():
        raise UserError(f"{args.root} is not a folder")
    logging.getLogger().setLevel(logging.WARNING)
    with opened(args) as engine:
        models = Models(engine)
        desk = Desk(args.root, models)
        try:
            make_server(desk, __version__).run("stdio")
        except KeyboardInterrupt:
            print("clover-code mcp: stopped", file=sys.stderr)
        finally:
            desk.close()
            models.close()
    return 0
