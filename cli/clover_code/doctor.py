"""`clover-code doctor`: what is installed, whether the model answers, what to do if not."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clover_code import __version__
from clover_code.doctor_servers import look_at_servers
from clover_code.engine_option import ENGINES, add_engine_arguments, wanted_by
from clover_code.errors import UserError
from clover_engine.api import Health, InfillRequest
from clover_engine.checkpoint.catalog import missing as gguf_missing
from clover_engine.checkpoint.known import candidate_at
from clover_engine.errors import EngineError
from clover_engine.worker.local import LocalEngine, checkpoint_path, install_command

SUPPORTED_PYTHONS = ((3, 11), (3, 13))
BASE_PACKAGES = ("gitpython", "pygls", "tree-sitter", "tree-sitter-python", "watchfiles")
ENGINE_PACKAGES = ("torch", "numpy", "safetensors", "tokenizers")
_IMPORT_NAMES = {"gitpython": "git"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)[^>;]*>=\s*(?P<least>[\d.]+)")

EXAMPLES = """\
examples:
  clover-code doctor
  clover-code doctor --no-start --json
  clover-code doctor --plan                       what a GPU of which size can serve
  clover-code doctor --plan --gpu-memory 24GB --bits 4
  clover-code doctor --plan --model DIR --gpu-memory 16GB --json

exit codes:
  0  everything is there and the model answers; with --plan: the model fits
  1  something is missing (each line says what to run); with --plan: it does not fit
  2  the model or the amount of memory cannot be understood
"""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of the report; `fix` is the command or action that mends it."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is installed, what is missing and how to get it",
        description="Looks at the installation, and starts the model for one tiny completion.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-start", action="store_true", help="do not start the model")
    add_engine_arguments(parser, ENGINES[:-1], what="the model server to look at")
    planner = parser.add_argument_group("memory planner")
    planner.add_argument("--plan", action="store_true", help="plan memory, look at nothing else")
    planner.add_argument(
        "--model",
        default="clover-35b-a3b",
        metavar="DIR|NAME",
        help="a checkpoint's folder or a known model (default: %(default)s)",
    )
    planner.add_argument("--gpu-memory", metavar="SIZE", help="of each card, for example 16GB")
    planner.add_argument(
        "--bits", type=int, choices=(16, 8, 4), help="of the weights (default: as stored)"
    )
    planner.add_argument(
        "--tp", type=int, default=1, metavar="N", help="cards that share the model"
    )
    planner.add_argument("--context-length", type=int, metavar="TOKENS", help="to make room for")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    if args.plan:
        return run_plan(args)
    wanted = wanted_by(args)
    checks = [check_python(), check_self(), check_git()]
    checks += (check_package(name, base_install_command()) for name in BASE_PACKAGES)
    custom_worker = bool(os.environ.get("CLOVER_WORKER"))
    if not custom_worker:
        checks += (check_package(name, install_command()) for name in ENGINE_PACKAGES)
        checks += check_weights()
    health = None
    if not args.no_start and all(check.ok for check in checks):
        check, health = check_engine()
        checks.append(check)
    if not args.no_start:
        looks = look_at_servers(wanted)
        checks += (ReportLine(name, not fix, detail, fix) for name, detail, fix in looks)
    report(checks, health, args.json)
    return 0 if all(check.ok for check in checks) else 1


def run_plan(args: argparse.Namespace) -> int:
    """Prints what fits where; nothing is started or loaded."""
    from clover_code.plan_output import print_overview, print_plan
    from clover_engine.capacity.plan import find_model, parse_memory, plan
    from clover_engine.capacity.sizes import Precision

    model = find_model(args.model)
    precision = None if args.bits is None else Precision(args.bits)
    if args.gpu_memory is None:
        print_overview(model, precision, args.json)
        return 0
    if args.context_length is not None and args.context_length < 1:
        raise UserError("--context-length counts tokens, from 1")
    memory = parse_memory(args.gpu_memory)
    found = plan(model, precision, memory, gpus=args.tp, context=args.context_length)
    print_plan(found, args.json)
    return 0 if found.fits else 1


def base_install_command() -> str:
    """The command that installs the packages of the base install."""
    return install_command().replace("[engine]", "")


def check_python() -> ReportLine:
    version = platform.python_version()
    least, most = SUPPORTED_PYTHONS
    ok = least <= sys.version_info[:2] <= most
    wanted = f"{least[0]}.{least[1]} to {most[0]}.{most[1]}"
    detail = f"{version} ({sys.executable})"
    return ReportLine("python", ok, detail, "" if ok else f"use Python {wanted}")


def check_self() -> ReportLine:
    where = Path(__file__).parent
    try:
        installed = importlib.metadata.version("clover-code")
    except importlib.metadata.PackageNotFoundError:
        return ReportLine(
            "clover-code",
            False,
            f"{__version__} in {where}, not installed as a package",
            base_install_command(),
        )
    return ReportLine("clover-code", True, f"{installed} ({where})")


def check_git() -> ReportLine:
    fix = "install git, for example: sudo apt-get install git"
    path = shutil.which("git")
    if path is None:
        return ReportLine("git", False, "not found on PATH", fix)
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return ReportLine("git", False, f"{path} does not run: {error}", fix)
    version = run.stdout.strip().removeprefix("git version ")
    if run.returncode:
        return ReportLine("git", False, f"{version} ({path})", fix)
    from clover_patcher.errors import PatcherError
    from clover_patcher.repository.git import require_git

    try:
        require_git()
    except PatcherError as error:
        return ReportLine("git", False, f"{version} ({path})", str(error))
    return ReportLine("git", True, f"{version} ({path})")


def check_package(name: str, fix: str) -> ReportLine:
    """Is the package importable, and at least as new as our own metadata asks for?"""
    module = _IMPORT_NAMES.get(name, name.replace("-", "_"))
    if importlib.util.find_spec(module) is None:
        return ReportLine(name, False, "not installed", fix)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ReportLine(name, True, "version unknown")
    least = _least_versions().get(name)
    if least is not None and _release(version) < _release(least):
        return ReportLine(name, False, f"{version}, {least} or newer is needed", f"{fix} --upgrade")
    return ReportLine(name, True, version)


def _least_versions() -> dict[str, str]:
    try:
        required = importlib.metadata.requires("clover-code") or []
    except importlib.metadata.PackageNotFoundError:
        required = []
    found = (_REQUIREMENT.match(text) for text in required)
    return {m["name"].lower(): m["least"] for m in found if m is not None}


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"[\d.]*", version)
    return tuple(int(n) for n in (numbers[0] if numbers else "").split(".") if n)


def check_weights() -> Iterator[ReportLine]:
    """Where the checkpoint is and whether its three files are there."""
    folder = checkpoint_path()
    if (candidate := candidate_at(folder)) is not None:
        ready, name = candidate.missing() is None, candidate.name
        detail = f"{name}, in {folder}" if ready else f"{name} is not installed"
        yield ReportLine("weights", ready, detail, "" if ready else candidate.install_commands())
        return
    if folder.suffix == ".gguf":
        reason = gguf_missing(folder) or ""
        what, _, command = reason.partition("; run: ")
        there = "" if reason else f"{folder} ({folder.stat().st_size / 1e6:.1f} MB)"
        fix = (command or "clover-code model list") if reason else ""
        yield ReportLine("weights", not reason, what or there, fix)
        return
    fix = "reinstall clover-code: its wheel ships the weights"
    if os.environ.get("CLOVER_CHECKPOINT"):
        fix = "set CLOVER_CHECKPOINT to a checkpoint's folder, or: unset CLOVER_CHECKPOINT"
    weights = [*folder.glob("*.safetensors")]
    missing = [n for n in ("config.json", "tokenizer.json") if not (folder / n).is_file()]
    if not weights:
        missing.append("*.safetensors")
    if missing:
        yield ReportLine("weights", False, f"{folder} has no {', '.join(missing)}", fix)
        return
    size = sum(path.stat().st_size for path in weights) / 1e6
    yield ReportLine("weights", True, f"{folder} ({size:.1f} MB)")


def check_engine() -> tuple[ReportLine, Health]:
    """Starts the model and asks for a few tokens."""
    begun = time.monotonic()
    with LocalEngine() as engine:
        try:
            engine.health(start=True)
            loaded = time.monotonic() - begun
            result = engine.infill(InfillRequest("def add(a, b):\n    return ", max_tokens=4))
        except EngineError as error:
            health = engine.health()
            fix = shlex.join(["clover-code", "--debug", "doctor"])
            return ReportLine("engine", False, str(error), fix), health
        health = engine.health()
    answered = time.monotonic() - begun - loaded
    size = f", {health.parameters / 1e6:.1f}M parameters" if health.parameters else ""
    detail = (
        f"{health.model}{size}, {engine.threads} threads: loaded in {loaded:.1f} s, "
        f"{result.stats.tokens} tokens in {answered:.2f} s"
    )
    return ReportLine("engine", True, detail), health


def report(checks: list[ReportLine], health: Health | None, as_json: bool) -> None:
    """Prints the checks as a table, or as one JSON object."""
    if as_json:
        found: dict[str, Any] = {
            "ok": all(check.ok for check in checks),
            "checks": [asdict(check) for check in checks],
            "engine": None if health is None else asdict(health),
        }
        print(json.dumps(found))
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{'ok     ' if check.ok else 'MISSING'}  {check.name:{width}}  {check.detail}")
        if check.fix:
            print(f"{'':9}{'':{width}}  → {check.fix}")
