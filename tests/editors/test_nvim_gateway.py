"""llama.vim and minuet in a real Neovim, on the gateway with the scripted model.

CLOVER_TEST_PLUGINS names a folder with clones of llama.vim and minuet-ai.nvim.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.gateway.client import Gateway
from tests.editors.neovim import Nvim, own_folders

PLUGINS = os.environ.get("CLOVER_TEST_PLUGINS", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PLUGINS, reason="CLOVER_TEST_PLUGINS names no folder of plug-ins"),
]

START = "def total(cart):\n    "
LINE = "return sum(cart)"
LLAMA = "let g:llama_config = {'endpoint_fim': 'http://127.0.0.1:PORT/infill', 'show_info': 0}"
MINUET = """
require('minuet').setup({
  provider = 'openai_fim_compatible', n_completions = 1, request_timeout = 30, throttle = 0,
  debounce = 0,
  virtualtext = { auto_trigger_ft = { '*' }, keymap = { accept = '<Tab>' } },
  provider_options = { openai_fim_compatible = {
    api_key = 'TERM', name = 'Clover', model = 'clover',
    end_point = 'http://127.0.0.1:PORT/v1/completions', optional = { max_tokens = 56 },
  } },
})
"""
GHOSTS = """
local found = {}
for _, space in pairs(vim.api.nvim_get_namespaces()) do
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })) do
    for _, piece in ipairs(mark[4].virt_text or {}) do table.insert(found, piece[1]) end
  end
end
return table.concat(found)
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    folder = tmp_path / "shop"
    folder.mkdir()
    gateway = Gateway(folder, infills=[LINE])
    gateway.warm()
    yield gateway
    gateway.close()


@pytest.mark.parametrize("plugin", ["llama.vim", "minuet-ai.nvim"])
def test_a_suggestion_is_shown_and_accepted(gateway: Gateway, tmp_path: Path, plugin: str) -> None:
    file = tmp_path / "shop" / "shop.py"
    file.write_text(START)
    path = Path(PLUGINS) / plugin
    llama = LLAMA.replace("PORT", str(gateway.port))
    argv = ["--clean", "-n", "--cmd", llama, "--cmd", f"set runtimepath^={path}", str(file)]
    nvim = Nvim(argv, {**own_folders(tmp_path), "TERM": "xterm"})
    try:
        if plugin == "minuet-ai.nvim":
            nvim.call("nvim_exec_lua", MINUET.replace("PORT", str(gateway.port)), [])
            nvim.call("nvim_command", "set filetype=python")
        nvim.call("nvim_command", "normal! G")
        nvim.call("nvim_input", "A")
        nvim.call("nvim_input", "r")
        end = time.monotonic() + 60
        while "eturn sum(cart)" not in nvim.call("nvim_exec_lua", GHOSTS, []):
            assert time.monotonic() < end, nvim.call("nvim_exec2", "messages", {"output": True})
            time.sleep(0.05)
        nvim.call("nvim_input", "<Tab>")
        while nvim.call("nvim_get_current_line") != "    " + LINE:
            assert time.monotonic() < end, nvim.call("nvim_get_current_line")
            time.sleep(0.05)
    finally:
        nvim.close()
