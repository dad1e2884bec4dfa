"""Neovim, the plugin and the real server: what a user sees and types."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.editors.neovim import UP, Editor, fake, setup


@pytest.fixture
def start(open_editor: Callable[..., Editor], tmp_path: Path) -> Callable[..., Editor]:
    def start_one(
        text: str | bytes = "", *, options: str = "", env: dict[str, str] | None = None,
        name: str = "a.py", folder: str = "project", before: str = "",
    ) -> Editor:  # fmt: skip
        root = tmp_path / folder
        (root / ".git").mkdir(parents=True, exist_ok=True)
        path = root / name
        if not path.exists():
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        editor: Editor = open_editor(path, setup=setup(options, before), env=env)
        editor.wait(UP, seconds=60)
        return editor

    return start_one


def test_ghost_text_appears_and_tab_accepts_it(start: Callable[..., Editor]) -> None:
    editor = start("def add(a, b):\n    \n", env=fake(infills=["n a + b"]))
    editor.type("jAretur")
    editor.shows("n a + b")
    assert "return a + b" in editor.screen()
    editor.type("<Tab>")
    editor.wait("vim.api.nvim_get_current_line() == '    return a + b'")
    assert editor.ghost() is None
    editor.type("<Esc>u")
    assert editor.lines()[1].strip() == "retur"  # a step of its own for undo


def test_word_and_line_are_taken_and_the_rest_stays(start: Callable[..., Editor]) -> None:
    editor = start("def add(a, b):\n    \n", env=fake(infills=["n a + b"]))
    editor.type("jAretur")
    editor.shows("n a + b")
    editor.type("<M-Right>")
    editor.wait("vim.api.nvim_get_current_line() == '    return'")
    editor.shows(" a + b")
    editor.type("<M-Down>")
    editor.wait("vim.api.nvim_get_current_line() == '    return a + b'")


def test_typing_along_keeps_the_suggestion_and_typing_on_drops_it(
    start: Callable[..., Editor],
) -> None:
    editor = start("def add(a, b):\n    \n", env=fake(infills=["n a + b"]))
    editor.type("jAretur")
    editor.shows("n a + b")
    editor.type("n ")
    editor.shows("a + b")
    editor.type("x")
    editor.wait("vim.api.nvim_get_current_line() == '    return x'")
    assert editor.ghost() != "a + b"


def test_dismissed_is_gone_and_keys_mean_what_they_did(start: Callable[..., Editor]) -> None:
    editor = start(
        "def add(a, b):\n    \n",
        env=fake(infills=["n a + b"]),
        options="keys = { dismiss = '<C-e>' }",
    )
    editor.type("jAretur")
    editor.shows("n a + b")
    editor.type("<C-e>")
    editor.wait("require('clover').ghost().visible() == false")
    assert editor.ghost() is None
    editor.type("<Esc>o<Tab>x<Esc>")
    assert editor.lines()[2].endswith("\tx") or editor.lines()[2].endswith(" x")


def test_a_mapping_of_the_user_is_kept_for_when_nothing_is_shown(
    start: Callable[..., Editor],
) -> None:
    editor = start(
        "x = 1\n",
        env=fake(infills=[""]),
        before="vim.keymap.set('i', '<Tab>', 'mine')",
    )
    editor.type("o<Tab><Esc>")
    editor.wait("vim.api.nvim_get_current_line() == 'mine'")


@pytest.mark.parametrize("line", ["x = '日本語' + ", "x = '🍀🍀' + ", "größe = "])
def test_lines_beyond_ascii(start: Callable[..., Editor], line: str) -> None:
    editor = start(f"# {line}\n\n", env=fake(infills=["name"]))
    editor.type(f"jA{line}")
    editor.shows("name")
    editor.type("<Tab>")
    editor.wait("vim.api.nvim_get_current_line():sub(-4) == 'name'")
    assert editor.lines()[1] == f"{line}name"


def test_crlf_files_stay_crlf(start: Callable[..., Editor], tmp_path: Path) -> None:
    editor = start(b"def add(a, b):\r\n    \r\n", env=fake(infills=["n a + b"]))
    editor.type("jAretur")
    editor.shows("n a + b")
    editor.type("<Tab><Esc>")
    editor.wait("vim.api.nvim_get_current_line() == '    return a + b'")
    editor.command("write")
    text = (tmp_path / "project" / "a.py").read_bytes()
    assert text == b"def add(a, b):\r\n    return a + b\r\n"


def test_the_server_comes_back_after_a_crash(start: Callable[..., Editor]) -> None:
    editor = start("def add(a, b):\n    \n", env=fake(infills=["n a + b"]))
    pid = editor.lua(
        "vim.tbl_filter(function(p) return p.name:match('python') or p.name:match('clover') end,"
        " vim.tbl_map(vim.api.nvim_get_proc, vim.api.nvim_get_proc_children(vim.fn.getpid())))"
    )[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    editor.wait("require('clover.status').current.kind == 'Error'")
    editor.wait(UP, seconds=30)
    editor.type("jAretur")
    editor.shows("n a + b")


def test_two_editors_on_one_workspace(start: Callable[..., Editor]) -> None:
    env = fake(infills=["n a + b"])
    first = start("def add(a, b):\n    \n", env=env)
    second = start("def sub(a, b):\n    \n", env=env, name="b.py")
    for editor in (first, second):
        editor.type("jAretur")
        editor.shows("n a + b")


def test_checkhealth_and_status(start: Callable[..., Editor]) -> None:
    editor = start("x = 1\n", env=fake())
    editor.wait("require('clover').status() == 'clover: ready'")
    editor.command("checkhealth clover")
    text = "\n".join(editor.lines())
    assert "ERROR" not in text and "running for" in text and "clover-code" in text


def test_the_embedded_model_suggests(start: Callable[..., Editor]) -> None:
    text = (
        "class Point:\n    def __init__(self, left, top, width, height):\n"
        "        self.left = left\n        self.top = top\n        self.width = width\n        \n"
    )
    editor = start(text)
    editor.type("5jAself.hei")
    end = time.monotonic() + 60
    while time.monotonic() < end and not editor.ghost():
        time.sleep(0.1)
    assert editor.ghost()
