"""What a user says to a patch that was asked for in words: apply it, leave it, or more words."""

from __future__ import annotations

import argparse
import sys

from clover_engine.api import CancelToken

_SHORT = {
    **dict.fromkeys(("a", "apply", "y", "yes"), "a"),
    **dict.fromkeys(("q", "quit", "n", "no"), "q"),
}


def decided(args: argparse.Namespace, cancel: CancelToken, question: str) -> str:
    """ "a" for applying, "q" for leaving it, else what the user typed.

    Nobody is asked where the arguments say it already, or where no person is there.
    """
    if args.apply or args.commit:
        return "a"
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if args.dry_run or args.json or args.ci or not is_terminal:
        return "q"
    while True:
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line or cancel.cancelled:
            return "q"
        if said := line.strip():
            return _SHORT.get(said.lower(), said)


def add_applying_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds `--apply`, `--dry-run` and `--commit`."""
    group.add_argument("--apply", action="store_true", help="apply without asking")
    group.add_argument("--dry-run", action="store_true", help="print the diff, ask nothing")
    group.add_argument(
        "--commit",
        action="store_true",
        help="apply, and commit the changed files and nothing else",
    )
