"""Neovim and the real server while typing; one editor for all tests, its model is scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.editors.neovim import UP, Editor, fake, own_folders, setup

ADD = "def add(a, b):\n    \n"
ONE, OTHER = "a + b", "b + a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    return folder


@pytest.fixture(scope="module")
def shared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    (folder / "empty.py").write_text("")
    # Any two calls one after the other get different texts.
    env = {**own_folders(tmp_path_factory.mktemp("state")), **fake(infills=[ONE, OTHER] * 200)}
    editor = Editor(setup("keys = { accept = '<Tab>' }"), [folder / "empty.py"], env)
    editor.wait(UP, seconds=60)
    yield editor
    editor.close()


@pytest.fixture
def editor(shared: Editor, folder: Path, request: pytest.FixtureRequest) -> Iterator[Editor]:
    """A new file of the test's own, in which the user has begun to type."""
    path = folder / f"{request.node.name}.py"
    path.write_text(ADD)
    shared.command("messages clear")
    shared.command(f"edit {path}")
    shared.wait("require('clover.server').client(0) ~= nil")
    yield shared
    shared.type("<Esc>")
    shared.run("package.loaded['cmp'], package.loaded['blink.cmp'] = nil, nil")
    shared.command("silent! %bwipeout!")


def begin(editor: Editor) -> str:
    editor.type("2GAreturn ")
    return shown(editor)


def shown(editor: Editor) -> str:
    """Waits for ghost text and gives it."""
    editor.wait("require('clover').ghost().visible()")
    text = editor.ghost()
    assert text in (ONE, OTHER)
    return text


def test_cycling_shows_the_other_one_and_comes_back(editor: Editor) -> None:
    first = begin(editor)
    seen = [first]
    for key in ("<M-]>", "<M-]>", "<M-[>"):
        editor.type(key)
        other = ONE if seen[-1] == OTHER else OTHER
        editor.shows(other)
        seen.append(other)
    editor.type("<Tab>")
    editor.wait(f"vim.api.nvim_get_current_line() == '    return {seen[-1]}'")


def test_tab_belongs_to_the_open_menu(editor: Editor) -> None:
    begin(editor)
    editor.run("vim.o.completeopt = 'menuone,noinsert'")
    editor.run("vim.fn.complete(12, { 'left', 'right' })")
    editor.wait("vim.fn.pumvisible() == 1")
    editor.type("<Tab>")
    editor.wait("vim.fn.pumvisible() == 0")
    assert editor.lines()[1].rstrip() == "    return"


@pytest.mark.parametrize(
    "stub",
    [
        "package.loaded['cmp'] = { visible = function() return open end }",
        "package.loaded['blink.cmp'] = { is_menu_visible = function() return open end }",
    ],
    ids=["nvim-cmp", "blink"],
)
def test_keys_are_left_to_completion_plugins(editor: Editor, stub: str) -> None:
    begin(editor)
    editor.run(f"open = true {stub}")
    editor.type("<Tab>x<Esc>")
    editor.wait("vim.api.nvim_get_mode().mode == 'n'")
    assert editor.lines()[1].rstrip("x").rstrip() == "    return"
    editor.run("open = false")
    editor.type("ccreturn ")
    text = shown(editor)
    editor.type("<Tab>")
    editor.wait(f"vim.api.nvim_get_current_line() == '    return {text}'")


def test_there_is_ghost_text_or_a_popup_never_both(editor: Editor) -> None:
    """The server offered completion, triggered by a blank, beside inline completion."""
    editor.run(
        """
        local client = require('clover.server').client(0)
        pcall(vim.lsp.completion.enable, true, client.id, 0, { autotrigger = true })
        """
    )
    found = editor.lua("require('clover.server').client(0).server_capabilities.completionProvider")
    assert found is None
    begin(editor)
    assert editor.lua("vim.fn.pumvisible()") == 0
    assert editor.lua(
        "require('clover.server').client(0).config.capabilities.textDocument.inlineCompletion"
    )
    editor.run("vim.fn.complete(12, { 'left', 'right' })")
    editor.wait("vim.fn.pumvisible() == 1")
    assert editor.ghost() is None
    editor.type("<C-e>")
    editor.wait("vim.fn.pumvisible() == 0")
    shown(editor)


def test_paused_buffers_stay_quiet_until_asked(editor: Editor) -> None:
    assert editor.lua("require('clover').pause()") is True
    editor.type("2GAreturn ")
    editor.wait("vim.api.nvim_get_current_line() == '    return '")
    asked = editor.run(
        """
        local asked = 0
        local client = require('clover.server').client(0)
        local id = vim.api.nvim_create_autocmd("LspRequest", { callback = function(event)
          if event.data.request.method == "textDocument/inlineCompletion" then asked = asked + 1 end
        end })
        local changed = false -- after the plugin's own handler, which is older
        vim.api.nvim_create_autocmd("TextChangedI", { once = true, callback = function()
          changed = true
        end })
        vim.api.nvim_input("a")
        vim.wait(20000, function() return changed end)
        client:request_sync("clover/status", vim.empty_dict(), 20000, 0)
        vim.api.nvim_del_autocmd(id)
        return asked
        """
    )
    assert asked == 0 and editor.ghost() is None
    assert editor.lua("require('clover').pause()") is False
    editor.type("<BS>")
    shown(editor)


def test_what_was_dismissed_stays_away(editor: Editor) -> None:
    text = begin(editor)
    editor.type("<C-]>")
    editor.shows(None)
    editor.run("require('clover.status').set({ kind = 'Normal' })")
    editor.run(
        """
        local client = require('clover.server').client(0)
        vim.wait(20000, function()
          for _, request in pairs(client.requests) do
            if request.type == 'pending' then return false end
          end
          return true
        end)
        """
    )
    assert editor.ghost() in (None, OTHER if text == ONE else ONE)


def test_another_buffer_shows_nothing_of_this_one(editor: Editor, folder: Path) -> None:
    begin(editor)
    (folder / "elsewhere.py").write_text("y = 2\n")
    editor.type(f"<Esc>:edit {folder}/elsewhere.py<CR>")
    editor.wait("vim.api.nvim_buf_get_name(0):find('elsewhere') ~= nil")
    assert editor.ghost() is None
    editor.type("<C-^>A")
    shown(editor)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("gg0fwvt,", "área = '日本'; f(%s, 2)\n"),
        ("gg0f日vf本", "área = '%s'; f(wide, 2)\n"),
        ("ggV", "%s\n"),
        ("gg", "%s\n"),
    ],
    ids=["characters", "beyond-ascii", "lines", "no-selection"],
)
def test_what_is_selected_is_written_anew(editor: Editor, keys: str, expected: str) -> None:
    before = "área = '日本'; f(wide, 2)\n"
    editor.run("vim.ui.select = function(items, _, done) chosen = items[1].text done(items[1]) end")
    editor.run("vim.api.nvim_buf_set_lines(0, 0, -1, true, { ... })", before.rstrip("\n"))
    editor.run("chosen = nil")
    editor.type(f"{keys}:Clover anew<CR>")
    editor.wait("chosen ~= nil")
    assert editor.lines() == [(expected % editor.lua("chosen")).rstrip("\n")]
    editor.type("u")
    assert editor.lines() == [before.rstrip("\n")]


@pytest.mark.parametrize(
    ("command", "words"),
    [("Clover fxi", "no command"), ("Clover fix everything", ":Clover fix tests")],
)
def test_a_wrong_word_is_answered_with_the_right_ones(
    editor: Editor, command: str, words: str
) -> None:
    editor.command(command)
    assert words in editor.messages()


def test_commands_are_completed(editor: Editor) -> None:
    complete = "vim.fn.getcompletion(..., 'cmdline')"
    assert editor.lua(complete, "Clover re") == ["reject", "restart", "retry"]
    assert editor.lua(complete, "Clover fix ") == ["tests"]
    assert "docstring" in editor.lua(complete, "'<,'>Clover edit ")
    assert editor.lua(complete, "'<,'>Clover ed") == ["edit"]


def test_restart_ends_the_server_and_brings_it_back(editor: Editor) -> None:
    editor.command("Clover restart")
    editor.wait("vim.lsp.get_clients({name='clover'})[1] == nil")
    editor.wait(UP)
    begin(editor)


def test_what_is_typed_while_the_model_loads_is_answered_later(
    open_editor: Callable[..., Editor], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text(ADD)
    worker = fake(infills=[ONE])["CLOVER_WORKER"]
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 3\nexec {worker}\n")
    slow.chmod(0o755)
    editor = open_editor(tmp_path / "a.py", setup=setup(), env={"CLOVER_WORKER": str(slow)})
    editor.type("2GAreturn ")
    editor.wait("require('clover.status').current.busy")
    assert editor.ghost() is None
    editor.shows(ONE)


def test_the_help_has_its_tags(open_editor: Callable[..., Editor], tmp_path: Path) -> None:
    editor = open_editor()
    (tmp_path / "doc").mkdir()
    source = editor.lua("vim.api.nvim_get_runtime_file('doc/clover.txt', false)[1]")
    (tmp_path / "doc" / "clover.txt").write_text(Path(source).read_text())
    editor.command(f"helptags {tmp_path}/doc")
    tags = {line.split("\t")[0] for line in (tmp_path / "doc" / "tags").read_text().splitlines()}
    text = Path(source).read_text()
    for name in editor.lua("require('clover.commands').names()"):
        assert f"Clover {name} " in text
    for name in editor.lua("vim.tbl_keys(require('clover.config').defaults.keys)"):
        assert f"      {name} = " in text
    assert {"clover.txt", ":Clover", "clover-keys", "clover-install"} <= tags
