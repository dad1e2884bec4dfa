"""`clover-code fix`: arguments, live progress, the diff or one JSON object."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from clover_engine.errors import CheckpointError, EngineError, EngineUnavailable

if TYPE_CHECKING:
    from clover_engine.api import Engine
    from clover_patcher.fix import FixResult
    from clover_patcher.progress import Stage

EXIT_CODES = """exit codes:
  0  fixed: the patch is in the working tree (with --dry-run: it would be)
  1  none found
  2  the request cannot be tried (the message says what to do)
  3  the check passes already, or fails differently each time
  4  a file changed meanwhile; the patch was printed, not applied
  124  the time budget is spent
"""


_INTERNAL = 70
JSON_KEYS = (
    *("status", "exit_code", "patch", "file", "line", "applied", "candidates_tried"),
    *("candidates_passing", "rank", "seconds", "engine", "explanation", "notes", "error"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `fix`."""
    parser = subparsers.add_parser(
        "fix",
        help="repair a program whose check fails",
        description="Finds a small patch that makes a failing check pass, and applies it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check",
        required=True,
        metavar="CMD",
        help='the failing command, run at the top of the repository ("pytest tests/test_x.py")',
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="patch only these files or folders"
    )
    parser.add_argument("--budget", type=_seconds, default=120.0, metavar="SECONDS")
    parser.add_argument("--dry-run", action="store_true", help="print the patch, change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--engine",
        choices=["embedded", "none"],
        default="embedded",
        help="the model that proposes and ranks candidates; none: enumeration without a model",
    )
    parser.add_argument(
        "--check-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="limit for one test or command (default: chosen from its first run)",
    )
    parser.add_argument(
        "--jobs", type=_count, default=0, metavar="N", help="copies of the tree tried in parallel"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    from clover_patcher.errors import PatcherError

    started = time.monotonic()
    screen = _Screen(sys.stderr, args.budget)
    try:
        with _interruptible():
            result = _fix(args, screen)
    except (PatcherError, EngineError) as exc:
        screen.clear()
        return _report_error(args, exc, time.monotonic() - started)
    except Exception as exc:
        screen.clear()
        if args.json:
            _print_error(exc, _INTERNAL, time.monotonic() - started)
        raise  # for the main program, which knows how to report it
    except KeyboardInterrupt:
        screen.clear()
        print("clover-code fix: interrupted", file=sys.stderr)
        return 130
    screen.clear()
    if args.json:
        print(json.dumps(_as_json(result)))
    else:
        _print_result(result)
    return result.exit_code


def _fix(args: argparse.Namespace, screen: _Screen) -> FixResult:
    from clover_patcher.fix import FixRequest, fix

    request = FixRequest(
        root=Path.cwd(),
        check=args.check,
        paths=tuple(args.paths),
        budget_s=args.budget,
        dry_run=args.dry_run,
        check_timeout_s=args.check_timeout,
        jobs=args.jobs,
    )
    engine = _engine(args.engine)
    try:
        return fix(request, engine, screen)
    finally:
        if engine is not None:
            engine.close()


def _engine(name: str) -> Engine | None:
    if name == "none":
        return None
    from clover_engine.local import LocalEngine

    return LocalEngine()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Makes termination signals unwind like Ctrl-C, so that the copies are removed."""

    def stop(number: int, _: Any) -> None:
        raise KeyboardInterrupt

    wanted = [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report_error(args: argparse.Namespace, exc: Exception, seconds: float) -> int:
    code = _exit_code(exc)
    print(f"clover-code fix: {_one_line(exc)}", file=sys.stderr)
    if args.json:
        _print_error(exc, code, seconds)
    return code


def _print_error(exc: Exception, code: int, seconds: float) -> None:
    found: dict[str, Any] = dict.fromkeys(JSON_KEYS)
    found |= {"status": "error", "exit_code": code, "error": _one_line(exc), "applied": False}
    found |= {"candidates_tried": 0, "candidates_passing": 0, "seconds": round(seconds, 3)}
    print(json.dumps(found | {"notes": []}))


def _one_line(said: object) -> str:
    return " ".join(str(said).split()) or type(said).__name__


def _exit_code(exc: Exception) -> int:
    from clover_patcher.errors import PatcherError

    if isinstance(exc, PatcherError):
        return exc.exit_code
    return 2 if isinstance(exc, CheckpointError | EngineUnavailable) else 1


def _as_json(result: FixResult) -> dict[str, Any]:
    from clover_engine.api import to_json

    return {
        "status": result.status,
        "exit_code": result.exit_code,
        "patch": result.patch.decode("utf-8", "surrogateescape") or None,
        "file": result.path,
        "line": result.line,
        "applied": result.applied,
        "candidates_tried": result.candidates_tried,
        "candidates_passing": result.passing,
        "rank": result.rank,
        "seconds": result.seconds,
        "engine": to_json(result.engine),
        "explanation": result.explanation or None,
        "notes": list(result.notes),
        "error": result.error,
    }


def _print_result(result: FixResult) -> None:
    """The diff on standard output, one line about it on standard error."""
    sys.stdout.flush()
    sys.stdout.buffer.write(result.patch)
    sys.stdout.buffer.flush()
    for note in result.notes:
        print(f"clover-code fix: note: {_one_line(note)}", file=sys.stderr)
    work = f"{result.candidates_tried} candidates tried in {result.seconds:.1f} s"
    if result.error:
        print(f"clover-code fix: {result.error} ({work})", file=sys.stderr)
    else:
        done = "fixed" if result.applied else "would fix"
        print(f"clover-code fix: {done} {result.path}:{result.line} ({work})", file=sys.stderr)


class _Screen:
    """One live line on a terminal; nothing where standard error is not one."""

    def __init__(self, stream: TextIO, budget_s: float) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._budget_s = budget_s
        self._drawn_at = -math.inf
        self._stage: Stage | None = None

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        """Draws the line anew, at most ten times a second within one stage."""
        now = time.monotonic()
        if not self._live or (stage == self._stage and now - self._drawn_at < 0.1):
            return
        self._stage, self._drawn_at = stage, now
        parts = [f"{stage:9}"]
        if "tried" in numbers:
            parts.append(f"{numbers['tried']:.0f} tried")
        if numbers.get("passing"):
            parts.append(f"{numbers['passing']:.0f} passing")
        if "left_s" in numbers:
            parts.append(f"{numbers['left_s']:.0f} s left")
        self._draw("  ".join([*parts, _printable(message)]))

    def clear(self) -> None:
        """Removes the line."""
        if self._live and self._stage is not None:
            self._draw("")
            self._stage = None

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)
