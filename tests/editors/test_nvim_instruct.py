"""Neovim and the real server with scripted answers: edits in words, shown before they are made."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.editors.neovim import UP, Editor, fake, own_folders, setup

CODE = "import os\n\n\ndef first(items):\n    return items[0]\n\n\nprint(os.name)\n"
FIRST = "```python\ndef first(items):\n    return items[0] if items else None\n```"
SECOND = (
    "```python\ndef first(items, default=None):\n    return items[0] if items else default\n```"
)
WORDS = "Clover edit None for no items"
SHOWN = "require('clover.instruct').visible()"
SPACE = "vim.api.nvim_get_namespaces().clover_instruct"
INPUT = "vim.ui.input = function(opts, done) asked = opts.prompt done(reply) end"


@pytest.fixture
def start(
    tmp_path: Path, open_editor: Callable[..., Editor]
) -> Iterator[Callable[..., tuple[Editor, Path]]]:
    """`start(answers, …)` opens the file in an editor whose model gives these answers."""

    def run(answers: list[str], **more: float) -> tuple[Editor, Path]:
        path = tmp_path / "project" / "prog.py"
        path.parent.mkdir()
        subprocess.run(["git", "init", "-q", str(path.parent)], check=True)
        path.write_text(CODE)
        env = {**own_folders(tmp_path), **fake(answers=answers, **more)}
        editor = open_editor(path, setup=setup("next_edit = false", before=INPUT), env=env)
        editor.wait(UP, seconds=90)
        return editor, path

    yield run


def virtual(editor: Editor) -> list[str]:
    """Lines that are shown and do not stand in the file."""
    found: list[str] = editor.run(
        """
        local lines = {}
        local space = vim.api.nvim_get_namespaces().clover_instruct
        for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, space, 0, -1, {details = true})) do
          for _, line in ipairs(mark[4].virt_lines or {}) do table.insert(lines, line[1][1]) end
        end
        return lines
        """
    )
    return found


def test_the_difference_is_shown_applied_and_undone(start: Callable[..., object]) -> None:
    editor, path = start([FIRST])
    editor.type("4GVj:")
    editor.type(f"{WORDS}<CR>")
    editor.wait(SHOWN)
    assert virtual(editor) == ["    return items[0] if items else None"]
    assert editor.lines() == CODE.splitlines(), "nothing has changed yet"
    assert "return items[0] if items else None" in editor.screen()
    editor.type("<M-e>")
    editor.wait("vim.fn.getline(5) == '    return items[0] if items else None'")
    assert editor.lines() == CODE.replace("items[0]", "items[0] if items else None").splitlines()
    assert virtual(editor) == []
    editor.command("undo")
    assert editor.lines() == CODE.splitlines()
    assert path.read_text() == CODE


def test_words_are_asked_for_and_the_edit_can_be_left(start: Callable[..., object]) -> None:
    editor, _ = start([FIRST])
    editor.run("reply = 'None for no items'")
    editor.command("4,5Clover edit")
    editor.wait(SHOWN)
    assert editor.lua("asked") == "Edit: "
    editor.type("<M-E>")
    editor.wait(f"not {SHOWN}")
    assert virtual(editor) == [] and editor.lines() == CODE.splitlines()


def test_another_answer_and_a_follow_up(start: Callable[..., object]) -> None:
    editor, _ = start([FIRST, SECOND, FIRST])
    editor.command(f"4,5{WORDS}")
    editor.wait(SHOWN)
    editor.command("Clover retry")
    editor.wait(f"{SHOWN}")
    assert virtual(editor) == SECOND.splitlines()[1:3]
    editor.run("reply = 'without a default'")
    editor.type("<M-i>")
    editor.wait(SHOWN)
    assert virtual(editor) == [FIRST.splitlines()[2]]
    editor.command("Clover accept")
    assert editor.lines()[3:5] == FIRST.splitlines()[1:3]


def test_lines_grow_while_the_model_writes_and_it_can_be_stopped(
    start: Callable[..., object],
) -> None:
    editor, _ = start([FIRST.replace("None", " or ".join(["None"] * 300))], step_s=0.02)
    editor.command(f"4,5{WORDS}")
    editor.wait(f"#vim.api.nvim_buf_get_extmarks(0, {SPACE}, 0, -1, {{}}) > 0")
    end = time.monotonic() + 20
    while virtual(editor)[0] != "def first(items):" and time.monotonic() < end:
        time.sleep(0.02)
    assert virtual(editor)[0] == "def first(items):"
    assert not editor.lua(SHOWN)
    editor.command("Clover cancel")
    assert virtual(editor) == [] and editor.lines() == CODE.splitlines()


def test_text_that_changed_meanwhile_is_not_written_over(start: Callable[..., object]) -> None:
    editor, _ = start([FIRST])
    editor.command(f"4,5{WORDS}")
    editor.wait(SHOWN)
    editor.command("1delete")
    editor.type("<M-e>")
    editor.wait(f"not {SHOWN}")
    assert "the text changed meanwhile" in editor.messages()
    assert editor.lines() == CODE.splitlines()[1:]


def test_explain_opens_a_window_and_tests_a_file(start: Callable[..., object]) -> None:
    editor, path = start(["It gives the first item.", "```python\nfrom prog import first\n```"])
    editor.command("4,5Clover edit explain")
    editor.wait("#vim.api.nvim_list_wins() == 2")
    assert "It gives the first item." in editor.screen()
    editor.type("<Esc>j")
    editor.command("4,5Clover edit tests")
    editor.wait("vim.api.nvim_buf_get_name(0):find('tests/test_prog.py') ~= nil")
    assert editor.lines() == ["from prog import first"]
    assert not (path.parent / "tests").exists(), "it is not saved"


def test_a_commit_message(start: Callable[..., object]) -> None:
    editor, path = start(["fix: say nothing of it"])
    subprocess.run(["git", "add", "-A"], cwd=path.parent, check=True)
    editor.command("Clover message")
    editor.wait("vim.fn.getreg('\"') ~= ''")
    assert editor.lua("vim.fn.getreg('\"')") == "fix: say nothing of it"
