"""`clover-code fix` with a model that writes code, behind every kind of server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clover_engine.testing.answers import FakeModel
from clover_engine.testing.server import FakeServer

COMMAND = [sys.executable, "-m", "clover_code.main"]
CHECK = ["--check", "python -m pytest -q -p no:cacheprovider"]
FILES = {
    "shop/__init__.py": "",
    "shop/parse.py": (
        "from shop.units import scale\n\n\n"
        "def price(text):\n    amount = text.split()[0]\n    return scale(int(amount))\n"
    ),
    "shop/units.py": "def scale(value):\n    return value * 100\n",
    "test_parse.py": (
        "from shop.parse import price\n\n\n"
        "def test_plain():\n    assert price('3 EUR') == 300\n\n\n"
        "def test_cents():\n    assert price('3.25 CHF') == (325, 'CHF')\n"
    ),
}
"""No template repairs this."""
WRONG = "```python\ndef price(text):\n    return 1\n```"
BOTH = (
    "shop/parse.py::price\n```python\ndef price(text):\n"
    "    amount, currency = text.split()\n    return scale(amount, currency)\n```\n"
    "shop/units.py::scale\n```python\ndef scale(value, currency):\n"
    "    cents = round(float(value) * 100)\n"
    "    return cents if currency == 'EUR' else (cents, currency)\n```\n"
)
PATCHED = {"shop/parse.py", "shop/units.py"}


def answer(prompt: str, _: int) -> str:
    """Wrong at first; right for who says what became of that."""
    return BOTH if "still fails" in prompt and "assert 1 ==" in prompt else WRONG


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(on_prompt=answer)) as started:
        yield started


@pytest.fixture
def root(make_repo) -> Path:
    return Path(make_repo(FILES))


def command(server: FakeServer, engine: str, *more: str) -> list[str]:
    served = ["--engine", engine, "--engine-url", server.url, "--budget", "240"]
    return [*COMMAND, "fix", "--ci", *served, *CHECK, *more]


def content(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in FILES}


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "openai"])
def test_feedback_goes_back_and_two_files_are_patched_and_undone(
    engine: str, server: FakeServer, root: Path
) -> None:
    done = subprocess.run(command(server, engine, "--json"), cwd=root, capture_output=True)
    result = json.loads(done.stdout)
    assert done.returncode == 0, result["error"]
    assert {file["path"] for file in result["files"]} == PATCHED
    chats = server.bodies("/v1/chat/completions")
    assert "def test_cents" in chats[0]["messages"][-1]["content"]
    said = [message["content"] for message in chats[1]["messages"]]
    assert WRONG in said and "still fails" in said[-1]
    subprocess.run([*COMMAND, "undo"], cwd=root, check=True, capture_output=True)
    assert content(root) == FILES


def test_a_patch_of_two_files_is_there_as_a_whole_or_not_at_all(
    server: FakeServer, root: Path
) -> None:
    """Killed at moments around the writing; the next command tidies up."""
    for delay_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2):
        process = subprocess.Popen(
            command(server, "openai"), cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        for line in process.stderr:
            if b": apply:" in line:
                break
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        subprocess.run([*COMMAND, "undo", "--list"], cwd=root, check=True, capture_output=True)
        changed = {name for name, text in content(root).items() if text != FILES[name]}
        assert changed in (set(), PATCHED), delay_s
        for name, text in FILES.items():
            (root / name).write_text(text)
