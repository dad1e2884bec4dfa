"""`clover-code acp`: an agent inside editors, by the Agent Client Protocol."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, cast

from clover_code import __version__
from clover_code.engine_option import ENVIRONMENT, add_engine_arguments, opened
from clover_code.errors import UserError

if TYPE_CHECKING:
    from clover_code.desk import Models

EXAMPLES = (
    """\
An editor (Zed, JetBrains, Neovim with CodeCompanion, Emacs with agent-shell) starts this by itself,
and talks to it by the Agent Client Protocol, version 1, over standard input and output.

in the editor's prompt:
  /fix pytest -q            a validated patch for a failing check
  /edit FILE:3-9 WORDS      the lines, changed as you say
  /check, /undo, /message   run a check in a copy; take a change back; a commit message
  anything else             the agent works in a copy, and shows what it did

Nothing in your tree changes before you allow it. docs/assistants.md has what to paste.

exit codes:
  0  the editor went away
  2  something is not installed

"""
    + ENVIRONMENT
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `acp`."""
    parser = subparsers.add_parser(
        "acp",
        help="an agent inside editors, by the Agent Client Protocol",
        description="Serves one editor as an agent: repairs, edits, requirements in words.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_engine_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until the editor leaves."""
    try:
        import acp  # noqa: F401
    except ModuleNotFoundError as error:
        from clover_engine.worker.local import install_command

        command = install_command().replace("[engine]", "[acp]")
        raise UserError(f"{error.name} is not installed; run: {command}") from None
    from clover_code.desk import Models

    logging.getLogger().setLevel(logging.DEBUG if args.debug else logging.WARNING)
    with opened(args) as engine:
        models = Models(engine)
        try:
            asyncio.run(_serve(models))
        except KeyboardInterrupt:
            print("clover-code acp: stopped", file=sys.stderr)
        finally:
            models.close()
    return 0


async def _serve(models: Models) -> None:
    from acp import run_agent

    from clover_code.acp.agent import CloverAgent
    from clover_code.acp.streams import take_over

    reader, writer = await take_over()
    agent = CloverAgent(models, __version__)
    serving = asyncio.ensure_future(run_agent(cast(Any, agent), writer, reader))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        print("clover-code acp: stopped", file=sys.stderr)
    finally:
        agent.stop()
        await loop.shutdown_default_executor()  # copies are removed, writing is finished
        agent.close()
