"""`clover-code message`: a commit message for what is staged."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clover_code import fix_output as output
from clover_code.engine_option import ENGINES, ENVIRONMENT, add_engine_arguments, conversing
from clover_code.fix_screen import Screen
from clover_code.interrupts import interruptible
from clover_code.reporting import reported

EPILOG = (
    """examples:
  clover-code message
  git commit --edit --message "$(clover-code message)"

The message is printed, nothing is committed. Staged files that hold secrets or are ignored are not
shown to the model.

exit codes:
  0  printed
  1  the model wrote none
  2  nothing is staged, or the model cannot be used (the message says what to do)
  130  interrupted

"""
    + ENVIRONMENT
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `message`."""
    parser = subparsers.add_parser(
        "message",
        help="write a commit message for what is staged",
        description="Writes a commit message for the staged changes, with a model that converses.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_arguments(parser, ENGINES[:-1], what="the model that writes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    return reported("message", lambda: _run(args), as_json=args.json)


def _run(args: argparse.Namespace) -> int:
    from clover_engine.privacy.withheld import Withheld
    from clover_patcher.instruct.message import suggest_message
    from clover_patcher.instruct.staged import recent_subjects, staged_diff
    from clover_patcher.repository.git import Repository

    repository = Repository.open(Path.cwd())
    withheld = Withheld((repository.root,))
    diff = staged_diff(repository, lambda path: bool(withheld.of_path(repository.root / path)))
    screen = Screen(sys.stderr, name="message")
    screen.event("engine", "reading the staged changes")
    try:
        with interruptible() as cancel, conversing(args) as engine:
            message = suggest_message(engine, diff, cancel, recent_subjects(repository))
    finally:
        screen.clear()
    if args.json:
        output.print_json({"schema": output.SCHEMA, "message": message})
    else:
        print(message)
    return 0
