"""`clover-code do`: a requirement in words, carried out in a copy of the tree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code import fix_output as output
from clover_code.asking import add_applying_arguments, decided
from clover_code.engine_option import ENGINES, ENVIRONMENT, add_engine_arguments, conversing
from clover_code.errors import UserError
from clover_code.fix_cmd import count_of, seconds_of, withheld_below
from clover_code.fix_screen import Screen, printable
from clover_code.interrupts import interruptible
from clover_code.reporting import reported

if TYPE_CHECKING:
    from clover_engine.api import CancelToken
    from clover_patcher.agent.task import Event, Outcome
    from clover_patcher.deliver.deliver import Delivered

EPILOG = (
    """examples:
  clover-code do "add a command that lists the open orders" --check "pytest -q"
  clover-code do "Cart.total takes a discount in percent" shop/cart.py --apply
  clover-code do "document the settings in README.md" --dry-run

The model works in a copy of the tree: it lists, searches, reads and edits files, and runs the
check there. What it leaves is printed as a diff, with what was run. On a terminal you are asked
whether to apply it; elsewhere nothing changes without --apply. `clover-code undo` takes it back.
With --check, tests and other files from which its verdict comes are left alone (--allow).

exit codes:
  0  done: applied, or printed; with --check, the check passes
  1  not done: a limit was reached, or the check fails
  2  the request cannot be tried (the message says what to do)
  4  a file changed meanwhile; nothing was applied
  5  applied, but the commit that --commit asks for was not made
  124  the time is spent
  130  interrupted

"""
    + ENVIRONMENT
)
_ASK = "apply it? [a]pply, [q] leave it: "


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `do`."""
    parser = subparsers.add_parser(
        "do",
        help="carry out a requirement in a copy of the tree",
        description="Carries out a requirement with a model that converses "
        "(clover-code model get coder-1.5b, or a server).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", metavar="REQUIREMENT")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="change only these files or folders"
    )
    parser.add_argument(
        "--check", default="", metavar="CMD", help="a command that must pass in the end"
    )
    parser.add_argument(
        "--budget", type=seconds_of, default=600.0, metavar="SECONDS", help="default: 600"
    )
    parser.add_argument(
        "--steps", type=count_of, default=16, metavar="N", help="answers of the model (default: 16)"
    )
    add_engine_arguments(parser, ENGINES[:-1], what="the model that works")
    parser.add_argument(
        "--check-timeout", type=seconds_of, metavar="SECONDS", help="limit for one test or command"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tests that may be changed although there is a check, as in .gitignore",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help="copy this too, whatever its size: an ignored path, or one beside the repository",
    )
    parser.add_argument(
        "--network", action="store_true", help="the check keeps the network (default: loopback)"
    )
    group = parser.add_argument_group("applying")
    add_applying_arguments(group)
    group.add_argument(
        "--patch-out", type=Path, metavar="FILE", help="write the patch for git apply"
    )
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--ci", action="store_true", help="plain lines, no colour, no questions")
    group.add_argument(
        "--log", type=Path, metavar="FILE", help="write every step here (JSON lines)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    return reported("do", lambda: _run(args), as_json=args.json)


def _run(args: argparse.Namespace) -> int:
    if args.dry_run and (args.apply or args.commit):
        raise UserError("--dry-run changes nothing: leave it out, or --apply and --commit")
    screen = Screen(sys.stderr, ci=args.ci, name="do")
    with interruptible() as cancel:
        try:
            outcome = _carried_out(args, screen, cancel)
        finally:
            screen.clear()
        _print(args, outcome)
        may_apply = outcome.status == "done" and bool(outcome.changes)
        said = decided(args, cancel, _ASK) if may_apply else "q"
    delivered = _deliver(args, outcome) if said == "a" else None
    return _end(args, outcome, delivered)


def _carried_out(args: argparse.Namespace, screen: Screen, cancel: CancelToken) -> Outcome:
    from clover_engine.privacy.unquoting import unquoting_talk
    from clover_patcher.agent.loop import run as carry_out
    from clover_patcher.agent.task import Limits, Requirement
    from clover_patcher.repository.git import Repository

    top = Repository.open(Path.cwd()).root
    withheld = withheld_below(top)
    requirement = Requirement(
        root=Path.cwd(),
        words=args.words,
        check=args.check,
        paths=tuple(args.paths),
        allow=tuple(args.allow),
        withheld=withheld,
        include=tuple(args.include),
        network=args.network,
        check_timeout_s=args.check_timeout,
        trajectory=args.log,
    )
    limits = Limits(steps=args.steps, seconds=args.budget)
    screen.event("engine", "copying the tree, asking the model")
    with conversing(args) as engine:
        told = unquoting_talk(engine, top, withheld)
        return carry_out(requirement, told, limits, cancel, _Shown(screen).event)


class _Shown:
    """The events of a run on the screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def event(self, event: Event) -> None:
        if event.kind == "text":
            last = event.text.rstrip().rpartition("\n")[2].strip()
            self._screen.event("engine", f"step {event.step}: {printable(last)}")
        elif event.kind == "call" and event.call:
            words = f"{event.call.tool} {event.call.argument}".strip()
            self._screen.event("search", f"step {event.step}: {printable(words)}")
        elif event.kind == "note":
            self._screen.event("baseline", printable(event.text))


def _print(args: argparse.Namespace, outcome: Outcome) -> None:
    """The diff on standard output, what was run on standard error."""
    if args.patch_out is not None:
        try:
            args.patch_out.write_bytes(outcome.patch)
        except OSError as exc:
            raise UserError(f"cannot write {args.patch_out}: {exc.strerror}") from exc
    if args.json:
        return
    output.write_patch(outcome.patch, colour=not args.ci and output.wants_colour(sys.stdout))
    for note in outcome.notes:
        _say(f"note: {note}")
    for number, ran in enumerate(outcome.runs, 1):
        _say(f"ran `{ran.command}`: {'passes' if ran.passed else 'fails'}")
        if not ran.passed and number == len(outcome.runs):
            print(ran.output, file=sys.stderr)
    if outcome.summary:
        _say(f"the model: {outcome.summary}")


def _deliver(args: argparse.Namespace, outcome: Outcome) -> Delivered:
    from clover_patcher.agent.delivery import deliver_outcome

    return deliver_outcome(outcome, commit=args.commit)


def _end(args: argparse.Namespace, outcome: Outcome, delivered: Delivered | None) -> int:
    code = delivered.exit_code if delivered else outcome.exit_code
    if args.json:
        output.print_json(_as_json(outcome, delivered, code))
        return code
    for note in delivered.notes if delivered else ():
        _say(f"note: {note}")
    work = f"{outcome.steps} steps, {outcome.tokens} tokens in {outcome.seconds:.1f} s"
    _say(f"{_ending(outcome, delivered)} ({work}); every step: {outcome.trajectory}")
    return code


def _ending(outcome: Outcome, delivered: Delivered | None) -> str:
    from clover_patcher.agent.task import WHY

    if outcome.status != "done":
        partly = "; the diff is what there is so far" if outcome.changes else ""
        return f"not done: {WHY[outcome.status]}{partly}"
    if not outcome.changes:
        return "nothing was changed"
    files = ", ".join(change.path for change in outcome.changes)
    if delivered is None:
        return f"would change {files}; --apply does it"
    commit = f", commit {delivered.commit[:10]}" if delivered.commit else ""
    return f"changed {files}{commit}; `clover-code undo` takes it back"


def _as_json(outcome: Outcome, delivered: Delivered | None, code: int) -> dict[str, Any]:
    from clover_patcher.agent.task import WHY

    text, encoded = output.patch_text(outcome.patch)
    return {
        "schema": output.SCHEMA,
        "status": outcome.status,
        "exit_code": code,
        "error": WHY[outcome.status] or None,
        "notes": [*outcome.notes, *(delivered.notes if delivered else ())],
        "applied": delivered is not None,
        "fix_id": delivered.id if delivered else None,
        "commit": delivered.commit if delivered else None,
        "patch": text,
        "patch_base64": encoded,
        "root": str(outcome.root),
        "files": [{"path": change.path, "created": change.created} for change in outcome.changes],
        "summary": outcome.summary,
        "runs": [
            {"command": ran.command, "passed": ran.passed, "output": ran.output}
            for ran in outcome.runs
        ],
        "steps": outcome.steps,
        "format_errors": outcome.errors,
        "tokens": outcome.tokens,
        "seconds": outcome.seconds,
        "model": outcome.model,
        "log": str(outcome.trajectory) if outcome.trajectory else None,
    }


def _say(text: str) -> None:
    output.say(text, "do")
