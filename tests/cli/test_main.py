"""The command's frame: help, subcommands, errors and exit codes."""

from __future__ import annotations

import argparse
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import clover_code
from clover_code import main as main_module
from clover_code.errors import UserError
from clover_engine.errors import CheckpointError, EngineCrashed, EngineError, EngineUnavailable
from clover_patcher.errors import BudgetExceeded, TreeChanged, UsageError

Command = Callable[..., Any]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Adds a subcommand `boom` that raises."""

    def install(error: BaseException) -> None:
        def run(args: argparse.Namespace) -> int:
            raise error

        def add_parser(subparsers: Any) -> None:
            subparsers.add_parser("boom").set_defaults(run=run)

        module = types.ModuleType("boom_cmd")
        module.add_parser = add_parser  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "boom_cmd", module)
        monkeypatch.setitem(main_module.COMMANDS, "boom", "boom_cmd")

    return install


def test_version(command: Command) -> None:
    ran = command("--version")
    assert (ran.code, ran.out.strip()) == (0, f"clover-code {clover_code.__version__}")


def test_help_lists_every_subcommand(command: Command) -> None:
    ran = command("--help")
    assert ran.code == 0
    assert all(f"    {name} " in ran.out for name in main_module.COMMANDS)


def test_fix_without_a_check_says_what_is_missing(command: Command) -> None:
    ran = command("fix")
    assert ran.code == 2
    assert ran.err.count("\n") == 1 and "--check" in ran.err


@pytest.mark.parametrize("name", main_module.COMMANDS)
def test_every_subcommand_has_help_and_exit_codes(name: str, command: Command) -> None:
    ran = command(name, "--help")
    assert ran.code == 0
    assert "exit codes:" in ran.out


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("--nonsense",), ("infill",)])
def test_wrong_usage_is_code_2(arguments: tuple[str, ...], command: Command) -> None:
    ran = command(*arguments)
    assert ran.code == 2
    assert "usage: clover-code" in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("say it better"), 2),
        (UsageError("not a git repository"), 2),
        (TreeChanged("a.py changed"), 4),
        (BudgetExceeded("no time left"), 124),
        (CheckpointError("truncated"), 2),
        (EngineUnavailable("torch is not installed"), 2),
        (EngineCrashed("died"), 1),
        (EngineError("failed"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_known_errors_are_one_line(
    error: BaseException, code: int, command: Command, raising: Callable[[BaseException], None]
) -> None:
    raising(error)
    ran = command("boom")
    assert ran.code == code
    assert ran.err == f"clover-code: {str(error) or 'interrupted'}\n"
    assert ran.out == ""


def test_unexpected_errors_hide_the_traceback(
    command: Command, raising: Callable[[BaseException], None]
) -> None:
    raising(ValueError("two\nlines"))
    ran = command("boom")
    assert ran.code == 70
    assert ran.err == (
        "clover-code: unexpected ValueError: two lines; run again with --debug for the traceback\n"
    )


@pytest.mark.parametrize("arguments", [("--debug", "boom"), ("boom", "--debug")])
def test_debug_shows_the_traceback(
    arguments: tuple[str, ...], command: Command, raising: Callable[[BaseException], None]
) -> None:
    raising(ValueError("here"))
    ran = command(*arguments)
    assert ran.code == 70
    assert "Traceback" in ran.err and "in run" in ran.err


def test_module_runs_as_a_command_and_survives_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "clover_code", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
