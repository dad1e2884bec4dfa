"""`clover-code undo`: takes an applied fix back, or lists the fixes that can be taken back."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code import fix_output as output

if TYPE_CHECKING:
    from clover_patcher.deliver.undo import Fix, Undone

EPILOG = """exit codes:
  0  undone (with --dry-run: it would be), or listed
  1  there is no fix to undo
  2  the fix cannot be taken back (the message says what to do)
  4  a file changed since the fix; nothing was undone

The files become what they were, byte for byte, if nobody has changed them since. A commit is
taken off the branch only while it is the newest one, on no remote, and holds the fix alone; it
stays in the reflog. The last 20 fixes are kept.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `undo`."""
    parser = subparsers.add_parser(
        "undo",
        help="take back a fix that was applied",
        description="Takes back the newest fix in this working tree, or the one that ID names.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="beginning of a fix's id")
    parser.add_argument("--list", action="store_true", help="show the fixes, newest first")
    parser.add_argument("--dry-run", action="store_true", help="print the patch, change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    from clover_patcher.errors import PatcherError

    try:
        return _run(args)
    except PatcherError as exc:
        print(f"clover-code undo: {exc}", file=sys.stderr)
        if args.json:
            output.print_json(
                {"schema": output.SCHEMA, "error": str(exc), "exit_code": exc.exit_code}
            )
        return exc.exit_code


def _run(args: argparse.Namespace) -> int:
    from clover_patcher.deliver.undo import history, undo
    from clover_patcher.repository.git import Repository

    repository = Repository.open(Path.cwd())
    if args.list:
        _show(history(repository), as_json=args.json)
        return 0
    done = undo(repository, args.id, dry_run=args.dry_run)
    if args.json:
        output.print_json(_as_json(done, dry_run=args.dry_run))
        return 0
    output.write_patch(done.patch, colour=output.wants_colour(sys.stdout))
    verb = "would undo" if args.dry_run else "undid"
    commit = f" and removed commit {done.removed_commit[:10]}" if done.removed_commit else ""
    entry = done.fix.entry
    print(f"clover-code undo: {verb} {entry.id}{commit}: {entry.title}", file=sys.stderr)
    return 0


def _show(fixes: list[Fix], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"schema": output.SCHEMA, "fixes": [_fix_as_json(fix) for fix in fixes]})
        return
    for fix in fixes:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(fix.entry.created))
        files = ", ".join(file.path for file in fix.entry.files)
        print(f"{fix.entry.id}  {when}  {_state(fix):11}  {fix.entry.title}  [{files}]")
    if not fixes:
        print("clover-code undo: there are no fixes on record here", file=sys.stderr)


def _state(fix: Fix) -> str:
    if fix.undone:
        return "undone"
    return f"{fix.commit[:10]}" if fix.commit else "applied"


def _fix_as_json(fix: Fix) -> dict[str, Any]:
    return {
        "id": fix.entry.id,
        "created": fix.entry.created,
        "title": fix.entry.title,
        "files": [file.path for file in fix.entry.files],
        "commit": fix.commit,
        "undone": fix.undone,
    }


def _as_json(done: Undone, *, dry_run: bool) -> dict[str, Any]:
    text, encoded = output.patch_text(done.patch)
    return {
        "schema": output.SCHEMA,
        "fix": _fix_as_json(done.fix),
        "applied": not dry_run,
        "removed_commit": done.removed_commit,
        "patch": text,
        "patch_base64": encoded,
    }
