"""Sessions of clients of other makers, recorded and played again; and one of them for real."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.acp.recorder import Line, settled
from tests.cli.broken import BROKEN

RECORDED = Path(__file__).parent / "recorded"
ROOT = Path(__file__).parents[3]
ACPX = ROOT / ".editors" / "node_modules" / ".bin" / "acpx"
CHECK = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])


class Replay:
    """Says what a recording's client said, with the ids that the agent gives now."""

    def __init__(self, repository: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "clover_code", "acp", "--engine", "none"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=repository,
            env={**os.environ, "CLOVER_CACHE_DIR": str(repository.parent / "cache")},
        )
        self.names = {CHECK: "$CHECK", str(repository): "$ROOT"}
        self.heard: list[Line] = []
        self.session = ""

    def play(self, recording: list[Line]) -> list[Line]:
        """All that was said, settled as the recording is."""
        said: list[Line] = []
        for line in recording:
            if line["from"] == "client":
                said.append({"from": "client", "message": self._send(line["message"])})
            else:
                said.append({"from": "agent", "message": self._next()})
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.stdout.read() == b"" and self.process.wait(60) == 0
        self.process.stdout.close()
        return settled(said, self.names)

    def _send(self, message: Any) -> Any:
        text = json.dumps(message).replace("$SESSION", self.session)
        for name, placeholder in self.names.items():
            text = text.replace(placeholder, json.dumps(name)[1:-1])
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(text)

    def _next(self) -> Any:
        while True:
            assert self.process.stdout is not None
            message = json.loads(self.process.stdout.readline())
            self.session = message.get("result", {}).get("sessionId", self.session)
            update = message.get("params", {}).get("update", {})
            is_news = {"status", "content"} & update.keys() or not update
            if is_news or update["sessionUpdate"] != "tool_call_update":
                return message


@pytest.mark.parametrize(
    "name", ["acpx_undo", "acpx_fix", pytest.param("acpx_fix_denied", marks=pytest.mark.long)]
)
def test_a_recorded_session_goes_as_it_went(name: str, repository: Path) -> None:
    path = RECORDED / f"{name}.jsonl"
    recording = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert Replay(repository).play(recording) == recording


@pytest.mark.long
@pytest.mark.skipif(not ACPX.exists(), reason="acpx is not installed: make setup-vscode")
@pytest.mark.parametrize("answer", ["--approve-all", "--deny-all"])
def test_acpx(repository: Path, tmp_path: Path, answer: str) -> None:
    """The headless client of another maker, as its users start it."""
    node = shutil.which("node", path=os.path.dirname(sys.executable)) or "node"
    agent = shlex.join([sys.executable, "-P", "-m", "clover_code", "acp", "--engine", "none"])
    ran = subprocess.run(
        [node, ACPX, "--agent", agent, answer, "--format", "json", "exec", f"/fix {CHECK}"],
        cwd=repository,
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(node).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert '"stopReason":"end_turn"' in ran.stdout.replace(" ", ""), ran.stdout + ran.stderr
    changed = (repository / "shop.py").read_text() != BROKEN
    assert changed == (answer == "--approve-all")
