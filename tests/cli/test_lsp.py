"""`clover-code lsp` and `clover-code stats` as commands."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_code.lsp_cmd import parse_address
from clover_lsp.stats import Event, Recorder


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:0", ("::1", 0))]
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["localhost", ":80", "a:b", "a:99999", "a:-1"])
def test_bad_addresses_get_one_line(text: str, command: Callable[..., Any]) -> None:
    ran = command("lsp", "--tcp", text)
    assert ran.code == 2 and "HOST:PORT" in ran.err and ran.err.count("\n") == 1


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clover_code", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run("lsp", "--tcp", address)
    assert ran.returncode == 2 and f"cannot listen on {address}" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_log_that_cannot_be_written(tmp_path: Path, command: Callable[..., Any]) -> None:
    ran = command("lsp", "--log", str(tmp_path / "no" / "such.log"))
    assert ran.code == 2 and "give another --log" in ran.err


def test_no_client_is_no_error() -> None:
    ran = run("lsp")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_starting_stays_light() -> None:
    """What features need later is imported later; an editor waits for the start."""
    heavy = (
        "torch",
        "git",
        "sqlite3",
        "watchfiles",
        "clover_patcher.propose.pool",
        "clover_patcher.fix",
    )
    code = (
        "import sys; from clover_lsp.session import make_server; make_server(); "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_stats(
    tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVER_STATE_DIR", str(tmp_path / "state"))
    ran = command("stats", "--days", "7")
    assert ran.code == 0 and "nothing was suggested in the last 7 days" in ran.out
    recorder = Recorder(tmp_path / "state")
    recorder.record(Event("shown", "1", "python", "model", 10, 50.0))
    recorder.record(Event("shown", "2", "lua", "lookup", 10, 1.0))
    recorder.record(Event("accepted", "1", "python", "model", 10))
    ran = command("stats")
    assert ran.code == 0 and "50.0 %" in ran.out and "from lookup" in ran.out
    found = json.loads(command("stats", "--json").out)
    assert found["all"]["shown"] == 2 and found["by_language"]["lua"]["accepted"] == 0


@pytest.mark.parametrize("days", ["0", "-1", "nan", "x"])
def test_bad_days(days: str, command: Callable[..., Any]) -> None:
    ran = command("stats", "--days", days)
    assert ran.code == 2 and "--days" in ran.err
