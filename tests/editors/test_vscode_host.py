"""The extension inside VS Code's real extension host, asked through VS Code's own API.

The tests themselves are `vscode_host/index.js`; this starts them and says what became of each.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.editors.code_server import HostServer, missing

from clover_lsp.session import make_server
from clover_lsp.settings import docs as settings_docs

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

TESTS = Path(__file__).parent / "vscode_host" / "index.js"
LIMIT_S = 240.0


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostServer]:
    folder = tmp_path_factory.mktemp("extension-host")
    answer = "```python\ndef first(items):\n    return items[0] if items else None\n```"
    fake = json.dumps({"infills": ["n a + b"], "answers": [answer]})
    worker = [sys.executable, "-m", "clover_engine.worker", "--fake", fake]
    env = {
        "CLOVER_WORKER": shlex.join(worker),
        "CLOVER_CACHE_DIR": str(folder / "cache"),
        "CLOVER_STATE_DIR": str(folder / "state"),
    }
    command = [str(Path(sys.executable).with_name("clover-code")), "lsp"]
    settings = {"clover.server.command": command, "clover.completion.minConfidence": 0}
    running = HostServer(folder, settings, env)
    yield running
    running.close()


def wanted() -> dict[str, Any]:
    """What the extension must agree with the server about."""
    properties: dict[str, Any] = settings_docs.vscode()["properties"]
    return {
        "commands": list(make_server().protocol.fm.commands),
        "properties": properties,
        "defaults": {name.removeprefix("clover."): p["default"] for name, p in properties.items()},
    }


def test_in_the_extension_host(host: HostServer, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    (tmp_path / "wanted.json").write_text(json.dumps(wanted()))
    said: list[str] = []
    codes: list[int] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.expose_function(
            "codeAutomationLog", lambda kind, args: said.append(f"{kind}: {str(args)[:400]}")
        )
        page.expose_function("codeAutomationExit", lambda code, *_: codes.append(code))
        page.goto(host.url(tmp_path, TESTS))
        end = time.monotonic() + LIMIT_S
        while not codes and time.monotonic() < end:
            page.wait_for_timeout(100)
        browser.close()
    report = tmp_path / "report.json"
    results: dict[str, str] = json.loads(report.read_text()) if report.exists() else {}
    failed = [f"{name}: {result}" for name, result in results.items() if result != "passed"]
    assert codes == [0] and results and not failed, "\n".join([*failed, *said[-20:]])
