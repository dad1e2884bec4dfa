"""Neovim and the real server with the embedded model: fixes, next edits, writing anew."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.editors.neovim import UP, Editor, own_folders, setup

TOTAL = (
    "def total(values):\n    result = 0\n    for value in values:\n"
    "        result += value\n    return result\n"
)
NEXT = "require('clover.next_edit')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def shared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """One editor for all tests here: the model is loaded once."""
    (folder / "empty.py").write_text("")
    env = own_folders(tmp_path_factory.mktemp("state"))
    select = "vim.ui.select = function(items, opts, done) offered = items done(items[1]) end"
    editor = Editor(setup(before=select), [folder / "empty.py"], env)
    editor.wait(UP, seconds=90)
    yield editor
    editor.close()


@pytest.fixture
def editor(shared: Editor) -> Iterator[Editor]:
    shared.command("messages clear")
    yield shared
    shared.type("<Esc>")
    shared.command("silent! %bwipeout!")


def open_file(editor: Editor, path: Path, text: str) -> None:
    path.write_text(text)
    editor.command(f"edit {path}")
    editor.wait("require('clover.server').client(0) ~= nil")


def test_the_fix_of_a_linters_diagnostic_reaches_the_disk(editor: Editor, folder: Path) -> None:
    path = folder / "names.py"
    text = "def area(width, height):\n    s = '日本🍀'; return width * heigth\n"
    open_file(editor, path, text)
    editor.run(
        """
        local from = vim.fn.getline(2):find("heigth") - 1
        vim.diagnostic.set(vim.api.nvim_create_namespace("linter"), 0, {{
          lnum = 1, col = from, end_lnum = 1, end_col = from + 6, source = "ruff",
          code = "F821", message = "Undefined name `heigth`" }})
        """
    )
    editor.command("2")
    editor.command("Clover fix")
    editor.wait("vim.fn.getline(2):find('height') ~= nil")
    editor.command("write")
    assert path.read_text() == text.replace("heigth", "height")
    assert "Undefined name" in editor.lua("offered[1].title")


def test_where_there_is_no_diagnostic_the_user_is_told(editor: Editor, folder: Path) -> None:
    open_file(editor, folder / "fine.py", "x = 1\n")
    editor.command("Clover fix")
    assert "no diagnostic in this line" in editor.messages()


def test_the_models_are_listed_and_the_chosen_one_is_used(editor: Editor, folder: Path) -> None:
    open_file(editor, folder / "model.py", "x = 1\n")
    editor.run("offered = nil")
    editor.command("Clover model")  # the first is chosen: the one in the package
    editor.wait("offered ~= nil and offered[1].name == 'nano' and offered[1].inUse")
    editor.wait("vim.fn.execute('messages'):find('nano is used from now on') ~= nil")


def test_a_model_is_downloaded_only_after_a_yes(editor: Editor, folder: Path) -> None:
    open_file(editor, folder / "model.py", "x = 1\n")
    editor.run("vim.ui.select = function(items, opts, done) offered = items done(items[2]) end")
    editor.command("Clover model coder-0.5b")
    editor.wait("offered[1] == 'Download coder-0.5b: 491 MB, Apache-2.0'")
    editor.run("vim.ui.select = function(items, opts, done) offered = items done(items[1]) end")
    assert "getting" not in editor.messages()


def test_what_the_tests_say_is_repaired_and_undone(editor: Editor, folder: Path) -> None:
    bad = TOTAL.replace("+=", "-=")
    (folder / "test_sums.py").write_text(
        "from sums import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
    )
    open_file(editor, folder / "sums.py", bad)
    editor.command("Clover fix tests")
    editor.wait("require('clover').status():find('Fix with tests') ~= nil")
    editor.wait("vim.fn.getline(4):find('+=', 1, true) ~= nil", seconds=120)
    assert editor.lines() == TOTAL.splitlines()
    editor.wait("require('clover').status() == 'clover: ready'")
    assert (folder / "sums.py").read_text() == bad  # nothing is saved for the user
    editor.command("undo")
    assert editor.lines() == bad.splitlines()


def test_a_rename_is_followed_shown_jumped_to_and_made(editor: Editor, folder: Path) -> None:
    open_file(editor, folder / "rename.py", TOTAL)
    editor.command("2")
    editor.type("^cwamount<Esc>")
    editor.wait(f"{NEXT}.visible()")
    assert "amount" in editor.screen().split("\n")[3]
    editor.type("<M-e>")
    editor.wait("vim.api.nvim_win_get_cursor(0)[1] == 4")
    editor.type("<M-e>")
    editor.wait("vim.fn.getline(4) == '        amount += value'")
    editor.wait(f"{NEXT}.visible()")  # the next one, in the last line
    editor.command("Clover next")
    editor.command("Clover next")
    editor.wait("vim.fn.getline(5) == '    return amount'")


def test_a_rejected_next_edit_stays_away(editor: Editor, folder: Path) -> None:
    open_file(editor, folder / "reject.py", "def double(number):\n    return number * 2\n")
    editor.type("gg0fncwvalue<Esc>")
    editor.wait(f"{NEXT}.visible()")
    editor.type("<M-E>")
    editor.wait(f"not {NEXT}.visible()")
    found = editor.run(
        """
        local found
        require('clover.next_edit').ask(function(any) found = any end)
        vim.wait(20000, function() return found ~= nil end)
        return found
        """
    )
    assert found is False
