"""CodeCompanion in a real Neovim, with `clover-code acp` as its agent.

CLOVER_TEST_PLUGINS names a folder with clones of plenary.nvim and codecompanion.nvim.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.editors.neovim import Nvim, own_folders

PLUGINS = os.environ.get("CLOVER_TEST_PLUGINS", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PLUGINS and Path(PLUGINS, "codecompanion.nvim").is_dir()),
        reason="CLOVER_TEST_PLUGINS names no folder with codecompanion.nvim",
    ),
]

BROKEN = "def last(items):\n    return items[len(items)]\n"
TEST = "from shop import last\n\n\ndef test_last():\n    assert last([1, 2, 3]) == 3\n"
SETUP = """
local helpers = require('codecompanion.adapters.acp.helpers')
local clover = {
  name = 'clover', formatted_name = 'Clover', type = 'acp', opts = {}, env = {},
  roles = { llm = 'assistant', user = 'user' },
  commands = { default = vim.json.decode(...) },
  defaults = { mcpServers = {}, timeout = 20000 },
  parameters = {
    protocolVersion = 1,
    clientCapabilities = { fs = { readTextFile = true, writeTextFile = true } },
    clientInfo = { name = 'CodeCompanion.nvim', version = '1.0.0' },
  },
  handlers = {
    setup = function() return true end,
    auth = function() return true end,
    form_messages = function(self, messages, can)
      return helpers.form_messages(self, messages, can)
    end,
    on_exit = function() end,
  },
}
require('codecompanion').setup({
  adapters = { acp = { clover = function() return clover end } },
  interactions = { chat = { adapter = 'clover' } },
})
_G.chat = require('codecompanion').chat()
"""
SUBMIT = """
local buffer = _G.chat.bufnr
local last = vim.api.nvim_buf_line_count(buffer)
vim.api.nvim_buf_set_lines(buffer, last - 1, last, false, { ... })
_G.chat:submit()
"""


def test_a_repair_is_shown_and_accepted(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "shop.py").write_text(BROKEN)
    (shop / "test_shop.py").write_text(TEST)
    subprocess.run(["git", "init", "-q"], cwd=shop, check=True)
    paths = ",".join(str(Path(PLUGINS, name)) for name in ("plenary.nvim", "codecompanion.nvim"))
    argv = ["--clean", "-n", "--cmd", f"set runtimepath^={paths}", "--cmd", f"cd {shop}"]
    nvim = Nvim(argv, own_folders(tmp_path))
    command = [sys.executable, "-P", "-m", "clover_code", "acp", "--engine", "none"]
    check = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])

    def shows(words: str) -> None:
        end = time.monotonic() + 120
        while words not in (text := chat()):
            assert time.monotonic() < end, text
            time.sleep(0.1)

    def chat() -> str:
        lines = "return vim.api.nvim_buf_get_lines(_G.chat.bufnr, 0, -1, false)"
        return "\n".join(nvim.call("nvim_exec_lua", lines, []))

    try:
        nvim.call("nvim_exec_lua", SETUP, [json.dumps(command)])
        nvim.call("nvim_exec_lua", SUBMIT, [f"/fix {check}"])
        shows("- `g2` - Accept")
        assert "+    return items[" in chat() and (shop / "shop.py").read_text() == BROKEN
        nvim.call("nvim_input", "g2")
        shows("Applied; `/undo` takes it back")
        assert (shop / "shop.py").read_text() != BROKEN
    finally:
        nvim.close()
