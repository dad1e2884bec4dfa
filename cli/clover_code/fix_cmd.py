"""`clover-code fix`: the arguments, the run, and where its results go."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code import fix_output as output
from clover_code.engine_option import ENVIRONMENT, add_engine_arguments, opened
from clover_code.errors import UserError
from clover_code.fix_screen import Screen
from clover_code.interrupts import interruptible
from clover_code.reporting import exit_code, words
from clover_engine.api import CancelToken
from clover_engine.errors import EngineError

if TYPE_CHECKING:
    from clover_patcher.fix import FixResult
    from clover_patcher.types import Diagnostic

EPILOG = (
    """exit codes:
  0  fixed: the patch is in the working tree (with --dry-run: it would be)
  1  none found
  2  the request cannot be tried (the message says what to do)
  3  the check passes already, or fails differently each time
  4  a file changed meanwhile; the patch was printed, not applied
  5  fixed, but the commit that --commit asks for was not made
  124  the time budget is spent
  130  interrupted

With --commit your hooks run as git runs them. What they refuse stays in the working tree.
Every run is logged in the git directory, under clover/runs. Nothing leaves this machine, unless
the engine is a server elsewhere.

"""
    + ENVIRONMENT
)

_INTERNAL, _INTERRUPTED = 70, 130
_STDOUT = Path("-")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `fix`."""
    parser = subparsers.add_parser(
        "fix",
        help="repair a program whose check fails",
        description="Finds a small patch that makes a failing check pass, and applies it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_search_arguments(parser)
    _add_applying_arguments(parser.add_argument_group("applying"))
    _add_output_arguments(parser.add_argument_group("output"))
    parser.set_defaults(run=run)


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        default="",
        metavar="CMD",
        help='the failing command, run where you are: tests ("pytest tests/test_x.py", '
        '"tests/test_x.py::test_y"), a program, or a linter or type checker ("ruff check", "mypy")',
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FILE:LINE[:RULE]",
        help="change only this line; of a linter's diagnostics repair only those there",
    )
    parser.add_argument(
        "--traceback",
        metavar="FILE",
        help="a traceback of the failure, from any machine, says where to look; - reads it from "
        "standard input; where it names failing tests, they are the check",
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="patch only these files or folders"
    )
    parser.add_argument(
        "--budget", type=seconds_of, default=120.0, metavar="SECONDS", help="default: 120"
    )
    add_engine_arguments(parser, what="the model that proposes and ranks candidates")
    parser.add_argument(
        "--check-timeout",
        type=seconds_of,
        metavar="SECONDS",
        help="limit for one test or command (default: chosen from its first run)",
    )
    parser.add_argument(
        "--jobs", type=count_of, default=0, metavar="N", help="copies of the tree tried in parallel"
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="do not stop at the first patch that passes: collect others for most of the budget, "
        "and take the one that most speaks for (--json lists alternatives)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="skip candidates that failed in an earlier run of this check on this very tree",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PATTERN",
        help="frozen files that may be changed too, as in .gitignore from the repository's top",
    )
    parser.add_argument(
        "--check-only",
        action="store_true",
        help="do not run the tests around the check, which a patch must not break",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help="copy this too, whatever its size: an ignored path, or one beside the repository",
    )
    parser.add_argument(
        "--network",
        action="store_true",
        help="checks keep the network (default: only services on this machine's loopback device)",
    )


def _add_applying_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dry-run", action="store_true", help="print the patch, change nothing")
    group.add_argument(
        "--commit",
        action="store_true",
        help="commit the patched files and nothing else; not if you have changed them yourself",
    )
    group.add_argument(
        "--patch-out", type=Path, metavar="FILE", help="write the patch for git apply"
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument(
        "--sarif",
        type=Path,
        metavar="FILE",
        help="write SARIF 2.1.0 with the patch in fixes; - prints",
    )
    group.add_argument(
        "--swebench", metavar="INSTANCE_ID", help="print one line of a SWE-bench predictions file"
    )
    group.add_argument("--explain", action="store_true", help="say why this place and this patch")
    group.add_argument(
        "--ci", action="store_true", help="plain progress lines, no colour, whatever the terminal"
    )
    group.add_argument(
        "--log", type=Path, metavar="FILE", help="append the run's log here (JSON lines)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    from clover_patcher.errors import PatcherError

    _require_outputs(args)
    started = time.monotonic()
    screen = Screen(sys.stderr, ci=args.ci)
    try:
        with interruptible() as cancel:
            result = _fix(args, screen, cancel)
    except (PatcherError, EngineError) as exc:
        screen.clear()
        outcome = getattr(exc, "outcome", None)
        if outcome and any(failure.nodeid for failure in outcome.failures):
            output.print_failures(outcome)  # else the words below say all of it
        output.say(words(exc))
        return _report_error(args, exc, exit_code(exc), time.monotonic() - started)
    except Exception as exc:
        screen.clear()
        _report_error(args, exc, _INTERNAL, time.monotonic() - started)
        raise  # for the main program, which knows how to report it
    except KeyboardInterrupt:
        screen.clear()
        output.say("interrupted")
        return _INTERRUPTED
    screen.clear()
    return _report(args, result)


def _fix(args: argparse.Namespace, screen: Screen, cancel: CancelToken) -> FixResult:
    from clover_engine.choice.pair import for_repairs
    from clover_engine.privacy.unquoting import unquoting
    from clover_patcher.fix import FixRequest, fix
    from clover_patcher.repository.git import Repository

    top = Repository.open(Path.cwd()).root
    withheld = withheld_below(top)
    request = FixRequest(
        root=Path.cwd(),
        check=args.check,
        only=_places(args.only),
        traceback=_pasted(args.traceback),
        paths=tuple(args.paths),
        budget_s=args.budget,
        dry_run=args.dry_run,
        check_timeout_s=args.check_timeout,
        jobs=args.jobs,
        commit=args.commit,
        log=args.log,
        resume=args.resume,
        allow=tuple(args.allow),
        check_only=args.check_only,
        withheld=withheld,
        thorough=args.thorough,
        include=tuple(args.include),
        network=args.network,
    )
    with opened(args) as engine:
        if engine is None:
            return fix(request, None, screen, cancel)
        engine = for_repairs(engine)
        try:
            return fix(request, unquoting(engine, top, withheld), screen, cancel)
        finally:
            engine.close()


def withheld_below(top: Path) -> Callable[[str], bool]:
    """Which paths below the top of the repository the language server withholds, here too."""
    from clover_engine.privacy.withheld import Withheld

    withheld = Withheld((top,))
    return lambda path: bool(withheld.of_path(top / path))


def _places(texts: list[str]) -> tuple[Diagnostic, ...]:
    """Places of `--only` as the patcher wants them."""
    if not texts:
        return ()
    from clover_patcher.repository.git import Repository
    from clover_patcher.repository.scope import resolve_only

    root = Repository.open(Path.cwd()).root
    return tuple(resolve_only(root, Path.cwd(), text) for text in texts)


def _pasted(name: str | None) -> str:
    """The text of `--traceback`."""
    from clover_patcher.errors import UsageError

    if name is None:
        return ""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read the traceback {name}: {exc.strerror}") from exc
    if not data.strip():
        raise UsageError(f"the traceback {name} is empty: paste it and end with Ctrl-D")
    return data.decode("utf-8", "replace")


def _require_outputs(args: argparse.Namespace) -> None:
    """Finds out before the search, not after it, that a result could not be written."""
    to_stdout = {
        "--json": args.json,
        "--sarif -": args.sarif == _STDOUT,
        "--swebench": args.swebench is not None,
        "--patch-out -": args.patch_out == _STDOUT,
    }
    chosen = [name for name, wanted in to_stdout.items() if wanted]
    if len(chosen) > 1:
        raise UserError(
            f"{' and '.join(chosen)} both print: give one of them a file, or leave it out"
        )
    if args.dry_run and args.commit:
        raise UserError("--dry-run changes nothing, so there is nothing to commit: leave out one")
    for path in (args.sarif, args.patch_out, args.log):
        if path is not None and path != _STDOUT and not _writable(path):
            raise UserError(f"cannot write {path}: give a file in a folder that you may write to")


def _writable(path: Path) -> bool:
    return (
        os.access(path if path.exists() else path.absolute().parent, os.W_OK) and not path.is_dir()
    )


def _report(args: argparse.Namespace, result: FixResult) -> int:
    """Sends a run's result where the arguments say; returns the exit code."""
    machine = args.json or args.swebench is not None or args.sarif == _STDOUT
    if args.json:
        output.print_json(output.as_json(result))
    if args.swebench is not None:
        _print_prediction(result, args.swebench)
    if args.patch_out not in (None, _STDOUT):
        _write(args.patch_out, result.patch)
    if args.sarif is not None:
        from clover_code.fix_sarif import as_sarif

        _write_json(args.sarif, as_sarif(result, result.check))
    if not args.json:
        colour = not args.ci and output.wants_colour(sys.stdout)
        output.print_text(result, diff=not machine, explain=args.explain, colour=colour)
    elif args.explain:
        output.print_reasons(result)
    return result.exit_code


def _report_error(args: argparse.Namespace, exc: Exception, code: int, seconds: float) -> int:
    if args.json:
        said = output.error_as_json(words(exc), code, seconds)
        said["failures"] = output.failures_as_json(getattr(exc, "outcome", None))
        output.print_json(said)
    if args.sarif is not None:
        from clover_code.fix_sarif import error_as_sarif

        _write_json(args.sarif, error_as_sarif(words(exc), code))
    return code


def _print_prediction(result: FixResult, instance_id: str) -> None:
    try:
        line = output.prediction(result, instance_id)
    except UnicodeDecodeError:
        output.say("note: the patch is not UTF-8, which a prediction cannot hold: none was printed")
        return
    output.print_json(line)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    if path == _STDOUT:
        output.print_json(data)
    else:
        _write(path, json.dumps(data, indent=2).encode() + b"\n")


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as exc:
        raise UserError(f"cannot write {path}: {exc.strerror}; the fix itself is done") from exc


def seconds_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def count_of(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)
