"""`clover-code serve`: a model on this machine's GPUs, for many editors, through SGLang."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from clover_code.errors import UserError
from clover_engine.serving.launch import (
    Launch,
    LaunchOptions,
    check_port,
    default_python,
    prepare,
    read_key,
    write_settings,
)
from clover_engine.serving.supervisor import Events, RestartLimits, Supervisor

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}

EXAMPLES = """\
examples:
  clover-code serve --model DIR --dry-run
  clover-code serve --model DIR --tp 2 --log server.log
  clover-code serve --model DIR --host 0.0.0.0 --api-key-file key.txt
  clover-code serve --model DIR -- --mem-fraction-static 0.9

What stands behind -- goes to SGLang as it is. Ctrl-C ends the server within seconds, a second one
at once. A server that dies after it was up is started again.

exit codes:
  0  stopped by Ctrl-C or SIGTERM (or --dry-run)
  1  the server did not come up, or kept dying
  2  SGLang, the GPU, the model or the port cannot be used; nothing was started
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `serve`."""
    from clover_engine.worker.local import checkpoint_path

    parser = subparsers.add_parser(
        "serve",
        help="serve a model on this machine's GPUs, with SGLang",
        description="Checks memory, starts SGLang for a checkpoint, and keeps it running.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model",
        type=Path,
        default=checkpoint_path(),
        metavar="DIR",
        help="the checkpoint's folder",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=_port, default=30000, help="%(default)s")
    parser.add_argument("--tp", type=_count, default=1, metavar="N", help="GPUs that share a copy")
    parser.add_argument("--dp", type=_count, default=1, metavar="N", help="copies of the model")
    parser.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="holds the key to ask for"
    )
    parser.add_argument(
        "--allow-no-key", action="store_true", help="listen for other machines without a key"
    )
    parser.add_argument(
        "--max-running-requests", type=_count, metavar="N", help="default: what memory allows"
    )
    parser.add_argument("--context-length", type=_count, metavar="TOKENS")
    parser.add_argument("--mode", choices=("speculative", "threshold", "ar"), help="of decoding")
    parser.add_argument("--block-size", type=_count, metavar="N", help="of denoising, at most 32")
    parser.add_argument(
        "--python",
        default=default_python(),
        metavar="PATH",
        help="that has SGLang (CLOVER_SGLANG_PYTHON, else this one)",
    )
    parser.add_argument("--log", metavar="FILE", help="append the server's output to FILE")
    parser.add_argument(
        "--ready-timeout", type=_count, default=900, metavar="S", help="%(default)s s"
    )
    parser.add_argument("--restarts", type=int, default=5, metavar="N", help="%(default)s in a row")
    parser.add_argument("--dry-run", action="store_true", help="check, print the command, stop")
    parser.add_argument("sglang", nargs="*", metavar="-- ARGS", help="arguments for SGLang")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _port(text: str) -> int:
    number = _count(text)
    if number > 65535:
        raise argparse.ArgumentTypeError("ports go up to 65535")
    return number


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    key = "" if args.api_key_file is None else read_key(args.api_key_file)
    if not key and args.host not in LOOPBACK and not args.allow_no_key:
        raise UserError(
            f"whoever reaches {args.host} could use the server: give --api-key-file, or "
            "--allow-no-key where the network is closed"
        )
    if key and "--config" in args.sglang:
        raise UserError("SGLang reads one --config, which carries the key: leave out yours")
    launch = prepare(_options(args))
    if args.dry_run:
        print(launch.shown())
        return 0
    check_port(args.host, args.port)
    with _log(args.log) as log, tempfile.TemporaryDirectory(prefix="clover-serve-") as folder:
        more = write_settings(Path(folder), launch.algorithm, key)
        return _supervise(args, launch, more, log)


def _options(args: argparse.Namespace) -> LaunchOptions:
    algorithm = {"mode": args.mode, "block_size": args.block_size}
    return LaunchOptions(
        model=args.model.expanduser().absolute(),
        python=args.python,
        host=args.host,
        port=args.port,
        tp=args.tp,
        dp=args.dp,
        max_running_requests=args.max_running_requests,
        context_length=args.context_length,
        algorithm={name: value for name, value in algorithm.items() if value is not None},
        extra=tuple(args.sglang),
    )


def _supervise(
    args: argparse.Namespace, launch: Launch, more: list[str], log: IO[str] | None
) -> int:
    command = [*launch.command, *more]
    tls = any(a.startswith("--ssl-certfile") for a in launch.command)
    address, screen = _address(args, tls), Screen(log)
    supervisor = Supervisor(
        command,
        launch.env,
        (EVERY.get(args.host, args.host), args.port),
        Events(
            line=screen.line,
            waiting=screen.waiting,
            ready=lambda seconds: screen.ready(seconds, address, args.api_key_file is not None),
            note=screen.note,
        ),
        RestartLimits(ready_s=args.ready_timeout, restarts=args.restarts),
        tls=tls,
    )
    screen.note(f"starting {shlex.join(command)}")
    with _signals(supervisor.stop):
        stopped = supervisor.run()
    if stopped:
        screen.note("stopped")
    return 0 if stopped else 1


def _address(args: argparse.Namespace, tls: bool) -> str:
    host = EVERY.get(args.host, args.host)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{host}:{args.port}"


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the server instead of this process.

    What the caller had us ignore (nohup, a shell's background) stays ignored.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: stop()) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log(path: str | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "a", encoding="utf-8", buffering=1))
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; give another --log") from None
        yield file


class Screen:
    """The server's output and our own words: to the log and standard error."""

    def __init__(self, log: IO[str] | None) -> None:
        self._log = log
        self._told = 0.0

    def line(self, text: str) -> None:
        if self._log is not None:
            print(text, file=self._log)
        else:
            print(f"sglang | {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"clover-code: {text}", file=sys.stderr, flush=True)

    def waiting(self, seconds: float) -> None:
        """Says so every ten seconds."""
        if seconds < self._told:
            self._told = 0.0
        if seconds - self._told >= 10:
            self._told = seconds
            self.note(f"the server is starting, {seconds:.0f} s so far")

    def ready(self, seconds: float, address: str, has_key: bool) -> None:
        """Says where the server is and what to write into the editor's settings."""
        settings: dict[str, Any] = {"clover.engine": "sglang", "clover.sglang.url": address}
        if has_key:
            settings["clover.sglang.apiKey"] = "..."
        print(f"ready after {seconds:.0f} s: {address}")
        print("in the editor's settings:")
        for name, value in settings.items():
            print(f"  {json.dumps(name)}: {json.dumps(value)},")
        print(f"or for other programs: CLOVER_SGLANG_URL={address}", flush=True)
