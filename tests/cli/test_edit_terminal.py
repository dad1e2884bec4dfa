"""`clover-code edit` on a terminal: what its user is asked, and what the answers do."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = "def first(items):\n    return items[0]\n"
ANSWERS = [
    f"```python\ndef first(items{more}):\n    return items[0] if items else {default}\n```"
    for more, default in (("", "None"), (", default=None", "default"), ("", "0"))
]


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, root: Path, *arguments: str) -> None:
        fake = json.dumps({"answers": ANSWERS})
        worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", fake]
        self._end, other = pty.openpty()
        self.shown = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clover_code", "edit", *arguments],
            cwd=root,
            env={**os.environ, "CLOVER_WORKER": shlex.join(worker), "TERM": "xterm"},
            stdin=other,
            stdout=other,
            stderr=other,
        )
        os.close(other)

    def read_until(self, text: str) -> str:
        """What is shown from the last call on, until the text."""
        shown = ""
        while text not in shown:
            try:
                shown += os.read(self._end, 4096).decode()
            except OSError:
                break
        self.shown += shown
        return shown

    def type(self, text: str) -> None:
        os.write(self._end, f"{text}\n".encode())

    def end(self) -> int:
        self.read_until("\0")  # the terminal's end
        os.close(self._end)
        return self._process.wait(30)


@pytest.fixture
def root(make_repo, temporary_root: Path) -> Iterator[Path]:
    yield make_repo({"prog.py": CODE})


ASKED = "or say what to change: "


def test_another_answer_more_words_and_yes(root: Path) -> None:
    terminal = Terminal(root, "prog.py:1-2", "None for no items")
    assert "items else None" in terminal.read_until(ASKED)
    terminal.type("r")
    assert "items else default" in terminal.read_until(ASKED)
    terminal.type("give 0 instead")
    assert "items else 0" in terminal.read_until(ASKED)
    assert (root / "prog.py").read_text() == CODE
    terminal.type("a")
    assert terminal.end() == 0
    assert "`clover-code undo` takes it back" in terminal.shown
    assert (root / "prog.py").read_text() == CODE.replace("items[0]", "items[0] if items else 0")
    said = subprocess.run(
        [sys.executable, "-m", "clover_code", "undo", "--list"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert "None for no items; give 0 instead" in said.stdout


@pytest.mark.parametrize("answer", ["q", "no", "\x04"])
def test_it_is_left_alone(root: Path, answer: str) -> None:
    terminal = Terminal(root, "prog.py:1-2", "None for no items")
    terminal.read_until(ASKED)
    terminal.type(answer)
    assert terminal.end() == 0
    assert "nothing was changed" in terminal.shown
    assert (root / "prog.py").read_text() == CODE
