"""`clover-code context`: prints what the model would read at one place, and why."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code.context_output import described
from clover_code.errors import UserError
from clover_code.places import cut, parse_place, read_text

if TYPE_CHECKING:
    from clover_lsp.context.room import Room

EXAMPLES = """\
examples:
  clover-code context shop/cart.py:12:5
  clover-code context --budget 200 --exclude 'fixtures/' shop/cart.py:12:5
  clover-code context --json shop/cart.py:12:5

The workspace is the git repository around the file, or else its folder. Its index is kept in the
platform's folder for caches (or CLOVER_CACHE_DIR). Secrets are shown as the model sees them: as *.

exit codes:
  0  printed (also where the file is withheld from the model)
  1  the index could not be made
  2  the file or the place cannot be used (the message says what to do)
"""

PATIENCE_S = 1.5
"""After so long without an index, the command says what it waits for."""
WAIT_S = 600.0
"""Longest wait for the index of a folder that was never indexed before."""
SHOWN_LINES = 20
"""Lines of prefix and suffix that are printed without --json."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `context`."""
    parser = subparsers.add_parser(
        "context",
        help="show what the model would read at one place",
        description="Prints the snippets, look-ups and surroundings that a suggestion is made of.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("place", metavar="FILE:LINE:COL")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--budget",
        type=_budget,
        default=512,
        metavar="N",
        help="tokens that the snippets may take together (default: %(default)s)",
    )
    parser.add_argument(
        "--root", metavar="FOLDER", help="the workspace (default: the repository around FILE)"
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="withhold these files too (.gitignore syntax; may be given several times)",
    )
    parser.set_defaults(run=run)


def _budget(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens from 0 to 1000000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    from clover_lsp.context.room import Room, RoomOptions
    from clover_lsp.context.types import Place

    place = parse_place(args.place)
    if place.path is None:
        raise UserError("standard input is in no workspace: give the name of a file")
    text = read_text(place)
    path = place.path.absolute()
    root = _root(path, args.root)
    room = Room(RoomOptions(exclude=tuple(args.exclude), watch=False))
    try:
        room.start()
        room.set_roots([str(root)])
        failure = _wait(room, root)
        hole, uri = cut(text, place), path.as_uri()
        room.opened(uri, "", hole.prefix + hole.suffix, 1)
        room.wait(WAIT_S)
        explained = room.explain(Place(uri, "", hole.prefix, hole.suffix), args.budget)
        found = described(explained, hole, args.budget)
    finally:
        room.close()
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    if failure:
        print(f"clover-code: the index could not be made: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _root(path: Path, chosen: str | None) -> Path:
    if chosen is not None:
        root = Path(chosen).absolute()
        if not root.is_dir():
            raise UserError(f"{chosen} is not a folder")
        if not path.is_relative_to(root):
            raise UserError(f"{path} is not in {root}: give a folder around the file")
        return root
    return next((p for p in path.parents if (p / ".git").exists()), path.parent)


def _wait(room: Room, root: Path) -> str:
    """Waits until the index is up to date; returns what went wrong, or ""."""
    if not room.wait(PATIENCE_S):
        print(f"indexing {root} …", file=sys.stderr)
        if not room.wait(WAIT_S):
            return f"not ready after {WAIT_S:.0f} s"
    status = room.status()
    return status.detail if status.state == "failed" else ""


def _print(data: dict[str, Any]) -> None:
    if data["withheld"]:
        print(f"withheld: {data['withheld']}; no suggestion is made here")
        return
    used = sum(s["tokens"] for s in data["snippets"])
    print(f"snippets ({used} of {data['budget_tokens']} tokens)")
    for snippet in data["snippets"]:
        print(f"\n[{snippet['score']:.2f}] {snippet['kind']} {snippet['path']}:{snippet['line']}")
        print(f"       {snippet['reason']}")
        print(_quoted(snippet["text"]))
    print(f"\nlook-ups ({len(data['lookups'])})")
    for look in data["lookups"]:
        print(
            f"\n[{look['confidence']:.2f}] {look['path']}: {look['matched']} equal tokens before, "
            f"{look['followed']} after, {look['count']} agree, {look['rivals']} differ"
        )
        print(_quoted(look["text"]))
    print("\nprefix" + _of_lines(data["prefix"]))
    print(_quoted("\n".join(data["prefix"].split("\n")[-SHOWN_LINES:])))
    print("\nsuffix" + _of_lines(data["suffix"]))
    print(_quoted("\n".join(data["suffix"].split("\n")[:SHOWN_LINES])))
    if data["redacted_characters"]:
        print(f"\n{data['redacted_characters']} characters of secrets replaced by *")
    print(f"\nleft out ({len(data['left_out'])})")
    for left in data["left_out"]:
        where = f"{left['kind']} {left['path']}:{left['line']}"
        print(f"[{left['score']:.2f}] {where}: {left['why']} ({left['reason']})")


def _of_lines(text: str) -> str:
    count = text.count("\n") + 1
    return f" (the last {SHOWN_LINES} of {count} lines)" if count > SHOWN_LINES else ""


def _quoted(text: str) -> str:
    return "\n".join("  | " + line for line in text.split("\n"))
