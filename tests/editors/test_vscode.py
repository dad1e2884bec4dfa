"""VS Code, the extension and the real server: what a user sees, types and clicks.

Screenshots of every test are kept in `.editors/screenshots/` for people to look at.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.editors.code_server import TOOLCHAIN, CodeServer, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

GHOST = ".view-lines .ghost-text-decoration, .view-lines .ghost-text"
STATUS = "#clover-code\\.clover-code\\.clover"
FAKE = {"infills": ["n a + b"]}
"""What the scripted model puts after `retur`."""
SLOW_MS = 40_000
"""Milliseconds for anything: machines that run tests are busy."""
SHOTS = TOOLCHAIN / "screenshots"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


def serve(folder: Path, env: dict[str, str]) -> Iterator[CodeServer]:
    command = [str(Path(sys.executable).with_name("clover-code")), "lsp"]
    settings = {"clover.server.command": command, "clover.completion.minConfidence": 0}
    state = {"CLOVER_CACHE_DIR": str(folder / "cache"), "CLOVER_STATE_DIR": str(folder / "state")}
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    running = CodeServer(folder, settings, {**state, **path, **env})
    yield running
    running.close()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeServer]:
    """VS Code whose model is the fake one, behind the real worker protocol."""
    command = [sys.executable, "-m", "clover_engine.worker", "--fake", json.dumps(FAKE)]
    env = {"CLOVER_WORKER": shlex.join(command)}
    yield from serve(tmp_path_factory.mktemp("code-server"), env)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeServer]:
    """VS Code with the embedded model."""
    yield from serve(tmp_path_factory.mktemp("code-server-embedded"), {})


class Window:
    """One browser page with one file open and the server ready."""

    def __init__(self, browser: Any, server: CodeServer, file: Path, name: str) -> None:
        self.file, self.name, self.server = file, name, server
        self.page = browser.new_page(viewport={"width": 1200, "height": 760})
        self.page.set_default_timeout(SLOW_MS)
        self.page.goto(server.url(file.parent, file))
        self.page.locator(".editor-instance .view-lines").first.wait_for()
        self.ready()
        self.focus()

    def ready(self) -> None:
        self.page.locator(STATUS, has_text="ready").wait_for()

    def focus(self) -> None:
        """The file's own tab: the walkthrough of the first start may stand before it."""
        self.page.get_by_role("tab", name=self.file.name).first.click()
        self.page.locator(".editor-instance .view-lines").first.click(position={"x": 5, "y": 5})

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text, delay=30)

    def end_of_line(self, line: int) -> None:
        self.press("Control+Home", *["ArrowDown"] * (line - 1), "End")

    def ghost(self, text: str) -> None:
        """Waits until this ghost text is on screen."""
        deadline = time.monotonic() + SLOW_MS / 1000
        shown = ""
        while time.monotonic() < deadline:
            shown = "".join(self.page.locator(GHOST).all_text_contents()).replace("\u00a0", " ")
            if text in shown:
                return
            self.page.wait_for_timeout(50)
        self.shot("failed")
        raise AssertionError(f"ghost text {shown!r} instead of {text!r}")

    def no_ghost(self) -> None:
        self.page.locator(GHOST).first.wait_for(state="detached")

    def decoration(self, text: str) -> None:
        """Waits for a text that is drawn by a style, not part of the page's text."""
        script = """text => [...document.querySelectorAll('.view-lines span span')].some(
            found => getComputedStyle(found, '::after').content.includes(text))"""
        self.page.wait_for_function(script, arg=text)

    def command(self, title: str) -> None:
        """Runs a command from the palette."""
        self.press("F1")
        self.page.locator(".quick-input-widget input").first.fill(f">{title}")
        self.page.locator(".quick-input-list .monaco-list-row", has_text=title).first.wait_for()
        self.press("Enter")

    def saved(self, expected: bytes) -> None:
        """Saves, and waits until these bytes are on disk."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            self.press("Control+s")
            if self.file.read_bytes() == expected:
                return
            self.page.wait_for_timeout(200)
        self.shot("failed")
        assert self.file.read_bytes() == expected

    def shot(self, what: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{self.name}-{what}.png")

    def close(self) -> None:
        self.page.close()


@pytest.fixture
def window(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    opened: list[Window] = []

    def open_one(server: CodeServer, content: bytes, name: str = "a.py") -> Window:
        file = tmp_path / name
        if not file.exists():
            file.write_bytes(content)
        test = request.node.name.removeprefix("test_").partition("[")[0]
        opened.append(Window(browser, server, file, test))
        return opened[-1]

    yield open_one
    for one in opened:
        one.shot("end")
        one.close()


def test_ghost_text_word_by_word_then_whole(scripted: CodeServer, window: Any) -> None:
    one = window(scripted, b"def add(a, b):\n    \n")
    one.end_of_line(2)
    one.type("retur")
    one.ghost("n a + b")
    one.shot("ghost")
    one.press("Control+ArrowRight")
    one.ghost(" a + b")
    one.press("Tab")
    one.saved(b"def add(a, b):\n    return a + b\n")


def test_escape_dismisses_and_typing_on_drops(scripted: CodeServer, window: Any) -> None:
    one = window(scripted, b"def add(a, b):\n    \n")
    one.end_of_line(2)
    one.type("retur")
    one.ghost("n a + b")
    one.press("Escape")
    one.no_ghost()
    one.press("Alt+\\")
    one.ghost("n a + b")
    one.press("Escape")
    one.no_ghost()
    one.type("n 1")
    one.saved(b"def add(a, b):\n    return 1\n")


@pytest.mark.parametrize(
    ("before", "typed", "after"),
    [
        (b"def add(a, b):\r\n    \r\n", "retur", b"def add(a, b):\r\n    return a + b\r\n"),
        (
            "# 日本語 🍀\nx = '日本🍀'; \n".encode(),
            "retur",
            "# 日本語 🍀\nx = '日本🍀'; return a + b\n".encode(),
        ),
    ],
    ids=["crlf", "beyond-ascii"],
)
def test_bytes_around_are_kept(
    scripted: CodeServer, window: Any, before: bytes, typed: str, after: bytes
) -> None:
    one = window(scripted, before)
    one.end_of_line(2)
    one.type(typed)
    one.ghost("n a + b")
    one.press("Tab")
    one.saved(after)


def test_the_server_comes_back_after_a_crash(scripted: CodeServer, window: Any) -> None:
    one = window(scripted, b"def add(a, b):\n    \n")
    for pid in servers_of(scripted):
        os.kill(pid, signal.SIGKILL)
    one.page.locator(STATUS, has_not_text="ready").wait_for()
    one.ready()
    one.focus()
    one.end_of_line(2)
    one.type("retur")
    one.ghost("n a + b")


def test_two_windows_on_one_workspace(scripted: CodeServer, window: Any) -> None:
    windows = [
        window(scripted, b"def add(a, b):\n    \n", "a.py"),
        window(scripted, b"def sub(a, b):\n    \n", "b.py"),
    ]
    for one in windows:
        one.page.bring_to_front()
        one.focus()
        one.end_of_line(2)
        one.type("retur")
        one.ghost("n a + b")


def test_the_menu_pauses_a_file(scripted: CodeServer, window: Any) -> None:
    one = window(scripted, b"def add(a, b):\n    \n")
    one.page.locator(STATUS).click()
    one.page.get_by_text("Pause in this file").wait_for()
    one.shot("menu")
    one.page.get_by_text("Pause in this file").click()
    one.page.locator(STATUS, has_text="paused").wait_for()
    one.shot("paused")


def test_the_next_edit_is_shown_jumped_to_and_applied(scripted: CodeServer, window: Any) -> None:
    text = "def total(values):\n    result = 0\n    for v in values:\n        result += v\n"
    text += "    return result\n"
    one = window(scripted, text.encode())
    one.end_of_line(2)
    one.press("Home", "Control+Shift+ArrowRight")
    one.type("total_sum")
    for there in ("total_sum += v", "return total_sum"):
        one.decoration("total_sum")
        one.shot("next-edit")
        one.press("Alt+e", "Alt+e")
        one.page.locator(".view-lines", has_text=there).first.wait_for()
    one.saved(text.replace("result", "total_sum").encode())


def test_what_the_tests_say_is_fixed_after_a_look_at_it(
    embedded: CodeServer, window: Any, tmp_path: Path
) -> None:
    good = (
        b"def total(values):\n    result = 0\n    for value in values:\n"
        b"        result += value\n    return result\n"
    )
    bad = good.replace(b"+=", b"-=")
    (tmp_path / "test_a.py").write_text(
        "from a import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
    )
    os.system(f"git -C {shlex.quote(str(tmp_path))} init -q")
    one = window(embedded, bad)
    one.command("Clover: Fix What the Tests Say")
    one.page.locator(".monaco-diff-editor").wait_for()
    one.page.get_by_role("button", name="Discard").click()
    one.page.locator(".monaco-diff-editor").wait_for(state="detached")
    one.shot("discarded")
    one.focus()
    one.saved(bad)
    one.command("Clover: Fix What the Tests Say")
    one.page.get_by_role("button", name="Apply").click()
    undo = one.page.get_by_role("button", name="Undo")
    undo.wait_for()
    one.shot("fixed")
    one.focus()
    one.saved(good)
    undo.click()
    one.focus()
    one.saved(bad)


def servers_of(server: CodeServer) -> list[int]:
    """Language servers that this code-server started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            home = f"HOME={server.folder}\0".encode()
            if b"lsp" in command and home in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found
